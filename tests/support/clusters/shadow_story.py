"""A topic and a shadow of it at two brokers whose topics a story gives and takes, with clients of both.

What was published to the source is received from the shadow, with the same ids and in order, by consumers that come and
go and acknowledge; and nothing else is. See :mod:`tests.simulation.test_shadow_brokers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from starlette.types import ASGIApp

import geminga.client as gc
from geminga import sim
from geminga.broker.composition.service import Broker
from geminga.broker.ownership.endpoints import Endpoints
from geminga.broker.ownership.ports import Ownership
from geminga.broker.peers.topics import PeerTopics
from geminga.broker.registry import new_shadows
from geminga.model.topic_name import SHADOW_SOURCE, TopicName
from geminga.runtime import spawn
from support.clusters.cluster_peers import SimPeerHttp
from support.clusters.two_brokers import CHANGES_S, SETTLED_S, Changes, Cluster, Traffic, Where
from support.worlds.client_world import CLIENT, insist
from support.worlds.rest_world import rest_application

NAMESPACE: Final = "public/default"
#: Two of the names that the changes move.
SOURCE: Final = "persistent://public/default/one"
SHADOW: Final = "persistent://public/default/two"
#: Nothing of the source goes because nobody reads it there.
KEPT: Final = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}

#: Of a message: ledger, entry, index in its batch.
Id = tuple[int, int, int]


class ShadowCluster(Cluster):
    """Two brokers that ask each other."""

    def __init__(self, world: sim.SimWorld) -> None:
        super().__init__(world, reads_events=True)
        self.applications: dict[str, ASGIApp] = {}

    def peers_of(self, node: sim.SimNode) -> Callable[[Ownership, Callable[[], Endpoints]], PeerTopics] | None:
        client = gc.connect(f"pulsar://{self.url}", runtime=node.runtime, **CLIENT)
        http = SimPeerHttp(node.runtime, self.world, self.applications)
        return partial(PeerTopics, http, lambda: client, lambda _: False)

    async def _boot(self, node: sim.SimNode) -> None:
        await super()._boot(node)
        self.applications[node.name] = rest_application(self.brokers[node.name], cluster_name="c")

    def crash(self, name: str) -> None:
        self.applications.pop(name, None)
        super().crash(name)

    async def make_shadow(self) -> None:
        """The source, kept for good; its shadow; and the word of the source."""
        source, shadow = TopicName.parse(SOURCE), TopicName.parse(SHADOW)

        async def at(owner: str, what: Callable[[Broker], Awaitable[object]]) -> None:
            await self.world.node(owner).run(lambda _: what(self.brokers[owner]))

        def named(document: dict[str, object]) -> dict[str, object]:
            return {**document, "shadowTopics": [SHADOW]}

        first = self.names[0]
        await at(first, lambda broker: broker.resources.namespaces.set_policy(NAMESPACE, "retention_policies", KEPT))
        await at(self._owner(source), lambda broker: broker.registry.get(source, create=True))
        await at(
            self._owner(shadow),
            lambda broker: new_shadows.create(
                broker.registry, broker.resources, broker.ledgers, shadow, {SHADOW_SOURCE: SOURCE}
            ),
        )
        await at(first, lambda broker: broker.policies.topics.update(source, named))

    def _owner(self, name: TopicName) -> str:
        owner = self.table.owner(name)
        assert owner is not None
        return owner


class Readers:
    """Consumers of the shadow, one after the other."""

    def __init__(self, cluster: ShadowCluster, source: Traffic, client: gc.Client) -> None:
        self.world = cluster.world
        self.source = source
        self.client = client
        self.rng = cluster.world.rng("readers")
        self.received: dict[Id, bytes] = {}
        self.acknowledged: set[Id] = set()
        self.in_doubt: set[Id] = set()

    @property
    def is_done(self) -> bool:
        sent = set(map(_id, self.source.receipts))
        return self.source.is_over and self.acknowledged | self.in_doubt >= sent

    async def consume(self) -> None:
        while not self.is_done:
            consumer = await insist(self.source.world, self._subscribe)
            self.source.is_subscribed.set()
            before, last = frozenset(self.acknowledged), (-1, -1, -1)
            for _ in range(self.rng.choice([5, 20, 60])):
                try:
                    message = await consumer.receive(1500)
                except gc.Timeout:
                    break
                found = message.message_id()
                place = (found.ledger_id(), found.entry_id(), found.batch_index())
                assert place not in before, f"{place} was acknowledged, with a response, and came again"
                assert place > last, f"{place} came behind {last}"
                assert self.received.setdefault(place, message.data()) == message.data()
                last = place
                await self._acknowledge(consumer, message, place)
            await consumer.close()

    def _subscribe(self) -> Awaitable[gc.Consumer[bytes]]:
        return self.client.subscribe(
            SHADOW, "sub", initial_position=gc.InitialPosition.Earliest, ack_receipt_enabled=True
        )

    async def _acknowledge(self, consumer: gc.Consumer[bytes], message: gc.Message[bytes], place: Id) -> None:
        try:
            await consumer.acknowledge(message)
        except gc.PulsarException:
            self.in_doubt.add(place)
        else:
            self.acknowledged.add(place)


async def shadow_brokers(world: sim.SimWorld) -> None:
    """One story; raises where a promise was broken."""
    cluster = ShadowCluster(world)
    await cluster.start()
    await cluster.make_shadow()
    found: list[Readers] = []

    async def clients(node: sim.SimNode) -> None:
        async with gc.connect(f"pulsar://{cluster.url}", runtime=node.runtime, **CLIENT) as client:
            source = Traffic(cluster, SOURCE, client)
            readers = Readers(cluster, source, client)
            found.append(readers)
            consuming = spawn(readers.consume(), name="read the shadow")
            await source.produce()
            source.is_over = True
            await consuming

    working = world.node("clients").run(clients)
    await Changes(cluster).run()
    assert world.now >= CHANGES_S
    try:
        async with asyncio.timeout(SETTLED_S):
            await working
    except TimeoutError as error:
        one = found[0]
        told = (one.source.sent, len(one.source.receipts), len(one.received), len(one.acknowledged))
        raise AssertionError(f"the shadow did not follow: (sent, receipts, received, acknowledged) {told}") from error
    readers = found[0]
    sent = {_id(place): payload for place, payload in readers.source.receipts.items()}
    stored = {_id(place): payload for place, payload in (await cluster.stored()).items() if place.topic == SOURCE}
    # What was stored twice, for its first receipt was lost, is there too.
    assert sent.items() <= readers.received.items() <= stored.items(), "the shadow shows something else"


def _id(place: Where) -> Id:
    return place.ledger_id, place.entry_id, place.batch_index
