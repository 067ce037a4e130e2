"""A bookie that is to get copies and does not take them is waited for once, not once for each ledger."""

from __future__ import annotations

import pytest

from geminga.model.errors import DiskIOError, UnknownEntryError
from geminga.replication import copier
from geminga.replication.worker import REFUSALS_MAX
from support.worlds.replication_world import ReplicationWorld, run_replication

LEDGERS = 40


async def restored(world: ReplicationWorld) -> float:
    """Seconds until all ledgers of a bookie that is lost have their copies elsewhere."""
    recovery = world.autorecovery("one")
    await recovery.start()
    world.lose("b0")
    began_s = world.world.now
    recovery.auditor.look()
    await world.world.sleep(1)
    while await world.marks.ledger_ids() and world.world.now < began_s + 3600:
        await world.world.sleep(1)
    await recovery.close()
    return world.world.now - began_s


async def written(world: ReplicationWorld) -> list[int]:
    """Ledgers of which the last bookie, which joins then, has nothing."""
    world.pool.unavailable.add("b5")
    ledgers = [await world.write(5, (2, 2, 2)) for _ in range(LEDGERS)]
    world.pool.unavailable.clear()
    return [one.ledger_id for one in ledgers]


def test_bookie_that_hangs_is_waited_for_once():
    async def main(world: ReplicationWorld) -> None:
        ledgers = await written(world)
        world.bookies["b5"].holds_replies = True
        assert await restored(world) < 2 * copier.ANSWER_S
        for ledger_id in ledgers:
            await world.check_copies(ledger_id)

    run_replication(main, bookies=6)


def test_bookie_that_refuses_copies_is_chosen_last_from_then_on():
    async def main(world: ReplicationWorld) -> None:
        ledgers = await written(world)
        world.bookies["b5"].add_error = DiskIOError("broken")
        await restored(world)
        assert world.bookies["b5"].add_calls == 1
        for ledger_id in ledgers:
            await world.check_copies(ledger_id)

    run_replication(main, bookies=6)


@pytest.mark.parametrize("how", ["takes nothing", "does not say what it has"])
def test_named_bookie_that_is_of_no_use_for_long_is_replaced(how):
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(20, (3, 2, 2))
        ledger_id = handle.ledger_id
        name = (await world.metadata(ledger_id)).fragments[0].ensemble[1]
        for entry_id in world.bookies[name].entry_ids(ledger_id)[3:9]:
            world.bookies[name].forget_entry(ledger_id, entry_id)
        # Registered all the same.
        if how == "takes nothing":
            world.bookies[name].add_error = DiskIOError("broken")
        else:
            world.bookies[name].read_error = UnknownEntryError("part of its journal was lost")
        await world.marks.mark(ledger_id, [name], None)
        recovery = world.autorecovery("one")
        await recovery.start()
        while recovery.counters.failed_attempts < REFUSALS_MAX:
            await world.world.sleep(0.01)
        # It may have been a moment of its own.
        assert name in (await world.metadata(ledger_id)).fragments[0].ensemble
        await world.world.sleep(60)
        await recovery.close()
        assert name not in (await world.metadata(ledger_id)).fragments[0].ensemble
        assert await world.marks.ledger_ids() == []
        await world.check_copies(ledger_id)

    run_replication(main, bookies=5)
