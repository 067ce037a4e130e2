"""What descriptions of Pulsar's cursor get wrong, each with a test named after what it prevents (F: its number)."""

from __future__ import annotations

import pytest

from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.rules.batch_acks import BatchAcks
from geminga.managed_ledger.rules.cursor import CursorState
from geminga.managed_ledger.rules.cursor_format import MARKER_BYTES_MAX, plan_write, recovery
from geminga.managed_ledger.rules.plain_ranges import PlainRanges
from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.model.position import EARLIEST, Position
from support.worlds.ledger_world import acknowledge, read_all, read_entries

ONE_LEDGER = ManagedLedgerConfig()


def test_f1_acknowledging_five_hides_five_and_not_four(in_world):
    """Consumers got 1 to 6, 5 was acknowledged, all consumers left: 1, 2, 3, 4 and 6 come again."""

    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 6)
        assert len(await read_all(cursor)) == 6
        await acknowledge(cursor, [positions[4]])
        cursor.reading.rewind()
        assert await read_all(cursor) == [b"m0", b"m1", b"m2", b"m3", b"m5"]
        again = (await w.reopen()).cursors["s"]
        assert await read_all(again) == [b"m0", b"m1", b"m2", b"m3", b"m5"]

    in_world(scenario)


def test_f9_alternate_acknowledgments_are_as_many_ranges_as_acknowledgments():
    """Of n entries every second one: n / 2 ranges, not a tenth of that."""
    ledgers = LedgerList([LedgerInfo(1, 100_000, closed_ms=1)])
    state = CursorState(Position(1, -1))
    state.acknowledge([Position(1, i) for i in range(1, 100_000, 2)], None, ledgers)
    assert (state.acked.count, state.acked.range_count) == (50_000, 50_000)
    plain = CursorState(Position(1, -1), {}, PlainRanges)
    plain.acknowledge([Position(1, i) for i in range(1, 100_000, 2)], None, ledgers)
    assert plain.acked.range_count == 50_000
    # One bit each; not one object each.
    assert state.ledger_memory_bytes(1) < 100_000 / 4
    assert plain.ledger_memory_bytes(1) > 50_000 * 16


def test_f10_bitmaps_need_not_be_switched_on(in_world):
    assert ManagedLedgerConfig().ack_bitmaps

    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 1_000)
        await acknowledge(cursor, positions[1::2])
        # What one kind wrote the other reads.
        w.config = ONE_LEDGER
        again = (await w.reopen()).cursors["s"]
        assert again.backlog_count == 500
        assert len(await read_entries(again, 1_000)) == 500

    in_world(scenario, ManagedLedgerConfig(ack_bitmaps=False))


def test_f11_holes_past_ten_thousand_are_not_dropped_silently_at_a_restart(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 50_000)
        assert await acknowledge(cursor, positions[1::2]) is None
        again = (await w.reopen()).cursors["s"]
        assert again.state.acked.range_count == 25_000
        assert all(again.state.is_acknowledged(p) for p in positions[1::2])
        # An orderly end keeps them too: far more ranges than the node may hold.
        await w.factory.close()
        assert (await w.reopen()).cursors["s"].backlog_count == 25_000

    in_world(scenario, ManagedLedgerConfig(max_entries_per_ledger=20_000, min_rollover_minutes=0))


def test_f12_one_more_acknowledgment_does_not_write_the_whole_state_again(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 10_000)
        await acknowledge(cursor, positions[1::2])
        source = cursor.store.segments.source
        entries, length = cursor.store.appended_entries, source.length_bytes
        await acknowledge(cursor, [positions[6_000]])
        assert cursor.store.appended_entries == entries + 2
        assert source.length_bytes - length < length / 3

    in_world(scenario, ManagedLedgerConfig(max_entries_per_ledger=1_000, min_rollover_minutes=0))


