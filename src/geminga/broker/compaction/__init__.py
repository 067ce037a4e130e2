"""Compaction of topics: the newest message of each key, in a ledger of its own."""
