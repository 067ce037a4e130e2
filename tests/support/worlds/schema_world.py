"""A schema registry over a bookie and metadata in memory, in virtual time; one process after another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from geminga import sim
from geminga.bookkeeper import BookKeeper, BookKeeperConfig, LocalBookiePool, MemoryBookie, MetadataLiveLedgers
from geminga.broker.schema.registry import SchemaRegistry
from geminga.broker.schema.store import SchemaQuorums, SchemaStore
from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore

T = TypeVar("T")
ID = "public/default/topic"


class SchemaWorld:
    """See the module."""

    def __init__(self, world: sim.SimWorld) -> None:
        self.world = world
        self.bookie = MemoryBookie()
        self.server = MemoryMetadata()
        self.faults = MetadataFaults()
        self.runtime = world.node("broker").runtime
        self.registry = self.new_process()

    def new_process(self) -> SchemaRegistry:
        """A registry that remembers nothing."""
        self.metadata = MemoryMetadataStore(self.runtime, self.server, self.faults)
        config = BookKeeperConfig(password="of the managed ledgers")
        bookkeeper = BookKeeper(self.runtime, self.metadata, LocalBookiePool({"b": self.bookie}), config)
        self.bookkeeper = bookkeeper
        self.store = SchemaStore(self.metadata, bookkeeper, SchemaQuorums(1, 1, 1))
        self.registry = SchemaRegistry(self.runtime.clock, self.runtime.threads, self.store)
        return self.registry

    async def live_ledgers(self) -> set[int]:
        """Ids of all ledgers there are."""
        return set(await MetadataLiveLedgers(self.metadata).live_ledger_ids() or ())


def run_with_schemas(scenario: Callable[[SchemaWorld], Awaitable[T]]) -> T:
    """Run ``scenario`` in virtual time."""

    async def main(world: sim.SimWorld) -> T:
        return await scenario(SchemaWorld(world))

    return sim.run(main)
