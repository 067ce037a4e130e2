"""What was compacted is read in pieces, the next one ahead of who asks; and never what is not served any more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from geminga.broker.compacted.read_ahead import Done, ReadAhead
from geminga.managed_ledger.cursor.cursor_reads import READ_AHEAD_BYTES, READ_AHEAD_PACED_BYTES
from geminga.managed_ledger.rules.catch_up_share import TURN_S
from geminga.managed_ledger.shared.catch_up_turns import CatchUpTurns
from geminga.managed_ledger.shared.entry import Entry
from geminga.managed_ledger.shared.entry_cache import EntryCache
from geminga.model.errors import StorageError
from geminga.model.position import Position
from geminga.sim import run
from support.house.stepping_clock import WorkClock

ENTRY_BYTES = 1024
#: Entries of a piece.
PIECE = READ_AHEAD_BYTES // ENTRY_BYTES


class Compacted:
    """Every tenth entry of a ledger was kept; reads are answered when :meth:`answer` is called."""

    def __init__(self, count: int, value: bytes = b"v") -> None:
        self.kept = [Entry(1, 10 * number, value * ENTRY_BYTES) for number in range(count)]
        self.horizon = Position(1, 10 * count)
        self.asked: list[tuple[Position, int]] = []
        self.waiting: list[tuple[Sequence[Entry] | StorageError, Done]] = []
        self.error: StorageError | None = None

    def read(self, first: Position, entries_max: int, bytes_max: int, done: Done) -> None:
        self.asked.append((first, entries_max))
        found = [entry for entry in self.kept if entry.position >= first][:entries_max]
        assert sum(len(entry.data) for entry in found) <= bytes_max
        self.waiting.append((self.error or found, done))

    def answer(self) -> bool:
        """What waits, in its order; whether anything did."""
        waiting, self.waiting = self.waiting, []
        for result, done in waiting:
            done(result)
        return bool(waiting)


class Reader:
    """Reads on whenever it has what it asked for."""

    def __init__(self, *, cache_bytes: int = 10 * READ_AHEAD_BYTES) -> None:
        self.cache = EntryCache(cache_bytes)
        self.clock = WorkClock()
        self.turns = CatchUpTurns(self.clock, 0.5)
        self.ahead = ReadAhead(self.cache, self.turns, None)
        self.got: list[Entry] = []
        self.results: list[Sequence[Entry] | StorageError] = []
        self.at = Position(1, 0)
        #: What handing on an entry takes.
        self.work_s = 0.0

    def ask(self, source: Compacted, entries_max: int = 100) -> None:
        self.ahead.read(source, self.at, entries_max, 5 << 20, self.took)

    def took(self, result: Sequence[Entry] | StorageError) -> None:
        self.results.append(result)
        if result and not isinstance(result, StorageError):
            assert len(result) <= 100
            self.got += result
            self.clock.worked_s += self.work_s * len(result)
            self.at = Position(1, result[-1].entry_id + 1)


def in_turns(story) -> None:
    run(story, seed=1)


async def _read_all(world, reader: Reader, source: Compacted) -> None:
    while not reader.results or reader.results[-1]:
        told = len(reader.results)
        reader.ask(source)
        while len(reader.results) == told:
            if not source.answer():
                await world.sleep(0.001)


def test_three_pieces_are_read_for_many_reads_each_ahead_of_who_asks():
    async def story(world):
        reader, source = Reader(), Compacted(3 * PIECE)
        await _read_all(world, reader, source)
        assert reader.got == source.kept
        # The first says how large entries are; the last finds nothing more.
        firsts = [first.entry_id // 10 for first, _ in source.asked]
        assert [count for _, count in source.asked[:3]] == [100, 100 + PIECE, PIECE]
        assert firsts == sorted(firsts)
        assert len(firsts) <= 8
        assert reader.cache.size_bytes == 0

    in_turns(story)


def test_the_next_piece_is_on_its_way_while_one_is_handed_out():
    async def story(world):
        reader, source = Reader(), Compacted(4 * PIECE)
        for _ in range(2):
            reader.ask(source)
            source.answer()
        assert len(reader.got) == 200
        assert source.waiting  # nobody asked for it
        reader.ask(source)
        assert len(reader.got) == 300
        assert reader.cache.size_bytes == (PIECE - 100) * ENTRY_BYTES

    in_turns(story)


def test_what_was_read_ahead_is_read_anew_when_something_else_is_served():
    async def story(world):
        reader, source = Reader(), Compacted(4 * PIECE)
        for _ in range(2):
            reader.ask(source)
            source.answer()
        source.kept = Compacted(4 * PIECE, b"w").kept
        source.horizon = Position(2, 0)
        reader.ask(source)
        source.answer()
        assert [entry.data[:1] for entry in reader.got] == [b"v"] * 200 + [b"w"] * 100
        assert reader.got == reader.got[:200] + source.kept[200:300]
        assert reader.cache.size_bytes == sum(len(entry.data) for entry in reader.ahead._entries[reader.ahead._used :])

    in_turns(story)


def test_a_piece_of_what_was_served_before_is_not_kept_though_it_comes_later():
    async def story(world):
        reader, source = Reader(), Compacted(4 * PIECE)
        for _ in range(2):
            reader.ask(source)
            source.answer()
        source.horizon = Position(2, 0)
        source.answer()  # the piece that was on its way
        held = len(reader.ahead._entries) - reader.ahead._used
        assert held == PIECE
        reader.ask(source)
        assert reader.cache.size_bytes == 0

    in_turns(story)


def test_an_error_ahead_is_told_to_who_needs_what_it_is_of():
    async def story(world):
        reader, source = Reader(), Compacted(4 * PIECE)
        reader.ask(source)
        source.answer()
        source.error = StorageError("no bookie")
        reader.ask(source, 10)
        source.answer()
        assert reader.results[-1] is source.error
        source.error = None
        reader.ask(source, 10)
        source.answer()
        source.error, source.waiting = StorageError("no bookie"), [(StorageError("ahead"), source.waiting[0][1])]
        source.answer()  # nobody waits for it
        while not isinstance(reader.results[-1], StorageError):
            reader.ask(source)
            source.answer()
        assert reader.got == source.kept[: len(reader.got)]
        assert len(reader.got) == 110 + PIECE
        assert reader.results[-1] is source.error

    in_turns(story)


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_nothing_is_kept_once_it_is_closed_and_a_read_under_way_ends(reads):
    async def story(world):
        reader, source = Reader(), Compacted(4 * PIECE)
        for _ in range(reads - 1):
            reader.ask(source)
            source.answer()
        assert (reader.cache.size_bytes > 0) is (reads > 2)
        reader.ahead.close()
        assert reader.cache.size_bytes == 0
        assert source.answer() is (reads > 2)  # what was on its way
        assert reader.cache.size_bytes == 0
        reader.ask(source)
        source.answer()
        assert len(reader.results) == reads
        assert reader.got == source.kept[: 100 * reads]
        assert reader.cache.size_bytes == 0

    in_turns(story)


def test_a_piece_that_comes_for_a_place_that_was_left_is_not_handed_out_at_another():
    async def story(world):
        reader, source = Reader(), Compacted(4 * PIECE)
        for _ in range(2):
            reader.ask(source)
            source.answer()
        late, source.waiting = source.waiting, []
        reader.at, reader.got = Position(1, 0), []
        reader.ask(source)
        source.waiting = late + source.waiting
        source.answer()
        reader.ask(source)
        assert reader.got == source.kept[:200]

    in_turns(story)


def test_a_piece_that_comes_while_nobody_asks_is_there_for_the_next_read():
    async def story(world):
        reader, source = Reader(), Compacted(4 * PIECE)
        while len(reader.got) < 100 + 100 + PIECE:
            reader.ask(source)
            if len(source.asked) < 3:
                source.answer()
        source.answer()
        asked = len(source.asked)
        reader.ask(source)
        assert reader.got == source.kept[: 300 + PIECE]
        assert len(source.asked) == asked + 1  # the piece behind it

    in_turns(story)


def test_without_room_in_the_cache_no_more_is_read_than_is_asked_for():
    async def story(world):
        reader, source = Reader(cache_bytes=0), Compacted(450)
        await _read_all(world, reader, source)
        assert reader.got == source.kept
        assert [count for _, count in source.asked] == [100] * 6

    in_turns(story)


def test_while_others_publish_it_waits_for_its_turn_and_pieces_are_smaller():
    async def story(world):
        reader, source = Reader(), Compacted(2 * PIECE)
        reader.work_s = TURN_S / 4  # an entry
        waited = 0
        while len(reader.got) < 600:
            told = len(reader.results)
            reader.turns.published()
            reader.ask(source)
            source.answer()
            if reader.turns.waiting_count:
                waited += 1
                assert len(reader.results) == told
            while len(reader.results) == told:
                if not source.answer():
                    await world.sleep(0.001)
        assert reader.got == source.kept[: len(reader.got)]
        assert max(count for _, count in source.asked[1:]) <= 100 + READ_AHEAD_PACED_BYTES // ENTRY_BYTES
        assert waited > len(reader.results) / 3
        assert len(reader.results) > 100  # so many entries as a turn has time for
        reader.turns.close()

    in_turns(story)
