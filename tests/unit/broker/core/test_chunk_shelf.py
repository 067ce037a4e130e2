"""The shelf of chunks: found by position and by time, in stacks where they share a stretch."""

from __future__ import annotations

from tests.unit.broker.core.test_delayed_chunks import packed

from geminga.broker.core.delayed.chunk_shelf import STACK_MAX, VIEWS_MAX, ChunkShelf
from geminga.broker.core.delayed.column import NO_BUCKET
from geminga.model import Position


def sparse(
    ledger_id: int, first: int, count: int = 300, *, bucket: int = 7, every: int = 9
) -> list[tuple[int, int, int]]:
    return [(bucket + i * 31 % 97, ledger_id, first + every * i + i * i % 5) for i in range(count)]


def test_what_is_due_first_comes_first_whichever_chunk_has_it():
    shelf = ChunkShelf()
    entries = []
    for ledger_id in range(5):
        entries += sparse(ledger_id, 0)
        assert shelf.add(packed(sparse(ledger_id, 0), unit=20))
    shelf.check_invariants()
    taken = []
    while (found := shelf.take_next((50, 1 << 64, 0))) is not None:
        shelf.check_invariants()
        chunk, keys = found
        for slot, positions in chunk.unpack(keys, lambda ledger_id: ledger_id):
            taken += [(slot << 8 | item >> 56, item >> 32 & 0xFF, item & 0xFFFF) for item in positions.singles]
        assert {entry for entry in entries if entry < shelf.first_mark} <= set(taken)
    assert {entry for entry in entries if entry[0] <= 50} <= set(taken)
    assert len(set(taken)) == len(taken) == len(entries) - shelf.count


def test_positions_are_found_with_few_chunks_unpacked():
    shelf = ChunkShelf()
    for ledger_id in range(0, 60, 2):
        assert shelf.add(packed(sparse(ledger_id, 5)))
    for _ in range(2):
        for ledger_id in range(60):
            known = {entry_id for _, known, entry_id in sparse(ledger_id, 5)} if ledger_id % 2 == 0 else set()
            for entry_id in (0, 5, 6, 15, 600, 5000):
                assert shelf.contains(ledger_id, entry_id) is (entry_id in known)
            assert set(shelf.members(ledger_id, 100, 900)) == {at for at in known if 100 <= at < 900}
            shelf.check_invariants()
    assert sum(chunk.view is not None for chunk in shelf.chunks()) <= VIEWS_MAX
    assert shelf.count_before(Position(30, 0)) == 15 * 300
    assert shelf.count_before(Position(30, 5 + 9)) == 15 * 300 + 1
    assert shelf.is_free(Position(1, 0), Position(1, 9999))
    assert not shelf.is_free(Position(1, 0), Position(2, 9999))


def test_chunks_of_the_same_stretch_stand_in_one_stack_of_a_few():
    shelf = ChunkShelf()
    for number in range(STACK_MAX):
        assert shelf.add(packed([(9, 1, 20 * i + number) for i in range(100)]))
    assert not shelf.add(packed([(9, 1, 20 * i + 19) for i in range(100)]))
    assert shelf.add(packed([(9, 2, 0)]))
    shelf.check_invariants()
    assert shelf.count == 100 * STACK_MAX + 1
    assert shelf.contains(1, 20 * 50 + STACK_MAX - 1)
    assert not shelf.contains(1, 20 * 50 + STACK_MAX)


def test_discarded_chunks_are_gone_at_once():
    shelf = ChunkShelf()
    for ledger_id in range(10):
        assert shelf.add(packed(sparse(ledger_id, 0), unit=20))
    before = shelf.memory_bytes
    assert shelf.discard_through(Position(6, 5 * 9)) == 6 * 300 + 6 - (4 * 9 + 16 % 5 > 45) - (5 * 9 + 25 % 5 > 45)
    shelf.check_invariants()
    assert shelf.memory_bytes < before / 2
    assert not shelf.contains(5, 0)
    assert shelf.discard_through(Position(9, 9999)) == shelf.discard_through(Position(0, 0)) + 10 * 300 - 1806
    shelf.check_invariants()
    assert shelf.count == 0
    assert shelf.first_mark[0] == NO_BUCKET
