"""Entries."""

from __future__ import annotations

from geminga.managed_ledger import Entry
from geminga.model.position import Position


def test_entry_knows_its_position():
    entry = Entry(3, 4, b"data")
    assert entry.position == Position(3, 4)
    assert repr(entry) == "Entry(3:4, 4 bytes)"
