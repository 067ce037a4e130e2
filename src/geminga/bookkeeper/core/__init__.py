"""Decisions of the ledger client: who holds an entry, when it is stored, what a recovery may call absent. Pure.

An entry is stored on the ack quorum in entry order or not at all; "unknown" is never rounded to "no such entry".
"""
