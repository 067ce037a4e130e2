"""Sockets that others made, or that have a path: no other module of ``runtime`` is needed for them."""
