"""Where a cursor's state lies, and when it is written."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from geminga.bookkeeper import MetadataLiveLedgers
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.shared.metadata_io import cursor_path
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import DiskFullError, LedgerClosedError, MetadataError
from geminga.model.limits import METADATA_VALUE_BYTES_MAX
from geminga.model.position import Position
from geminga.wire.managed_ledger import decode_cursor_info, encode_cursor_info
from support.worlds.ledger_world import NAME, acknowledge

#: Room for one range in the node: most states need the cursor ledger.
NARROW = ManagedLedgerConfig(max_ranges_in_metadata=1)


async def node_of(w, name="s"):
    node = await w.store.get(cursor_path(NAME, name))
    return None if node is None else decode_cursor_info(node.value)


def test_cursor_that_never_acknowledged_has_no_ledger(in_world):
    async def scenario(w):
        _ml, cursor, _ = await w.with_cursor(8)
        node = await node_of(w)
        assert (node.cursor_ledger_id, node.mark_delete) == (-1, cursor.mark_delete_position)
        adds = w.bookie.add_calls
        await w.factory.close()
        assert w.bookie.add_calls == adds
        assert (await w.reopen()).cursors["s"].backlog_count == 8

    in_world(scenario)


def test_cursor_is_persisted_in_the_background_twice_a_second(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        assert (await node_of(w)).cursor_ledger_id == -1
        cursor.acknowledge(positions[:1])
        await w.world.sleep(0.2)
        # At once the first time: a broker killed again and again within that time still gets on.
        assert (await node_of(w)).cursor_ledger_id >= 0
        adds = w.bookie.add_calls
        for position in positions[1:5]:
            cursor.acknowledge([position])
            await w.world.sleep(0.05)
        assert w.bookie.add_calls == adds
        await w.let_background_persist()
        assert w.bookie.add_calls == adds + 1
        assert (await w.reopen()).cursors["s"].mark_delete_position == positions[4]

    in_world(scenario)


def test_cursor_acknowledgments_of_one_turn_share_a_write(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        await acknowledge(cursor, positions[:1])
        adds = w.bookie.add_calls
        answers = []
        for position in positions[1:6]:
            cursor.acknowledge([position], None, answers.append)
        await w.world.sleep(0.01)
        assert answers == [None] * 5
        assert w.bookie.add_calls == adds + 1

    in_world(scenario)


def test_cursor_acknowledgments_during_a_write_share_the_next(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        await acknowledge(cursor, positions[:1])
        w.bookie.holds_replies = True
        adds = w.bookie.add_calls
        answers = []
        cursor.acknowledge(positions[1:2], None, answers.append)
        await w.world.sleep(0.01)
        for position in positions[2:5]:
            cursor.acknowledge([position], None, answers.append)
            await w.world.sleep(0.01)
        assert (answers, w.bookie.add_calls) == ([], adds + 1)
        w.bookie.release()
        await w.world.sleep(0.01)
        assert (answers, w.bookie.add_calls) == ([None] * 4, adds + 2)

    in_world(scenario)


def test_cursor_acknowledgment_again_is_answered_when_the_first_is_durable(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        cursor.acknowledge(positions[:1])
        assert await acknowledge(cursor, positions[:1]) is None
        assert (await w.reopen()).cursors["s"].mark_delete_position == positions[0]

    in_world(scenario)


def test_cursor_closed_in_order_lies_in_its_node(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        await acknowledge(cursor, [positions[0], positions[3]], None)
        ledger_id = (await node_of(w)).cursor_ledger_id
        assert ledger_id >= 0
        cursor.acknowledge(positions[5:6])
        await w.factory.close()
        node = await node_of(w)
        assert (node.cursor_ledger_id, node.mark_delete, len(node.ranges)) == (-1, positions[0], 2)
        assert ledger_id not in await w.factory.named_ledgers(NAME)
        assert (await w.reopen()).cursors["s"].state.is_acknowledged(positions[5])

    in_world(scenario)


def test_cursor_too_large_for_its_node_is_closed_in_its_ledger(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        cursor.acknowledge([positions[1], positions[3], positions[5]])
        await w.factory.close()
        assert (await node_of(w)).cursor_ledger_id >= 0
        found = (await w.reopen()).cursors["s"]
        assert [found.state.is_acknowledged(p) for p in positions[:6]] == [False, True] * 3

    in_world(scenario, NARROW)


def test_cursor_write_that_failed_goes_to_the_node(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        await acknowledge(cursor, positions[:1])
        w.bookie.add_error = DiskFullError("full")
        assert await acknowledge(cursor, positions[2:3]) is None
        node = await node_of(w)
        assert (node.cursor_ledger_id, node.mark_delete, len(node.ranges)) == (-1, positions[0], 1)
        w.bookie.add_error = None
        assert await acknowledge(cursor, positions[1:2]) is None
        assert (await node_of(w)).cursor_ledger_id >= 0
        assert (await w.reopen()).cursors["s"].mark_delete_position == positions[2]

    in_world(scenario)


def test_cursor_write_that_failed_and_does_not_fit_the_node_is_an_error_and_loses_nothing(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        await acknowledge(cursor, [positions[1], positions[3]])
        w.bookie.add_error = DiskFullError("full")
        assert isinstance(await acknowledge(cursor, [positions[5]]), DiskFullError)
        w.bookie.add_error = None
        found = (await w.reopen()).cursors["s"]
        assert [found.state.is_acknowledged(p) for p in positions[:6]] == [False, True, False, True, False, False]
        assert await acknowledge(found, [positions[5]]) is None
        found = (await w.reopen()).cursors["s"]
        assert found.state.is_acknowledged(positions[5])

    in_world(scenario, NARROW)


def test_cursor_ledger_rolls_by_entries_and_the_old_one_is_deleted(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        seen = set()
        for position in positions:
            await acknowledge(cursor, [position])
            seen.add((await node_of(w)).cursor_ledger_id)
        assert len(seen) == 3
        live = [ledger_id for ledger_id in sorted(seen) if ledger_id in await w.factory.named_ledgers(NAME)]
        assert live == [max(seen)]
        for ledger_id in sorted(seen)[:-1]:
            assert not await w.store.exists(f"/ledgers/00/0000/L{ledger_id:04d}")
        assert (await w.reopen()).cursors["s"].backlog_count == 0

    in_world(scenario, ManagedLedgerConfig(cursor_max_entries_per_ledger=3))


def test_cursor_ledger_rolls_by_age(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        await acknowledge(cursor, positions[:1])
        first = (await node_of(w)).cursor_ledger_id
        await w.world.sleep(61)
        await acknowledge(cursor, positions[1:2])
        assert (await node_of(w)).cursor_ledger_id > first

    in_world(scenario, ManagedLedgerConfig(cursor_rollover_seconds=60))


def test_cursor_node_with_unknown_outcome_is_settled(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        for index, fault in enumerate((WriteFault.UNKNOWN_AFTER, WriteFault.UNKNOWN_BEFORE)):
            w.faults.next_writes.extend([WriteFault.NONE, fault])
            assert await acknowledge(cursor, [positions[index]]) is None
            await cursor.set_cursor_properties({"n": str(index)})
        found = (await w.reopen()).cursors["s"]
        assert found.mark_delete_position == positions[1]
        assert found.cursor_properties == {"n": "1"}

    in_world(scenario, ManagedLedgerConfig(cursor_max_entries_per_ledger=1))


def test_cursor_deleted_is_gone_with_its_ledger(in_world):
    async def scenario(w):
        ml, cursor, positions = await w.with_cursor(8)
        await acknowledge(cursor, positions[:1])
        ledger_id = cursor.store.ledger_id
        cursor.acknowledge(positions[1:2])
        await ml.delete_cursor("s")
        await ml.delete_cursor("s")
        assert isinstance(await acknowledge(cursor, positions[2:3]), LedgerClosedError)
        await w.let_background_persist()
        assert await node_of(w) is None
        assert not await w.store.exists(f"/ledgers/00/0000/L{ledger_id:04d}")
        assert not (await w.reopen()).cursors

    in_world(scenario)


def test_cursor_properties_survive(in_world):
    async def scenario(w):
        ml = await w.open()
        cursor = await ml.open_cursor("a%2Fb+c", properties={"p": -5}, cursor_properties={"owner": "me"})
        again = (await w.reopen()).cursors["a%2Fb+c"]
        assert (again.properties, again.cursor_properties) == ({"p": -5}, {"owner": "me"})
        await again.set_properties({"p": 6})
        again = (await w.reopen()).cursors["a%2Fb+c"]
        assert (again.properties, again.cursor_properties) == ({"p": 6}, {"owner": "me"})
        assert cursor.mark_delete_position == again.mark_delete_position

    in_world(scenario)


def test_cursor_with_ten_thousand_alternating_holes_comes_back(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(20_000)
        assert await acknowledge(cursor, positions[1::2]) is None
        await acknowledge(cursor, [positions[5_000]])
        found = (await w.reopen()).cursors["s"]
        assert found.backlog_count == 9_999
        assert found.state.acked.count == 10_001
        assert found.state.is_acknowledged(positions[5_000])

    in_world(scenario, ManagedLedgerConfig())


def test_cursor_that_pulsar_wrote_is_recovered(in_world):
    """A plain PositionInfo as the last entry of the cursor ledger, as Apache's broker writes it."""

    async def scenario(w):
        from geminga.wire._generated import managed_ledger_pb2 as pb

        _ml, cursor, positions = await w.with_cursor(8)
        await acknowledge(cursor, positions[:1])
        ledger_id = positions[0].ledger_id
        foreign = pb.PositionInfo(ledgerId=ledger_id, entryId=1)
        foreign.individualDeletedMessages.add(
            lowerEndpoint=pb.NestedPositionInfo(ledgerId=ledger_id, entryId=2),
            upperEndpoint=pb.NestedPositionInfo(ledgerId=ledger_id, entryId=4),
        )
        foreign.individualDeletedMessageRanges.add(key=ledger_id, values=[1 << 6])
        cursor.store._ledger.handle.append([foreign.SerializeToString()], lambda *_: None)
        await w.world.sleep(0.01)
        found = (await w.reopen()).cursors["s"]
        assert found.mark_delete_position == positions[1]
        assert [found.state.is_acknowledged(p) for p in positions[2:8]] == [False, True, True, False, True, False]
        assert found.state.ack_set(Position(ledger_id, 2)) is None

    in_world(scenario)


