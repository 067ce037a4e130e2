"""What a failed end held is gone with its error: no cycle of traceback, frame and future waits for the collector."""

from __future__ import annotations

import asyncio

import pytest

from geminga.model.errors import GemingaError
from geminga.model.txn_id import TxnId
from geminga.runtime import next_turn
from support.house.uncollected import uncollected
from support.worlds.coordinator_world import CoordinatorWorld

MINUTE = 60_000


@pytest.mark.parametrize("call", ["end", "abort"])
def test_failed_call_of_a_coordinator_leaves_nothing(with_coordinator, call) -> None:
    async def scenario(world: CoordinatorWorld) -> None:
        coordinator = await world.open()
        txn_id = await coordinator.begin(MINUTE)
        await coordinator.add_partitions(txn_id, ["a"])

        async def fail() -> bool:
            try:
                if call == "end":
                    await coordinator.end(TxnId(3, 99), commit=True)
                else:
                    await coordinator.abort_within(TxnId(3, 99), 1)
            except GemingaError:
                return True
            return False

        assert await fail()
        with uncollected() as found:
            assert await asyncio.gather(*(fail() for _ in range(3))) == [True] * 3
            await next_turn()
        assert found == []

    with_coordinator(scenario)
