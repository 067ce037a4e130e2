"""Decisions of managed ledgers: acknowledged ranges, batches, rollover, trim, names of states. Pure.

The mark-delete position moves over a contiguous prefix only; a ledger is let go when no cursor needs it any more.
"""
