"""Decisions of the HTTP server: pure, no I/O, time passed in."""