def test_f15_a_set_bit_is_not_taken_for_an_acknowledged_message(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        position = (await w.fill(ml, 1))[0]
        await acknowledge(cursor, [position], [(0b1110,)])
        assert cursor.state.ack_set(position) == (0b1110,)
        # All clear: every message of the batch is acknowledged.
        await acknowledge(cursor, [position], [(0,)])
        assert cursor.backlog_count == 0

    in_world(scenario)


def test_f16_acknowledging_an_index_does_not_acknowledge_those_behind_it(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        position = (await w.fill(ml, 1))[0]
        size = 200
        for index in (0, 64, 130):
            left = ((1 << size) - 1) & ~(1 << index)
            words = [
                int.from_bytes(left.to_bytes(32, "little")[i : i + 8], "little", signed=True) for i in (0, 8, 16, 24)
            ]
            await acknowledge(cursor, [position], [words])
        found = cursor.state.ack_set(position)
        assert sum((word & (1 << 64) - 1).bit_count() for word in found) == size - 3
        again = (await w.reopen()).cursors["s"]
        assert again.state.ack_set(position) == found
        assert again.backlog_count == 1

    in_world(scenario)


def test_f20_whether_a_read_goes_to_the_bookie_depends_on_the_lag_and_not_on_the_reader(in_world):
    async def scenario(w):
        ml = await w.open()
        near, far = [await ml.open_cursor(name, initial=EARLIEST) for name in ("near", "far")]
        await read_entries(near)
        await w.fill(ml, 50)
        before = w.bookie.read_calls
        assert len(await read_entries(near, 50)) == 50
        assert w.bookie.read_calls == before
        # The same cursor from the start, once the cache has let go.
        near.reading.deactivate()
        near.reading.rewind()
        far.reading.deactivate()
        assert len(await read_entries(near, 50)) == 50
        assert w.bookie.read_calls > before

    in_world(scenario, ONE_LEDGER)


def test_f27_batch_index_acknowledgment_need_not_be_switched_on():
    assert BrokerConfig().acknowledgment_at_batch_index_level_enabled


def test_f27_a_backlog_of_thirty_million_does_not_make_the_state_large():
    ledgers = LedgerList([LedgerInfo(i, 50_000, closed_ms=1) for i in range(600)])
    state = CursorState(Position(0, 10))
    state.acknowledge([Position(ledger_id, 49_000) for ledger_id in range(0, 600, 10)], None, ledgers)
    assert state.backlog(ledgers) == 30_000_000 - 11 - 60
    plan = plan_write(state, {})
    assert sum(map(len, plan.segments)) + len(plan.marker(plan.refs(0))) < 4_096


def test_a_large_bit_set_that_is_forgotten_takes_no_memory() -> None:
    acks = BatchAcks()
    acks.merge(1, 0, (1 << 100_000) - 1)
    acks.merge(1, 1, 1)
    with_both = acks.ledger_memory_bytes(1)
    assert acks.discard(1, 0)
    small = acks.ledger_memory_bytes(1)
    assert with_both > 10_000 > 200 > small
    acks.merge(1, 0, (1 << 100_000) - 1)
    assert acks.ledger_memory_bytes(1) == with_both


def test_half_acknowledged_batches_of_a_million_messages_are_stored_in_entries_that_bookies_take() -> None:
    ledgers = LedgerList([LedgerInfo(1, 100)])
    state = CursorState(Position(1, -1))
    # Every second message: each word takes ten bytes.
    half = [0x5555555555555555 - (1 << 63)] * (1 << 14)
    state.acknowledge([Position(1, entry_id) for entry_id in range(34)], [half] * 34, ledgers)
    plan = plan_write(state, {})
    entries = [*plan.segments, plan.marker(plan.refs(0))]
    assert max(map(len, entries)) <= MARKER_BYTES_MAX
    steps = recovery(len(entries) - 1, ledgers)
    first, last = next(steps)
    with pytest.raises(StopIteration) as stop:
        while True:
            first, last = steps.send(entries[first : last + 1])
    assert list(stop.value.value.state.batches) == list(state.batches)


def test_half_acknowledged_batches_of_some_messages_lie_in_the_marker_itself() -> None:
    state = CursorState(Position(1, -1))
    half = [0x5555555555555555] * 16
    state.acknowledge([Position(1, i) for i in range(128)], [half] * 128, LedgerList([LedgerInfo(1, 200)]))
    assert plan_write(state, {}).is_inline
