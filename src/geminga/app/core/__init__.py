"""Decisions of the composition root: pure, no I/O."""