def test_cursor_acknowledgment_during_a_slow_write_is_written_right_behind_it(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        await acknowledge(cursor, positions[:1])
        w.bookie.holds_replies = True
        adds = w.bookie.add_calls
        cursor.acknowledge(positions[1:2], None, lambda _error: None)
        await w.world.sleep(0.01)
        cursor.acknowledge(positions[2:3])
        # The time for it comes, and passes, while the first write is under way.
        await w.world.sleep(5)
        assert w.bookie.add_calls == adds + 1
        w.bookie.release()
        await w.world.sleep(0.01)
        assert w.bookie.add_calls == adds + 2
        assert (await w.reopen()).cursors["s"].mark_delete_position == positions[2]

    in_world(scenario)


def test_cursor_notes_its_last_use_at_close_and_with_its_properties(in_world):
    async def scenario(w):
        _ml, cursor, _ = await w.with_cursor(8)
        made_ms = (await node_of(w)).last_active_ms
        assert made_ms == w.runtime.clock.wall_ms() == cursor.use.last_active_ms
        await w.world.sleep(100)
        assert cursor.use.last_active_ms == made_ms
        cursor.start_use()
        await w.world.sleep(100)
        await cursor.set_cursor_properties({"a": "b"})
        assert (await node_of(w)).last_active_ms == cursor.noted_active_ms == made_ms + 200_000
        await w.world.sleep(100)
        cursor.end_use()
        await w.world.sleep(100)
        await w.factory.close()
        found = (await w.reopen()).cursors["s"]
        assert found.use.last_active_ms == found.noted_active_ms == made_ms + 300_000
        await w.world.sleep(100)
        await w.factory.close()
        assert (await w.reopen()).cursors["s"].use.last_active_ms == made_ms + 300_000, "nobody used it"

    in_world(scenario)


def test_cursor_whose_node_does_not_say_when_it_was_used_counts_from_now(in_world):
    async def scenario(w):
        await w.with_cursor(8)
        path = cursor_path(NAME, "s")
        record = decode_cursor_info((await w.store.get(path)).value)
        await w.store.put(path, encode_cursor_info(replace(record, last_active_ms=0)), expected_version=0)
        await w.world.sleep(100)
        assert (await w.reopen()).cursors["s"].use.last_active_ms == w.runtime.clock.wall_ms()

    in_world(scenario)


def test_cursor_node_rewritten_for_its_properties_loses_no_acknowledgment(in_world):
    async def scenario(w):
        ml, cursor, positions = await w.with_cursor(8)
        # In the node, and answered: two ranges.
        w.bookie.add_error = DiskFullError("full")
        assert await acknowledge(cursor, [positions[3], positions[5]]) is None
        w.bookie.add_error = None
        # A lower one that nobody waits for makes three, which the node does not take.
        cursor.acknowledge([positions[1]])
        await cursor.set_cursor_properties({"a": "b"})
        found = (await w.reopen()).cursors["s"]
        assert [found.state.is_acknowledged(p) for p in positions[:6]] == [False, True] * 3
        assert found.cursor_properties == {"a": "b"}
        assert ml.cursors["s"].store.ledger_id >= 0

    in_world(scenario, ManagedLedgerConfig(max_ranges_in_metadata=2))


def test_properties_that_no_node_takes_are_refused_and_acknowledgments_are_stored_after_them(in_world):
    async def scenario(w):
        _, cursor, positions = await w.with_cursor(8)
        await cursor.set_cursor_properties({"a": "b"})
        with pytest.raises(MetadataError, match="at most"):
            await cursor.set_cursor_properties({"a": "c" * METADATA_VALUE_BYTES_MAX})
        assert cursor.cursor_properties == {"a": "b"}
        assert await acknowledge(cursor, [positions[1], positions[3]]) is None
        await w.factory.close()
        found = (await w.reopen()).cursors["s"]
        assert [found.state.is_acknowledged(p) for p in positions[:4]] == [False, True] * 2
        assert found.cursor_properties == {"a": "b"}

    in_world(scenario)


def test_cursor_closed_and_opened_again_goes_on(in_world):
    async def scenario(w):
        ml, cursor, positions = await w.with_cursor(8)
        await acknowledge(cursor, [positions[1], positions[3], positions[5]])
        await cursor.close()
        again = await ml.open_cursor("s")
        assert again.backlog_count == 5
        assert await acknowledge(again, positions[:1]) is None
        await again.close()
        assert (await w.reopen()).cursors["s"].mark_delete_position == positions[1]

    in_world(scenario)
    in_world(scenario, NARROW)


def test_cursor_that_can_not_be_persisted_leaves_no_ledgers_behind(in_world):
    async def scenario(w):
        _ml, cursor, positions = await w.with_cursor(8)
        live = MetadataLiveLedgers(w.store)
        before = await live.live_ledger_ids()
        w.bookie.add_error = DiskFullError("full")
        # Two ranges: more than the node takes. It is tried again every second.
        assert isinstance(await acknowledge(cursor, [positions[2], positions[5]]), DiskFullError)
        await w.world.sleep(30)
        # At most the one being tried.
        assert len(await live.live_ledger_ids() - before) <= 1
        w.bookie.add_error = None
        await w.let_background_persist()
        assert len(await live.live_ledger_ids()) == len(before) + 1
        assert (await w.reopen()).cursors["s"].backlog_count == 6

    in_world(scenario, NARROW)


@pytest.mark.parametrize("is_shared", [False, True])
def test_batches_are_closed_in_the_ledger_where_apaches_brokers_may_come_next(in_world, is_shared):
    """They read none from a node."""

    async def scenario(w):
        w.new_process(is_shared=is_shared)
        ml, cursor, positions = await w.with_cursor(8)
        cursor.acknowledge(positions[2:3], [[0b110]])
        await ml.close()
        record = decode_cursor_info((await w.store.get(cursor_path(NAME, "s"))).value)
        assert (record.cursor_ledger_id >= 0) == is_shared
        assert bool(record.batches) != is_shared
        w.new_process(is_shared=is_shared)
        found = (await w.open()).cursors["s"]
        assert found.state.ack_set(positions[2]) == (0b110,)
        # Found in a node, as Apache's brokers leave them: in the ledger with the next close, acknowledged or not.
        if not is_shared:
            w.new_process(is_shared=True)
            ml = await w.open()
            await ml.close()
            record = decode_cursor_info((await w.store.get(cursor_path(NAME, "s"))).value)
            assert record.cursor_ledger_id >= 0

    in_world(scenario)


def test_acknowledgment_behind_a_close_that_had_no_answer_survives(in_world):
    async def scenario(w):
        ml, cursor, positions = await w.with_cursor(5)
        assert await acknowledge(cursor, positions[:1]) is None
        # The node takes the state, and then the store is away: whether it has it can not be asked.
        end = w.store.watch_node(cursor_path(NAME, "s"), lambda _: w.store.expire_session(1000))
        w.faults.next_writes.append(WriteFault.UNKNOWN_AFTER)
        await cursor.close()
        end()
        await w.world.sleep(2)
        assert await ml.open_cursor("s") is cursor
        assert await acknowledge(cursor, positions[1:2]) is None
        assert (await w.reopen()).cursors["s"].mark_delete_position == positions[1]

    in_world(scenario)


@pytest.mark.parametrize("steps", range(8, 13))
def test_acknowledgment_is_stored_though_who_wrote_the_node_was_called_off(in_world, steps):
    async def scenario(w):
        ml, cursor, positions = await w.with_cursor(8)
        w.faults.delay_ms_max = 20
        # Too much for the node, so that its properties are written along with a ledger.
        cursor.acknowledge(positions[1::2])
        cut = asyncio.ensure_future(cursor.set_cursor_properties({"a": "b"}))
        await w.world.sleep(steps * 0.005)
        cut.cancel()
        await asyncio.wait([cut])
        await cursor.flush()
        assert not ml.tenure.is_fenced
        cursor = (await w.reopen()).cursors["s"]
        assert [cursor.state.is_acknowledged(position) for position in positions] == [False, True] * 4

    in_world(scenario, NARROW)
