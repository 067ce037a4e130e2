"""A bookie that leaves: finished when no ledger names it, not before."""

from __future__ import annotations

import pytest

from geminga.model.errors import CorruptionError, StorageError
from geminga.replication.core.fragments import bookies_of
from geminga.replication.decommission import decommission_bookie
from geminga.runtime import spawn
from geminga.wire.bookkeeper.ledger_path import ledger_path
from support.worlds.replication_world import ReplicationWorld, run_replication


def test_everything_of_a_bookie_moves():
    async def main(world: ReplicationWorld) -> None:
        ledgers = [await world.write(5, (3, 2, 2), close=n % 3 > 0) for n in range(9)]
        with pytest.raises(StorageError, match="stop it first"):
            await decommission_bookie("b1", world.bookkeeper, world.marks, world.registry)
        assert await world.marks.ledger_ids() == []
        world.lose("b1")
        named = [one for one in ledgers if "b1" in bookies_of(await world.metadata(one.ledger_id))]
        leaving = spawn(
            decommission_bookie("b1", world.bookkeeper, world.marks, world.registry), name="decommissioning"
        )
        # Without a worker nothing moves, and nobody is told that it did.
        await world.world.sleep(60)
        assert not leaving.done()
        assert len(await world.marks.ledger_ids()) == len(named)
        recovery = world.autorecovery("one")
        await recovery.start()
        await world.world.sleep(120)
        assert leaving.done()
        assert leaving.result() == len(named) > 0
        for one in ledgers:
            metadata = await world.metadata(one.ledger_id)
            assert "b1" not in bookies_of(metadata)
            assert metadata.is_closed or one not in named
            if metadata.is_closed:
                await world.check_copies(one.ledger_id)
        assert await decommission_bookie("b1", world.bookkeeper, world.marks, world.registry) == 0
        # It may be named by what can not be read.
        await world.store.put(ledger_path(ledgers[0].ledger_id), b"damaged", expected_version=None)
        with pytest.raises(CorruptionError):
            await decommission_bookie("b1", world.bookkeeper, world.marks, world.registry)
        await recovery.close()

    run_replication(main)


def test_nobody_waits_for_workers_that_are_switched_off():
    async def main(world: ReplicationWorld) -> None:
        await world.write(5, (5, 5, 3))
        world.lose("b1")

        async def refused() -> None:
            with pytest.raises(StorageError, match="auto-recovery is switched off in the cluster: 1 ledgers name"):
                await decommission_bookie("b1", world.bookkeeper, world.marks, world.registry)

        leaving = spawn(refused(), name="decommissioning")
        await world.world.sleep(1)
        assert not leaving.done()
        await world.marks.set_enabled(False)
        await world.world.sleep(10)
        assert leaving.done(), "it waits for ever"
        await world.marks.set_enabled(True)
        assert len(await world.marks.ledger_ids()) == 1

    run_replication(main)
