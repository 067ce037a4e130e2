"""Decisions that producers and consumers share: back-off, kinds of options, counters, states of a transaction. Pure."""
