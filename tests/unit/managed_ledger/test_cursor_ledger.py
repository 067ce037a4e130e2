"""When a cursor's ledger is left for the next."""

from __future__ import annotations

from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.errors import DiskIOError
from geminga.model.position import EARLIEST
from support.worlds.ledger_world import acknowledge

SMALL = ManagedLedgerConfig(max_entries_per_ledger=100, cursor_max_entries_per_ledger=3, cursor_rollover_seconds=60)


async def filled(w):
    ml, positions = await w.filled(20)
    return await ml.open_cursor("s", initial=EARLIEST), positions


def test_ledger_is_full_by_entries_and_by_age(in_world):
    async def scenario(w):
        cursor, positions = await filled(w)
        seen = []
        for position in positions[:8]:
            await acknowledge(cursor, [position])
            seen.append(cursor.store.ledger_id)
        assert [seen.count(ledger_id) for ledger_id in dict.fromkeys(seen)] == [3, 3, 2]
        await w.world.sleep(61)
        await acknowledge(cursor, positions[8:9])
        assert cursor.store.ledger_id not in seen

    in_world(scenario, SMALL)


def test_ledger_that_failed_is_not_written_on(in_world):
    async def scenario(w):
        cursor, positions = await filled(w)
        await acknowledge(cursor, positions[:1])
        first = cursor.store.ledger_id
        w.bookie.add_error = DiskIOError("lost")
        await acknowledge(cursor, positions[1:2])
        w.bookie.add_error = None
        await acknowledge(cursor, positions[2:3])
        assert cursor.store.ledger_id not in (-1, first)
        assert (await w.reopen()).cursors["s"].mark_delete_position == positions[2]

    in_world(scenario, SMALL)
