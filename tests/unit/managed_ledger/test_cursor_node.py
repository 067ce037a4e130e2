"""A cursor's metadata node."""

from __future__ import annotations

from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.cursor.cursor_node import NOTED_USE_MS, CursorNode
from geminga.managed_ledger.shared.metadata_io import cursor_path
from geminga.wire.managed_ledger import decode_cursor_info
from support.worlds.ledger_world import NAME

TWO_RANGES = ManagedLedgerConfig(max_entries_per_ledger=100, max_ranges_in_metadata=2)


async def a_node(w, count=20):
    _ml, cursor, positions = await w.with_cursor(count)
    await cursor.note_use()
    version = (await w.store.get(cursor_path(NAME, "s"))).stat.version
    return cursor, positions, CursorNode(cursor, NAME, w.factory._services, cursor._log.on_fenced, version=version)


async def stored(w):
    return decode_cursor_info((await w.store.get(cursor_path(NAME, "s"))).value)


def test_state_is_written_as_far_as_it_fits(in_world):
    async def scenario(w):
        cursor, positions, node = await a_node(w)
        cursor.state.acknowledge([positions[0], positions[3], positions[5]], None, cursor._log.ledgers)
        await node.write_state(node.state_record())
        record = await stored(w)
        assert (record.cursor_ledger_id, record.mark_delete, len(record.ranges)) == (-1, positions[0], 2)
        cursor.state.acknowledge([positions[7]], None, cursor._log.ledgers)
        assert node.state_record() is None

    in_world(scenario, TWO_RANGES)


def test_a_ledger_that_has_the_state_is_named_without_it(in_world):
    async def scenario(w):
        cursor, positions, node = await a_node(w)
        cursor.state.acknowledge([positions[0], positions[3]], None, cursor._log.ledgers)
        await node.write_ledger(77)
        record = await stored(w)
        assert (record.cursor_ledger_id, record.mark_delete, record.ranges) == (77, positions[0], ())

    in_world(scenario)


def test_use_is_due_when_the_node_is_a_minute_behind(in_world):
    async def scenario(w):
        cursor, _, node = await a_node(w)
        await node.write_ledger(77)
        assert not node.is_use_due
        cursor.use.begin()
        await w.world.sleep(NOTED_USE_MS / 1000 - 1)
        assert not node.is_use_due
        await w.world.sleep(1)
        assert node.is_use_due
        await node.write_ledger(77)
        assert not node.is_use_due

    in_world(scenario)
