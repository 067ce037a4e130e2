"""Generated names of producers: never twice, also after a restart and when metadata fail once."""

from __future__ import annotations

import asyncio

from geminga.broker.handlers.producer_names import ProducerNames
from geminga.metadata.ports import Node
from geminga.model.errors import MetadataUnavailableError
from support.worlds.broker_world import BrokerWorld, run_with_broker


def test_names_of_all_runs_differ() -> None:
    async def scenario(world: BrokerWorld) -> None:
        runs = [ProducerNames(world.metadata, "c") for _ in range(3)]
        names = await asyncio.gather(*(run.next() for run in runs for _ in range(4)))
        assert len(set(names)) == 12
        assert all(name.startswith("c-") for name in names)

    run_with_broker(scenario)


class FailingOnce:
    """Metadata whose first write is refused."""

    def __init__(self, world: BrokerWorld) -> None:
        self._metadata = world.metadata
        self._has_failed = False

    async def put(self, path: str, value: bytes, **options: object) -> Node:
        if not self._has_failed:
            self._has_failed = True
            await self._metadata.get(path)  # takes a while
            raise MetadataUnavailableError("away")
        return await self._metadata.put(path, value, **options)


def test_who_waits_hears_of_a_failure_and_who_comes_next_tries_again() -> None:
    async def scenario(world: BrokerWorld) -> None:
        names = ProducerNames(FailingOnce(world), "c")
        both = await asyncio.gather(names.next(), names.next(), return_exceptions=True)
        assert [type(one) for one in both] == [MetadataUnavailableError] * 2
        assert (await names.next()).endswith("-0")
        assert (await names.next()).endswith("-1")

    run_with_broker(scenario)
