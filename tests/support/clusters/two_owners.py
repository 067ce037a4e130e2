"""Two brokers on one storage, one of which has all topics and coordinators; it may lose them unheard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from geminga.bookkeeper.memory import MemoryBookie
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.memory import MemoryMetadata
from support.worlds.broker_world import ENDPOINTS, BrokerWorld, run_with_broker
from support.worlds.ownership import OwnershipTable, TableOwnership


class TwoOwners:
    """Two brokers on one storage; the table says who has all of it."""

    def __init__(self, first: BrokerWorld) -> None:
        self.server, self.bookie = MemoryMetadata(), MemoryBookie()
        self.table = OwnershipTable(["a", "b"])
        self.worlds = {
            name: BrokerWorld(
                first.runtime,
                first.config,
                ManagedLedgerConfig(max_entries_per_ledger=2, min_rollover_minutes=0),
                server=self.server,
                bookie=self.bookie,
                is_shared=True,
                ownership=TableOwnership(self.table, name),
            )
            for name in ("a", "b")
        }
        for name, world in self.worlds.items():
            self.table.brokers[name] = world.ownership
            # Who lost a topic does not hear of it: what it does then is asked here.
            world.metadata.faults.watch_lost_percent = 100

    async def start(self) -> tuple[BrokerWorld, BrokerWorld]:
        await self.worlds["a"].start()
        await self.worlds["b"].broker.start(ENDPOINTS)
        return self.worlds["a"], self.worlds["b"]

    async def move(self, name: str) -> None:
        """All of it, in good order."""
        before, self.table.default = self.table.default, None
        await self.worlds[before].ownership.tell_taken(lambda _: True)
        self.table.default = name
        await self.worlds[name].ownership.tell_given(lambda _: True)


def run_two(scenario: Callable[[TwoOwners, BrokerWorld, BrokerWorld], Awaitable[None]]) -> None:
    """``scenario`` with both and with transactions; ``a`` has all."""

    async def main(first: BrokerWorld) -> None:
        two = TwoOwners(first)
        await scenario(two, *await two.start())

    run_with_broker(main, transaction_coordinator_enabled=True)
