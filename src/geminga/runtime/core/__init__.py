"""Decisions of the real ports, without the operating system."""
