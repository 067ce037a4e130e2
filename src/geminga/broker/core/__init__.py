"""Decisions of the broker: who gets what and when, what is a duplicate, what may be deleted, what waits. Pure.

Batches and moments are handed in, answers come out; each core has an oracle in ``tests/property``.
"""
