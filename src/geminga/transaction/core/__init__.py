"""Decisions of coordinator, transaction buffer and pending-ack handle; no I/O, no clock."""
