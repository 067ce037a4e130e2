"""A limit on the memory of acknowledgment state: ledgers are put away and brought back, answers stay right."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.cursor import cursor_operations
from geminga.managed_ledger.rules import cursor_format
from geminga.managed_ledger.rules.batch_acks import words_of_bits
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.managed_ledger.stats import internal_stats
from geminga.metadata.ports import MUST_NOT_EXIST
from geminga.model.errors import DiskFullError, InvariantError, LedgerClosedError, StorageError
from geminga.model.position import EARLIEST, Position
from geminga.wire.managed_ledger import LedgerRecord, ManagedLedgerRecord, encode_managed_ledger_info
from support.worlds.ledger_world import NAME, acknowledge, acknowledge_cumulative, read_all, read_entries

CONFIG = ManagedLedgerConfig(max_entries_per_ledger=10, min_rollover_minutes=0, max_ranges_in_metadata=4)
#: Room for the state of some ledgers of ten entries, the index of all included.
LIMIT_BYTES = 16_000
COUNT = 400


@pytest.fixture(autouse=True)
def _few_inline_ranges(monkeypatch):
    monkeypatch.setattr(cursor_format, "INLINE_RANGES_MAX", 2)


async def alternating(w, limit_bytes=LIMIT_BYTES):
    """A topic of 40 ledgers of which every second entry is acknowledged, most of that put away."""
    w.factory.cursor_memory.limit_bytes = limit_bytes
    ml, cursor = await w.subscribed()
    positions = await w.fill(ml, COUNT)
    assert await acknowledge(cursor, positions[1::2]) is None
    await w.world.sleep(0.1)
    return ml, cursor, positions


def test_state_past_the_limit_is_put_away_and_counts_stay_right(in_world):
    async def scenario(w):
        ml, cursor, _positions = await alternating(w)
        memory = w.factory.cursor_memory
        assert len(cursor.state.acked.away_ids) > 20
        assert memory.total_bytes <= memory.limit_bytes < memory.peak_bytes
        assert (cursor.backlog_count, cursor.state.acked.count) == (COUNT // 2, COUNT // 2)
        assert internal_stats(ml)["cursors"]["s"]["totalNonContiguousDeletedMessagesRange"] == COUNT // 2

    in_world(scenario, CONFIG)


def test_state_that_fits_is_not_put_away(in_world):
    async def scenario(w):
        _ml, cursor, positions = await alternating(w, 1 << 20)
        assert cursor.is_in_memory
        assert cursor.state.is_acknowledged(positions[1])

    in_world(scenario, CONFIG)


def test_what_is_put_away_can_not_be_asked_by_mistake(in_world):
    async def scenario(w):
        _ml, cursor, _ = await alternating(w)
        away = Position(cursor.state.acked.away_ids[0], 1)
        for question in (cursor.state.is_acknowledged, cursor.state.ack_set):
            with pytest.raises(InvariantError):
                question(away)

    in_world(scenario, CONFIG)


def test_reads_leave_out_what_is_acknowledged_and_put_away(in_world):
    async def scenario(w):
        _ml, cursor, _ = await alternating(w)
        cursor.reading.rewind()
        assert await read_all(cursor) == [b"m%d" % i for i in range(0, COUNT, 2)]
        assert w.factory.cursor_memory.total_bytes <= 1.2 * LIMIT_BYTES

    in_world(scenario, CONFIG)


def test_acknowledgments_of_what_is_put_away_are_counted_once(in_world):
    async def scenario(w):
        _ml, cursor, positions = await alternating(w)
        again, new = positions[1], positions[6]
        assert await acknowledge(cursor, [again, new]) is None
        assert cursor.backlog_count == COUNT // 2 - 1
        # Those not waited for, in any order, with a crash behind them.
        some = [positions[10 + 37 * i % (COUNT - 10)] for i in range(60)]
        for position in some:
            cursor.acknowledge([position])
        await w.let_background_persist()
        unacked = {p for p in positions[::2] if p not in some and p != new}
        assert cursor.backlog_count == len(unacked)
        w.config = CONFIG
        found = (await w.reopen()).cursors["s"]
        assert found.backlog_count == len(unacked)
        assert [entry.position for entry in await all_entries(found)] == sorted(unacked)

    in_world(scenario, CONFIG)


async def all_entries(cursor):
    found = []
    while entries := await read_entries(cursor):
        found += entries
    return found


def test_mark_delete_moves_through_ledgers_that_are_put_away(in_world):
    async def scenario(w):
        ml, cursor, positions = await alternating(w)
        for position in positions[:100:2]:
            cursor.acknowledge([position])
        await w.world.sleep(0.5)
        assert cursor.mark_delete_position == positions[99]
        # A whole ledger acknowledged out of order, put away, then what is before it.
        assert await acknowledge(cursor, positions[110:120]) is None
        cursor.put_away(1 << 20)
        assert positions[110].ledger_id in cursor.state.acked.away
        assert await acknowledge(cursor, positions[100:110]) is None
        await w.world.sleep(0.1)
        assert cursor.mark_delete_position == positions[119]
        assert cursor.backlog_count == ml.ledgers.entry_count - 120 - (COUNT - 120) // 2

    in_world(scenario, CONFIG)


def test_cumulative_acknowledgment_skip_and_clear_work_on_what_is_put_away(in_world):
    async def scenario(w):
        _ml, cursor, positions = await alternating(w)
        assert await acknowledge_cumulative(cursor, positions[94]) is None
        await w.world.sleep(0.1)
        assert cursor.mark_delete_position == positions[95]
        await cursor.skip(62)
        assert cursor.mark_delete_position == positions[219]
        assert cursor.backlog_count == (COUNT - 220) // 2
        await cursor.skip(1)
        assert cursor.mark_delete_position == positions[221]
        await cursor.clear_backlog()
        assert (cursor.mark_delete_position, cursor.backlog_count) == (positions[-1], 0)

    in_world(scenario, CONFIG)


def test_batch_indexes_that_are_put_away_come_back(in_world):
    async def scenario(w):
        w.factory.cursor_memory.limit_bytes = LIMIT_BYTES
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, COUNT)
        assert await acknowledge(cursor, positions, [words_of_bits(0b101)] * COUNT) is None
        await w.world.sleep(0.1)
        assert len(cursor.state.acked.away_ids) > 10
        assert cursor.backlog_count == COUNT
        assert await acknowledge(cursor, positions, [words_of_bits(0b110)] * COUNT) is None
        left = []
        ids = {p.ledger_id for p in positions[100:110]}
        cursor.when_loaded(ids, lambda: left.append([cursor.state.ack_set(p) for p in positions[100:110]]), left.append)
        await w.world.sleep(0.1)
        assert left == [[(0b100,)] * 10]
        assert await acknowledge(cursor, positions, [words_of_bits(0b011)] * COUNT) is None
        assert cursor.backlog_count == 0

    in_world(scenario, CONFIG)


def test_cursor_ledger_rolls_with_state_that_is_put_away(in_world):
    async def scenario(w):
        _ml, cursor, positions = await alternating(w)
        before = cursor.store.ledger_id
        await w.world.sleep(CONFIG.cursor_rollover_seconds)
        assert await acknowledge(cursor, [positions[0]]) is None
        assert cursor.store.ledger_id > before
        assert len(cursor.state.acked.away_ids) > 20
        w.config = CONFIG
        found = (await w.reopen()).cursors["s"]
        assert found.mark_delete_position == positions[1]
        assert [entry.data for entry in await all_entries(found)] == [b"m%d" % i for i in range(2, COUNT, 2)]

    in_world(scenario, CONFIG)


def test_recovery_keeps_to_the_limit(in_world):
    async def scenario(w):
        _ml, _cursor, positions = await alternating(w)
        w.new_process()
        w.factory.cursor_memory.limit_bytes = LIMIT_BYTES
        found = (await w.open()).cursors["s"]
        assert len(found.state.acked.away_ids) > 20
        assert found.backlog_count == COUNT // 2
        assert len(await all_entries(found)) == COUNT // 2
        assert await acknowledge(found, positions[::2]) is None
        await w.world.sleep(1)
        assert (found.backlog_count, found.mark_delete_position) == (0, positions[-1])

    in_world(scenario, CONFIG)


def test_ledger_that_can_not_be_read_is_tried_again(in_world):
    async def scenario(w):
        _ml, cursor, positions = await alternating(w)
        w.bookie.read_error = DiskFullError("a bad disk")
        answers = []
        cursor.acknowledge([positions[4]], None, answers.append)
        await w.world.sleep(5)
        assert answers == []
        w.bookie.read_error = None
        await w.world.sleep(1.5)
        assert answers == [None]
        assert cursor.backlog_count == COUNT // 2 - 1

    in_world(scenario, CONFIG)


def test_operations_past_the_limit_are_refused(in_world, monkeypatch):
    monkeypatch.setattr(cursor_operations, "WAITING_MAX", 3)

    async def scenario(w):
        _ml, cursor, positions = await alternating(w)
        w.bookie.read_error = DiskFullError("a bad disk")
        answers = []
        for position in positions[4:12:2]:
            cursor.acknowledge([position], None, answers.append)
        assert [type(answer) for answer in answers] == [LedgerClosedError]
        w.bookie.read_error = None
        await w.world.sleep(1.5)
        assert answers[1:] == [None] * 3

    in_world(scenario, CONFIG)


def test_seek_forgets_what_waits_and_what_is_put_away(in_world):
    async def scenario(w):
        _ml, cursor, positions = await alternating(w)
        answers = []
        cursor.acknowledge([positions[4]], None, answers.append)
        await cursor.reset(positions[2])
        await w.world.sleep(0.1)
        assert [isinstance(answer, StorageError) for answer in answers] == [True]
        assert (cursor.backlog_count, cursor.is_in_memory) == (COUNT - 2, True)
        assert [entry.position for entry in await all_entries(cursor)] == positions[2:]

    in_world(scenario, CONFIG)


def test_close_carries_out_what_waits(in_world):
    async def scenario(w):
        _ml, cursor, positions = await alternating(w)
        cursor.acknowledge([positions[4], positions[100]])
        await w.factory.close()
        assert w.factory.cursor_memory.total_bytes == 0
        found = (await w.reopen()).cursors["s"]
        assert found.backlog_count == COUNT // 2 - 2
        assert found.state.is_acknowledged(positions[4])

    in_world(scenario, CONFIG)


def test_the_cursor_that_takes_most_makes_room(in_world):
    async def scenario(w):
        ml, large, positions = await alternating(w, 1 << 20)
        small = await ml.open_cursor("t", initial=EARLIEST)
        assert await acknowledge(small, positions[1:20:2]) is None
        memory = w.factory.cursor_memory
        memory.limit_bytes = memory.total_bytes - 1000
        assert await acknowledge(small, positions[21:23]) is None
        await w.world.sleep(0.1)
        assert large.state.acked.away
        assert small.is_in_memory
        assert memory.total_bytes <= memory.limit_bytes

    in_world(scenario, CONFIG)


#: Acknowledged of each of the thousand ledgers below, to begin with.
SPREAD = range(1, 4000, 2)


async def thousand_ledgers(w):
    """A cursor over a thousand ledgers, which are only listed: no entry is read. Its state is on disk."""
    ids = range(1_000_000, 1_001_000)
    record = ManagedLedgerRecord(tuple(LedgerRecord(i, 50_000, 5_000_000, 1, b"") for i in ids))
    await w.store.put(ledger_path(NAME), encode_managed_ledger_info(record), expected_version=MUST_NOT_EXIST)
    cursor = await (await w.open()).open_cursor("s", initial=EARLIEST)
    for ledger_id in ids:
        cursor.acknowledge([Position(ledger_id, entry_id) for entry_id in SPREAD])
    await cursor.flush()
    return list(ids)


async def is_acknowledged(cursor, position):
    future = asyncio.get_running_loop().create_future()
    cursor.when_loaded(
        (position.ledger_id,), lambda: future.set_result(cursor.state.is_acknowledged(position)), future.set_exception
    )
    return await future


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_a_thousand_ledgers_with_memory_for_a_tenth_of_the_state_stay_right_and_within_the_limit(in_world, seed):
    async def scenario(w):
        rng = w.world.rng(f"thousand ledgers {seed}")
        ids = await thousand_ledgers(w)
        limit = w.factory.cursor_memory.total_bytes // 10
        #: The oracle: beside SPREAD, by ledger; and up to where everything is.
        more: dict[int, set[int]] = {i: set() for i in ids}
        passed = 0

        def expected(position):
            entry_id = position.entry_id
            known = entry_id in SPREAD or entry_id in more[position.ledger_id]
            return position.ledger_id < ids[passed] or known

        for life in range(3):
            w.new_process()
            memory = w.factory.cursor_memory
            memory.limit_bytes = limit
            cursor = (await w.open()).cursors["s"]
            assert len(cursor.state.acked.away_ids) > 800
            for _ in range(150):
                ledger_id = rng.choice(ids[passed:])
                entries = {rng.choice((rng.randrange(5_000), rng.randrange(50_000))) for _ in range(3)}
                positions = [Position(ledger_id, entry_id) for entry_id in sorted(entries)]
                assert [await is_acknowledged(cursor, p) for p in positions] == [expected(p) for p in positions]
                cursor.acknowledge(positions)
                more[ledger_id] |= entries - set(SPREAD)
                assert memory.total_bytes <= limit
                if rng.random() < 0.05:
                    await w.world.sleep(rng.choice((0.1, 0.7)))
            passed += rng.randrange(1, 60)
            assert await acknowledge_cumulative(cursor, Position(ids[passed - 1], 49_999)) is None
            await cursor.flush()
            left = sum(50_000 - len(SPREAD) - len(more[i]) for i in ids[passed:])
            assert cursor.backlog_count == left, f"life {life}"
            assert memory.peak_bytes <= limit
        for ledger_id in ids[passed:]:
            some = [Position(ledger_id, rng.randrange(5_000)) for _ in range(3)]
            some += [Position(ledger_id, entry_id) for entry_id in sorted(more[ledger_id])]
            assert [await is_acknowledged(cursor, p) for p in some] == [expected(p) for p in some]
        assert memory.peak_bytes <= limit

    in_world(scenario, ManagedLedgerConfig())
