"""Decisions of the source: offsets, plans, admission, parts of lake files. Pure."""
