"""Clusters whose configuration is kept alike by events, each with a store in memory and a topic that is a list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.policies.rules import Levels, TopicRules, broker_levels
from geminga.broker.resources import Resources
from geminga.broker.synchronization.core.events import SyncEvent, fields_of, properties_of
from geminga.broker.synchronization.guard import StoredTopics
from geminga.broker.synchronization.ports import Received
from geminga.broker.synchronization.stored_records import StoredRecords
from geminga.broker.synchronization.synchronizer import Synchronizer
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import PreconditionFailedError, UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn

NAME = TopicName.parse("persistent://public/default/configuration")
#: Virtual seconds after which everybody has heard everything.
REST_S = 5.0


class MemoryEventTopic:
    """:class:`geminga.broker.synchronization.ports.EventTopic` of one cluster, copied to the others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: list[tuple[dict[str, Any], dict[str, str]]] = []
        #: How far it is acknowledged.
        self.acknowledged = 0
        #: How far it is received.
        self.received = 0
        self.others: list[MemoryEventTopic] = []
        #: Whether it is away, with all that is to be copied to it and from it.
        self.is_cut = False
        self.is_away = False
        self.is_subscribed = False
        #: Whether nothing that is published is answered, until somebody answers (:meth:`speak`).
        self.is_silent = False
        #: Whether what was stored is not answered.
        self.loses_receipts = False
        #: Largest value that is taken.
        self.bytes_max = 1 << 30
        self.uncopied: list[tuple[dict[str, Any], dict[str, str], tuple[str, ...]]] = []
        self._news = asyncio.Event()
        self._speaks = asyncio.Event()

    def speak(self) -> None:
        """It is silent no more."""
        self.is_silent = False
        self._speaks.set()

    def add(self, fields: dict[str, Any], properties: dict[str, str] | None = None) -> None:
        if not self.is_subscribed:
            return  # kept for nobody
        self.log.append((fields, properties or {}))
        self._news.set()

    async def listen(self) -> None:
        await next_turn()
        if self.is_away:
            raise UnavailableError(f"{NAME} can not be read now: nobody serves it")
        self.is_subscribed = True

    async def publish(self, event: SyncEvent, clusters: Sequence[str] = ()) -> None:
        await next_turn()
        while self.is_silent:
            await self._speaks.wait()
        if self.is_away:
            raise UnavailableError(f"{NAME} can not be written now: nobody serves it")
        if len(event.value or b"") > self.bytes_max:
            raise PreconditionFailedError(f"{NAME} takes none so large")
        self.add(fields_of(event), properties_of(event, self.name))
        self.uncopied.append((*self.log[-1], tuple(clusters)))
        self.copy()
        if self.loses_receipts:
            raise UnavailableError(f"{NAME} can not be written now: no answer in time")

    def copy(self) -> None:
        if self.is_cut:
            return
        waiting, self.uncopied = self.uncopied, []
        for fields, properties, clusters in waiting:
            for other in self.others:
                if not clusters or other.name in clusters:
                    other.add(fields, properties)

    async def receive(self) -> Received:
        await self.listen()
        while self.is_away or self.received >= len(self.log):
            if self.is_away:
                raise UnavailableError(f"{NAME} can not be read now: nobody serves it")
            self._news.clear()
            await self._news.wait()
        fields, properties = self.log[self.received]
        self.received += 1
        problem = str(fields.get("problem", ""))
        return Received({} if problem else fields, properties, problem, self.received)

    async def acknowledge(self, received: Received) -> None:
        await next_turn()
        assert isinstance(received.handle, int)
        self.acknowledged = received.handle

    async def close(self) -> None:
        self.received = self.acknowledged


def rules_of(resources: Resources, **config: Any) -> Callable[[TopicName], Awaitable[TopicRules]]:
    """By what a topic goes whose namespace these resources have, at a broker with such settings."""

    async def rules(name: TopicName) -> TopicRules:
        policies = await resources.namespaces.find(name.namespace)
        settings = {**broker_levels(ManagedLedgerConfig()), **broker_levels(BrokerConfig(**config))}
        return Levels(settings, namespace={} if policies is None else policies.document).rules()

    return rules


