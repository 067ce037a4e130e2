"""Far slots: sets and chunks of the same slot come together, are searched together, and are shown together."""

from __future__ import annotations

from pyroaring import BitMap

from geminga.broker.core.delayed_chunks import Column, chunk_of
from geminga.broker.core.far_slots import FarSlots
from geminga.broker.core.packed_positions import ENTRY_MASK, PackedPositions

SLOT = 1 << 8
LEDGER = 1 << 32


def far_slots() -> FarSlots:
    """Ledger 0 in a chunk: entries 0, 2, 4, ... in slot 5, 1, 3, ... in slot 8; and entry 700 of ledger 1 in slot 8."""
    far = FarSlots()
    column = Column()
    column.restart(0)
    column.extend([(8 if n % 2 else 5) * SLOT + n for n in range(200)])
    chunk = chunk_of(column, 0)
    assert chunk is not None
    far.add_chunk(chunk)
    far.of(8).singles.append(LEDGER + 700)
    far.check_invariants(())
    return far


def entries(packed: PackedPositions) -> set[int]:
    return {item & ENTRY_MASK for item in packed.singles}


def test_slots_come_in_order_with_what_chunks_have_of_them():
    far = far_slots()
    assert far.first == 5
    assert 8 in far
    assert far.take_first()[0] == 5
    slot, packed = far.take_first()
    assert (slot, entries(packed)) == (8, {*range(1, 200, 2), 700})
    assert far.first is None


def test_parts_are_copies_where_a_chunk_has_a_share():
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
