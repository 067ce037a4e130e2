"""Marks that end while others are made: what a ledger lacks is never forgotten with the end of another mark."""

from __future__ import annotations

import pytest

from geminga.model.errors import SessionExpiredError
from geminga.replication.marks import UnderReplicatedLedgers
from geminga.replication.worker import RepairOutcome
from support.worlds.replication_world import ReplicationWorld, run_replication


def test_a_mark_that_was_made_anew_at_the_same_version_is_made_once_more():
    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5)
        ledger_id = handle.ledger_id
        ensemble = (await world.metadata(ledger_id)).fragments[0].ensemble
        await world.marks.mark(ledger_id, [ensemble[0]], None)
        restore = world.worker._restore

        async def restore_and_be_slow(*args):
            outcome = await restore(*args)
            # The lock was lost: another worker ended the mark, a bookie went, an auditor marked anew.
            assert await world.marks.unmark(ledger_id, 0)
            world.lose(ensemble[1])
            await world.marks.mark(ledger_id, [ensemble[1]], None)
            return outcome

        world.worker._restore = restore_and_be_slow
        assert await world.step() is RepairOutcome.RESTORED
        stored = await world.marks.read(ledger_id)
        assert stored is not None
        assert stored.mark.replicas == (ensemble[1],)
        world.worker._restore = restore
        assert await world.step() is RepairOutcome.RESTORED
        await world.check_copies(ledger_id)

    run_replication(main)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_mark_that_was_made_anew_is_made_once_more_though_the_metadata_go_away_behind_its_end(is_told):
    """``is_told``: the worker hears that the mark is gone before it hears nothing more."""

    async def main(world: ReplicationWorld) -> None:
        handle = await world.write(5)
        ledger_id = handle.ledger_id
        ensemble = (await world.metadata(ledger_id)).fragments[0].ensemble
        await world.marks.mark(ledger_id, [ensemble[0]], None)
        restore, marks = world.worker._restore, world.worker._marks

        class EndingTheSession(UnderReplicatedLedgers):
            async def unmark(self, ledger_id: int, version: int) -> bool:
                assert await marks.unmark(ledger_id, version)
                world.store.expire_session(500)
                if not is_told:
                    raise SessionExpiredError("the metadata session is over")
                return True

        async def restore_and_be_slow(*args):
            outcome = await restore(*args)
            assert await marks.unmark(ledger_id, 0)
            world.lose(ensemble[1])
            await world.marks.mark(ledger_id, [ensemble[1]], None)
            return outcome

        world.worker._restore, world.worker._marks = restore_and_be_slow, EndingTheSession(world.store)
        assert await world.worker._step() > 0, "the metadata are away"
        world.worker._restore, world.worker._marks = restore, marks
        await world.world.sleep(1)
        assert await world.marks.ledger_ids() == []
        # Its lock could not be given back: the ledger is left alone for a while.
        await world.world.sleep(60)
        for _ in range(3):
            await world.worker._step()
        await world.check_copies(ledger_id)
        assert await world.marks.ledger_ids() == []

    run_replication(main)
