"""Formats, plans and states of the bookie: bytes to records and back, what to checkpoint and compact next. Pure.

Bytes that are cut or changed never decode as something valid; what is live is always counted from the index.
"""
