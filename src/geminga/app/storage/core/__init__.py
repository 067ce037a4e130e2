"""Decisions about directories: which bookies one holds, what a cluster's metadata begin with. Pure."""
