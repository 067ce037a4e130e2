"""Decisions of a local cluster: what is to run, on which ports, in which order. Pure."""
