"""A seeded life of a topic with delayed messages: published, indexed, saved, delivered, cut off by crashes.

``DelayedStory`` keeps, outside of the node, what was published and when each message asked to come. In every life each
Shared subscription gets a message at most once unless it was redelivered to a new consumer, never earlier than the tick
allows, and never one whose acknowledgment was answered; in the last life everything else comes.
"""

from __future__ import annotations

import asyncio

from geminga.bookie import LocalBookie
from geminga.bookkeeper import BookKeeper, LocalBookiePool, MetadataLiveLedgers
from geminga.broker.composition.service import Broker
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.core.delayed import crash_points
from geminga.broker.core.delayed.delivery import TopicDelays
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.managed_ledger import ManagedLedgerConfig, ManagedLedgerFactory
from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import GemingaError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.sim import SimNode, SimWorld
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import split_entry
from support.stories.lives import crashed_life, last_life
from support.worlds.bookies import FLUSHED_OFTEN
from support.worlds.broker_world import ENDPOINTS, TOPIC, Client

LIVES = 4
ROUNDS = 6
SUBSCRIPTIONS = ("a", "b")
TICK_MS = 1000
#: Longer than any delay here.
LONGEST_MS = 40_000
Type = pb.BaseCommand


class DelayedStory:
    """See the module."""

    def __init__(self, world: SimWorld, *, is_strict: bool | None = None, index_first: bool = False) -> None:
        """``index_first``: a planted fault, entries are indexed, and saved, before they were read."""
        self.world = world
        self.rng = world.rng("delayed story")
        self.node = world.node("broker")
        self.server = MemoryMetadata()
        self.faults = MetadataFaults()
        self.is_strict = self.rng.random() < 0.3 if is_strict is None else is_strict
        self.index_first = index_first
        self.sequence_id = 0
        #: Published and answered: text -> when it asked to come, ms.
        self.times: dict[str, int] = {}
        #: Subscription -> texts whose acknowledgment was answered.
        self.acked: dict[str, set[str]] = {name: set() for name in SUBSCRIPTIONS}
        #: The same, and those where a crash came before the answer: they may come again, or not.
        self.maybe_acked: dict[str, set[str]] = {name: set() for name in SUBSCRIPTIONS}
        #: Most entries that any life found in a snapshot.
        self.loaded = 0

    async def open(self, node: SimNode) -> None:
        store = MemoryMetadataStore(node.runtime, self.server, self.faults)
        self.bookie = await LocalBookie.open(node.runtime, "/data", FLUSHED_OFTEN, ledgers=MetadataLiveLedgers(store))
        bookkeeper = BookKeeper(node.runtime, store, LocalBookiePool({"b": self.bookie}))
        ledger_config = ManagedLedgerConfig(max_entries_per_ledger=7, min_rollover_minutes=0)
        self.ledgers = ManagedLedgerFactory(node.runtime, store, bookkeeper, ledger_config)
        config = BrokerConfig(
            # Its clients answer no PING.
            keep_alive_interval_s=1_000_000,
            delayed_delivery_min_index_count_per_bucket=4,
            delayed_delivery_tick_time_ms=TICK_MS,
            is_delayed_delivery_deliver_at_time_strict=self.is_strict,
        )
        resources = Resources(store)
        await initialize_cluster(resources, ClusterSetup("standalone", {"brokerServiceUrl": "pulsar://broker:6650"}))
        self.broker = Broker(node.runtime, store, self.ledgers, config, resources, version="test")
        await self.broker.start(ENDPOINTS)

    async def live(self, node: SimNode, *, is_last: bool) -> None:
        await self.open(node)
        topic = await self.broker.registry.get(TopicName.parse(TOPIC), create=True)
        self.loaded = max(self.loaded, len(topic.delays()))
        if self.index_first:
            topic.delays().__class__ = EagerDelays
        consumers = [await self.consumer(name) for name in SUBSCRIPTIONS]
        if is_last:
            await self.world.sleep(3)
            for consumer in consumers:
                consumer.check()
                consumer.check_late()
            await self.world.sleep(LONGEST_MS / 1000)
        else:
            producer = Client(self.broker, 50_000)
            await producer.connect()
            await producer.create_producer(producer_name=f"p{self.sequence_id}")
            for _ in range(ROUNDS):
                await self.publish(producer, self.rng.randint(1, 9))
                await self.world.sleep(self.rng.choice((0, 0.3, 2.5)))
                for consumer in consumers:
                    await consumer.acknowledge_some(self.rng.choice((0.0, 0.5, 1.0)))
        for consumer in consumers:
            consumer.check()
            if is_last:
                missing = set(self.times) - set(consumer.got) - self.maybe_acked[consumer.name]
                assert not missing, f"{consumer.name} never got {sorted(missing)}"
        await self.broker.close()
        await self.ledgers.close()
        await self.bookie.close()

    async def consumer(self, name: str) -> Consumer:
        client = Client(self.broker, 40_000 + SUBSCRIPTIONS.index(name))
        await client.connect()
        await client.subscribe(subscription=name, subType=pb.CommandSubscribe.Shared)
        return Consumer(self, name, client)

    async def publish(self, producer: Client, count: int) -> None:
        now = self.node.runtime.clock.wall_ms()
        sent = {}
        for _ in range(count):
            self.sequence_id += 1
            text = f"m{self.sequence_id}"
            delay = self.rng.choice((0, 0, 700, 4000, 15_000, LONGEST_MS - 1000))
            if delay:
                delay += self.rng.randint(0, 900)
            metadata = {"deliver_at_time": now + delay} if delay else {}
            sent[self.sequence_id] = (text, now + delay)
            producer.send_message(self.sequence_id, text.encode(), metadata=metadata)
        for _ in range(count):
            receipt = await producer.receipt()
            text, time = sent[receipt.sequence_id]
            self.times[text] = time

    def plan(self) -> None:
        """Decide where this life ends, and what goes wrong before."""
        self.faults = MetadataFaults(delay_ms_max=self.rng.choice((0, 3)))
        if self.rng.random() < 0.7:
            label = self.rng.choice(crash_points.ALL)
            self.world.crash_at(label, self.rng.choice((1, 1, 2)), node=self.node)
        else:
            self.world.crash_at_disk_step(self.node, self.rng.randint(20, 400))

    async def run(self) -> None:
        """Some lives that end in a crash, then one without faults that must deliver everything."""
        for _ in range(LIVES - 1):
            self.plan()
            await crashed_life(self.node, lambda node: self.live(node, is_last=False), self.rng)
        self.node.disk.on_step = None
        self.faults = MetadataFaults()
        await last_life(self.node, lambda node: self.live(node, is_last=True))


