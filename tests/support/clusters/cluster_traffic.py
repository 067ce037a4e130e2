"""Producers and consumers of a simulated cluster, whose programs may die, and what they were promised."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import geminga.client as gc
from geminga.runtime import spawn
from geminga.sim import SimNode, SimWorld
from support.clusters.cluster_checks import Said, said
from support.clusters.cluster_world import TOPICS, ClusterWorld
from support.clusters.two_brokers import Where, where
from support.stories.lives import Life, last_life
from support.worlds.client_world import CLIENT, insist

CLIENTS: Final = ("client-0", "client-1")
KINDS: Final = (
    gc.ConsumerType.Exclusive,
    gc.ConsumerType.Failover,
    gc.ConsumerType.Shared,
    gc.ConsumerType.KeyShared,
)
KEYS: Final = 3
RECEIVE_MS: Final = 1500
#: Between two attempts of a client that was refused, seconds.
AGAIN_S: Final = 0.2
ACKNOWLEDGED_PERCENT: Final = 90


class Line:
    """One topic: what was published, received and acknowledged; it survives the programs."""

    def __init__(
        self, cluster: ClusterWorld, topic: str, changes_s: float, may_be_stale: Callable[[str], bool]
    ) -> None:
        """``may_be_stale``: a broker that is not to serve the topic any more, and can not know it, has it open."""
        self.world = cluster.world
        self._may_be_stale = may_be_stale
        self.topic = topic
        self.deduplicates = cluster.deduplicates
        self.changes_s = changes_s
        self.rng = cluster.world.rng("line", topic)
        self.kind: gc.ConsumerType = self.rng.choice(KINDS)
        self.producers = [f"{topic[-3:]}-{number}" for number in range(self.rng.choice((1, 1, 2)))]
        self.consumers = self.rng.choice((1, 2)) if self.kind in KINDS[2:] else 1
        self.batches = self.kind is not gc.ConsumerType.KeyShared and self.rng.random() < 0.5
        #: Messages that there is a receipt for, and where each is; None: it was there already.
        self.receipts: dict[Said, Where | None] = {}
        self._places: dict[Where, Said] = {}
        #: Acknowledged, with a response; and acknowledged at least, whatever became of that.
        self.acknowledged: set[Where] = set()
        self.consumed: set[Said] = set()
        #: Numbers given, by producer and life.
        self.sent: dict[tuple[str, int], int] = {}
        #: Producers that have sent all they wanted.
        self.finished: set[str] = set()
        self.lives: dict[str, int] = {}
        self.is_subscribed = asyncio.Event()
        #: What came to anybody.
        self._received: set[Where] = set()
        #: The last of each key, by where it came first; of Key_Shared.
        self._last: dict[tuple[str, str], Where] = {}

    @property
    def is_over(self) -> bool:
        """Everything was published and came."""
        return self.finished >= set(self.producers) and self.consumed >= self.receipts.keys()

    # ---- producers

    async def produce(self, client: gc.Client, name: str) -> None:
        await self.is_subscribed.wait()
        life = self.lives[name] = self.lives.get(name, -1) + 1
        options: gc.ProducerArguments = {"producer_name": name, "send_timeout_millis": 0}
        options |= {"batching_enabled": self.batches, "batching_max_publish_delay_ms": 5}
        producer = await insist(self.world, lambda: client.create_producer(self.topic, **options), AGAIN_S)
        while self.world.now < self.changes_s:
            await asyncio.gather(*(self._send(producer, name, life) for _ in range(self.rng.randrange(1, 5))))
            await self.world.sleep(self.rng.uniform(0, 0.4))
        await producer.close()
        self.finished.add(name)

    async def _send(self, producer: gc.Producer[bytes], name: str, life: int) -> None:
        number = self.sent.get((name, life), 0)
        self.sent[name, life] = number + 1
        told = Said(self.topic, name, life, number)
        key = f"{name}-{life}-{number % KEYS}"
        place = where(self.topic, await producer.send(told.encode(), partition_key=key))
        if place.ledger_id < 0:
            # Sent again after its receipt was lost, and recognised: where it is nobody knows any more.
            assert self.deduplicates, f"{told} has the receipt {place}"
            self.receipts[told] = None
            return
        self.receipts[told] = place
        known = self._places.setdefault(place, told)
        assert known == told, f"two receipts for {place}: {known} and {told}"

    # ---- consumers

    async def consume(self, client: gc.Client) -> None:
        """One consumer after the other."""
        while not self.is_over:
            before: frozenset[Where] = frozenset()

            async def subscribe() -> gc.Consumer[bytes]:
                nonlocal before
                # Before it is asked for: what is dispatched at once may be acknowledged elsewhere before that is known.
                before = frozenset(self.acknowledged)
                return await self._subscribe(client)

            consumer = await insist(self.world, subscribe, AGAIN_S)
            self.is_subscribed.set()
            try:
                await self._receive(consumer, before)
                await consumer.close()
            except gc.PulsarException as error:
                if not error.retriable:
                    raise

    async def _receive(self, consumer: gc.Consumer[bytes], before: frozenset[Where]) -> None:
        last: dict[str, Where] = {}
        for _ in range(self.rng.choice((5, 20, 60))):
            try:
                message = await consumer.receive(RECEIVE_MS)
            except gc.Timeout:
                return
            place = where(self.topic, message.message_id())
            told = said(message.data())
            assert told.topic == self.topic, f"{told} came from {self.topic}"
            if place in before:
                is_excused = self._may_be_stale(place.topic)
                assert is_excused, f"{place} was acknowledged, with a response, and came again"
                self.world.points.hits["cluster.acknowledged came from a former owner"] += 1
            if place not in self._received and self.kind in KINDS[:2]:
                # What an earlier consumer received may come again later: its acknowledgment was not stored.
                assert last.get(place.topic, place) <= place, f"{place} came after {last[place.topic]}"
                last[place.topic] = place
            self._check_key(message.partition_key(), place)
            self._received.add(place)
            if self.rng.random() * 100 < ACKNOWLEDGED_PERCENT:
                self.consumed.add(told)
                await self._acknowledge(consumer, message, place)

    def _check_key(self, key: str, place: Where) -> None:
        if self.kind is not gc.ConsumerType.KeyShared or place in self._received:
            return
        last = self._last.get((place.topic, key), place)
        assert last <= place, f"{place} of key {key} came after {last}"
        self._last[place.topic, key] = place

    async def _acknowledge(self, consumer: gc.Consumer[bytes], message: gc.Message[bytes], place: Where) -> None:
        try:
            await consumer.acknowledge(message)
        except gc.PulsarException as error:
            if not error.retriable:
                raise
            return
        self.acknowledged.add(place)

    def _subscribe(self, client: gc.Client) -> Awaitable[gc.Consumer[bytes]]:
        return client.subscribe(
            self.topic,
            "sub",
            consumer_type=self.kind,
            initial_position=gc.InitialPosition.Earliest,
            ack_receipt_enabled=True,
            receiver_queue_size=10,
        )


async def live_through_crashes(world: SimWorld, live: Life) -> None:
    """Each node of clients lives, again after each crash, until a life ends by itself."""

    await asyncio.gather(*(last_life(world.node(name), live, pause_s=AGAIN_S) for name in CLIENTS))


class Traffic:
    """All topics, on two nodes that may die."""

    def __init__(self, cluster: ClusterWorld, changes_s: float, may_be_stale: Callable[[str], bool]) -> None:
        self.cluster = cluster
        self.world = cluster.world
        rng = cluster.world.rng("traffic")
        self.lines = [Line(cluster, topic, changes_s, may_be_stale) for topic in TOPICS]
        #: Which node has which topic's producers, and its consumers.
        self.producing = {line.topic: rng.choice(CLIENTS) for line in self.lines}
        self.consuming = {line.topic: rng.choice(CLIENTS) for line in self.lines}

    async def run(self) -> None:
        """Until all is published and received."""
        await live_through_crashes(self.world, self._live)

    async def _live(self, node: SimNode) -> None:
        try:
            await self._work(node)
        except AssertionError as error:
            # At once: the others would go on until their patience ends.
            self.world.loop.fail(error)

    async def _work(self, node: SimNode) -> None:
        async with gc.connect(f"pulsar://{self.cluster.url}", runtime=node.runtime, **CLIENT) as client:
            tasks: list[asyncio.Task[None]] = []
            for line in self.lines:
                if self.producing[line.topic] == node.name:
                    names = [name for name in line.producers if name not in line.finished]
                    tasks += [spawn(line.produce(client, name), name=f"produce {name}") for name in names]
                if self.consuming[line.topic] == node.name:
                    loops = range(line.consumers)
                    tasks += [spawn(line.consume(client), name=f"consume {line.topic} {loop}") for loop in loops]
            await asyncio.gather(*tasks)

    def told(self) -> list[tuple[object, ...]]:
        """For who reads of a failure."""
        return [
            (one.topic, one.kind.name, one.finished, len(one.receipts), len(one.acknowledged), len(one.consumed))
            for one in self.lines
        ]