class Place:
    """One cluster."""

    def __init__(self, name: str, node: sim.SimNode) -> None:
        self.name = name
        self.node = node
        self.shared = MemoryMetadata()
        self.metadata = MemoryMetadataStore(node.runtime, self.shared)
        self.resources = Resources(self.metadata)
        self.topic = MemoryEventTopic(name)
        self.leads = True
        #: Partitions that were asked for.
        self.made: list[tuple[str, int]] = []
        self.refusal: Exception | None = None
        self.synchronizer = self._new()

    def _new(self) -> Synchronizer:
        guard = StoredTopics(
            self.metadata, self.resources, self.name, NAME, self._make_partitions, rules_of(self.resources)
        )
        return Synchronizer(
            self.node.runtime, self.metadata, self.topic, guard, cluster=self.name, leads=lambda: self.leads
        )

    async def _make_partitions(self, name: TopicName, count: int) -> None:
        self.made.append((str(name), count))
        if self.refusal is not None:
            raise self.refusal

    def start(self) -> None:
        self.synchronizer.start()

    async def restart(self) -> None:
        """Another broker leads."""
        await self.synchronizer.close()
        self.synchronizer = self._new()
        self.synchronizer.start()

    async def set(self, path: str, **document: Any) -> None:
        await self.metadata.put(path, json.dumps(document).encode(), expected_version=None)

    async def get(self, path: str) -> Any:
        node = await self.metadata.get(path)
        return json.loads(node.value) if node is not None and node.value else None

    async def delete(self, path: str) -> None:
        await self.metadata.delete(path)

    async def record(self, path: str) -> Any:
        return (await StoredRecords(self.metadata).read(path)).record

    def count(self, what: str) -> float:
        return self.synchronizer.metrics()[f"geminga_configuration_sync_{what}_total"]


class Alike:
    """Some clusters, started."""

    def __init__(self, world: sim.SimWorld, places: dict[str, Place]) -> None:
        self.world = world
        self.places = places

    def __getitem__(self, name: str) -> Place:
        return self.places[name]

    async def rest(self, seconds: float = REST_S) -> None:
        await self.world.sleep(seconds)

    async def told(self, place: Place, path: str, **document: Any) -> None:
        """Set it in one cluster, and let all have their time."""
        await place.set(path, **document)
        await self.rest()

    async def settled(self, path: str) -> list[Any]:
        """What is everywhere once all has had its time."""
        await self.rest()
        return await self.everywhere(path)

    async def everywhere(self, path: str) -> list[Any]:
        return [await place.get(path) for place in self.places.values()]


def run_alike(
    story: Callable[[Alike], Awaitable[None]],
    *names: str,
    before: Callable[[Alike], Awaitable[None]] | None = None,
    seed: int = 0,
) -> None:
    """Run ``story`` with a synchronizer in each cluster; ``before``: what is there when they start."""

    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            places = {name: Place(name, node) for name in names or ("east", "west")}
            for place in places.values():
                place.topic.others = [other.topic for other in places.values() if other is not place]
            alike = Alike(world, places)
            if before is not None:
                await before(alike)
            # What comes from here on is no longer what was there before.
            for place in places.values():
                place.start()
            await alike.rest()
            await story(alike)
            for place in places.values():
                await place.synchronizer.close()

        await world.node("all").run(on_node)

    sim.run(main, seed=seed)


def run_two_alike(
    story: Callable[[Alike, Place, Place], Awaitable[None]], *, before: Callable[[Alike], Awaitable[None]] | None = None
) -> None:
    """As :func:`run_alike`, with two clusters, east and west, which ``story`` gets."""
    run_alike(lambda alike: story(alike, alike["east"], alike["west"]), before=before)
