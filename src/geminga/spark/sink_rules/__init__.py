"""Decisions of the sink: columns, routing, numbers of rows, steps of an exactly-once commit. Pure."""
