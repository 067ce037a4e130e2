"""Decisions of auto-recovery, pure: what lacks copies, what to copy where, what metadata become, when to look."""
