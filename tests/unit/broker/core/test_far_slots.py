"""Far slots: the earliest comes first, and what was discarded goes."""

from __future__ import annotations

from pyroaring import BitMap

from geminga.broker.core.delayed.far_slots import FarSlots
from geminga.broker.core.delayed.packed_positions import ENTRY_MASK, PackedPositions

LEDGER = 1 << 32


def far_slots() -> FarSlots:
    """Ledger 0: entries 0, 2, 4, ... in slot 5, 1, 3, ... in slot 8; and entry 700 of ledger 1 in slot 8."""
    far = FarSlots()
    for entry_id in range(200):
        far.of(8 if entry_id % 2 else 5).singles.append(entry_id)
    far.of(8).singles.append(LEDGER + 700)
    far.check_invariants(())
    return far


def entries(packed: PackedPositions) -> set[int]:
    return {item & ENTRY_MASK for item in packed.singles}


def test_slots_come_in_order():
    far = far_slots()
    assert far.first == 5
    assert 8 in far
    assert far.take_first()[0] == 5
    slot, packed = far.take_first()
    assert (slot, entries(packed)) == (8, {*range(1, 200, 2), 700})
    assert far.first is None


def test_parts_are_shown_and_stay():
    far = far_slots()
    for _ in range(2):
        found = {slot: entries(packed) for slot, packed in far.parts()}
        assert found == {5: set(range(0, 200, 2)), 8: {*range(1, 200, 2), 700}}


def test_only_members_are_kept():
    far = far_slots()
    list(far.keep({0: BitMap(range(200))}.get))
    assert {slot: entries(packed) for slot, packed in far.parts()} == {
        5: set(range(0, 200, 2)),
        8: set(range(1, 200, 2)),
    }
    list(far.keep({0: BitMap(range(100, 200))}.get))
    far.check_invariants(())
    assert {slot: entries(packed) for slot, packed in far.parts()} == {
        5: set(range(100, 200, 2)),
        8: set(range(101, 200, 2)),
    }
    list(far.keep({}.get))
    assert not any(entries(packed) for _, packed in far.parts())


def test_ledgers_get_other_numbers_in_sets_and_chunks():
    far = far_slots()
    far.renumber({0: 3, 1: 0})
    items = {item for _, packed in far.parts() for item in packed.singles}
    assert {item >> 32 & 0xFFFFFF for item in items if item & ENTRY_MASK < 200} == {3}
    assert {item >> 32 & 0xFFFFFF for item in items if item & ENTRY_MASK == 700} == {0}
