"""Decisions of consumers: what to ask for, group, deliver again, put together, drop. Pure."""
