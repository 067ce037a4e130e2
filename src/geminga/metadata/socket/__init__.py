"""Metadata over a Unix socket: the server before a store, and the store of a process that it serves."""
