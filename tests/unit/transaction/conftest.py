"""Runs a test of a coordinator in virtual time, on a log in memory and on one in a managed ledger."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.transaction.logs import LedgerRecordLog, MemoryRecordLog
from support.worlds.coordinator_world import CoordinatorWorld
from support.worlds.ledger_world import LedgerWorld


@pytest.fixture(params=["memory", "ledger"])
def with_coordinator(request: pytest.FixtureRequest):
    """``with_coordinator(scenario, config)`` runs ``scenario(CoordinatorWorld)``."""

    def run(scenario, config=None):
        async def main(world: sim.SimWorld) -> None:
            if request.param == "memory":
                memory = MemoryRecordLog()

                async def open_log() -> MemoryRecordLog:
                    return memory

                await scenario(CoordinatorWorld(world, open_log, config))
                return
            ledgers = LedgerWorld(world)

            async def open_ledger_log() -> LedgerRecordLog:
                ledgers.new_process()
                ledger = await ledgers.open("pulsar/system/persistent/__transaction_log_3", retention_ms=0)
                return await LedgerRecordLog.open(ledger, "transaction.subscription", coordinators)

            coordinators = CoordinatorWorld(world, open_ledger_log, config)
            await scenario(coordinators)

        sim.run(main)

    return run