class Consumer:
    """What one subscription's consumer was sent in this life."""

    def __init__(self, story: DelayedStory, name: str, client: Client) -> None:
        self.story = story
        self.name = name
        self.client = client
        self.got: dict[str, pb.MessageIdData] = {}
        self._unacked: list[str] = []

    def check(self) -> None:
        """Take what came; nothing twice, nothing acknowledged before, nothing early."""
        clock = self.story.node.runtime.clock
        while self.client.received:
            command, payload = self.client.received.popleft()
            if command.type != Type.MESSAGE:
                continue
            metadata, offset = split_entry(payload)
            text = payload[offset:].decode()
            assert text not in self.got, f"{self.name} got {text} twice"
            assert text not in self.story.acked[self.name], f"{self.name} got {text}, which it had acknowledged"
            early_ms = 0 if self.story.is_strict else TICK_MS
            assert metadata.deliver_at_time - early_ms <= clock.wall_ms(), f"{text} came early"
            self.got[text] = command.message.message_id
            self._unacked.append(text)

    def check_late(self) -> None:
        """What was due some time ago has come."""
        due = self.story.node.runtime.clock.wall_ms() - 2 * TICK_MS
        came = self.got.keys() | self.story.maybe_acked[self.name]
        late = sorted(text for text, time in self.story.times.items() if time <= due and text not in came)
        assert not late, f"{self.name} waits for {late}"

    async def acknowledge_some(self, share: float) -> None:
        """Acknowledge a part of what came, and wait for the answer."""
        self.check()
        texts, self._unacked = self._unacked, []
        chosen = [text for text in texts if self.story.rng.random() < share]
        self._unacked = [text for text in texts if text not in chosen]
        if not chosen:
            return
        self.story.maybe_acked[self.name].update(chosen)
        ack = pb.CommandAck(
            consumer_id=1,
            ack_type=pb.CommandAck.Individual,
            message_id=[self.got[text] for text in chosen],
            request_id=self.client.next_request_id(),
        )
        self.client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
        async with asyncio.timeout(30):
            while not any(command.type == Type.ACK_RESPONSE for command, _ in self.client.received):
                await self.story.world.sleep(0.01)
        for command, payload in list(self.client.received):
            if command.type == Type.ACK_RESPONSE:
                assert not command.ackResponse.HasField("error"), str(command)
                self.client.received.remove((command, payload))
        self.story.acked[self.name].update(chosen)


class EagerDelays(TopicDelays):
    """The planted fault: an entry is indexed together with the one behind it, which nobody has read."""

    __slots__ = ()

    def add(self, position: Position, deliver_at: int) -> None:
        super().add(position, deliver_at)
        super().add(Position(position.ledger_id, position.entry_id + 1), deliver_at)


async def delayed_story(world: SimWorld) -> None:
    """The scenario with the sound index."""
    story = DelayedStory(world)
    try:
        await story.run()
    except GemingaError as error:
        raise AssertionError(f"no error is expected here: {error}") from error
