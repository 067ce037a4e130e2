"""What a failed call held is gone with its error: no cycle of traceback, frame and future waits for the collector."""

from __future__ import annotations

import errno

import pytest

from geminga import sim
from geminga.model.bookie_port import Availability
from geminga.model.errors import StorageError
from geminga.runtime import answer_of, next_turn
from geminga.sim import SimNode, SimWorld
from support.clusters.bookie_node import BookieNode, run_bookie
from support.house.uncollected import uncollected
from unit.bookie.test_readmission import KEY, with_deleted
from unit.bookie.test_spread import opened


async def readmitting(case: BookieNode) -> None:
    with pytest.raises(StorageError):
        await answer_of(lambda done: case.bookie.readmit(2, master_key=KEY, done=lambda error: done(error or 0)))


@pytest.mark.parametrize("how", ["not listed", "journal"])
def test_ledger_that_is_not_taken_again_leaves_nothing(how) -> None:
    async def main(case: BookieNode) -> None:
        await with_deleted(case)
        case.ledgers.live = {1, 3} if how == "not listed" else {1, 2, 3, 5, 6}
        if how == "journal":
            case.disk.inject("write", "*journal*", error=errno.EIO)
        with uncollected() as found:
            for _ in range(3):
                await readmitting(case)
            await next_turn()
        assert found == []
        kept = case.bookie.journal._error
        assert kept is None or kept.__traceback__ is None, "it holds the frames of all who were told"
        assert (kept is None) == (how == "not listed")
        case.disk.clear_faults()

    run_bookie(main)


def test_parts_that_can_not_be_closed_leave_nothing() -> None:
    async def main(world: SimWorld) -> None:
        node = world.node("bookie")
        bookie = await node.run(opened)

        def refuse(_: Availability) -> None:
            raise StorageError("not now")

        for part in bookie.parts:
            part.watch(refuse)

        async def closed(_: SimNode) -> None:
            with pytest.raises(StorageError):
                await bookie.close()

        with uncollected() as found:
            await node.run(closed)
        assert found == []

    sim.run(main)
