"""Sockets that others made, or that have a path, and reads with a limit over all: no other module of ``runtime`` is
needed for them."""
