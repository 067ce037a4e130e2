"""Two brokers on one metadata store and one set of bookies, whose topics a story gives and takes, and their clients.

Producers and consumers are our own, on a node of theirs, and follow by lookups and redirections. What they were
promised is kept here and compared with what is stored: see :mod:`tests.simulation.test_two_brokers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Self

import geminga.client as gc
from geminga import sim
from geminga.bookkeeper import BookKeeper, BookKeeperConfig
from geminga.bookkeeper.local_pool import LocalBookiePool
from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.composition.service import Broker
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.ownership.endpoints import Endpoints
from geminga.broker.ownership.ports import Elsewhere, Ownership
from geminga.broker.peers.client_tables import ClientTables
from geminga.broker.peers.topics import PeerTopics
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.managed_ledger import ManagedLedgerConfig, ManagedLedgerFactory
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import GemingaError
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn
from geminga.sim import NodeCrashedError
from support.worlds.client_world import CLIENT, PORT, _messages_of, insist
from support.worlds.ownership import OwnershipTable, TableOwnership, endpoints_of

BROKERS: Final = ("a", "b")
PLAIN: Final = tuple(f"persistent://public/default/{name}" for name in ("one", "two"))
PARTITIONED: Final = "persistent://public/default/whole"
PARTITIONS: Final = 2
TOPICS: Final = (*PLAIN, PARTITIONED)
#: What is given and taken.
NAMES: Final = tuple(
    TopicName.parse(text) for text in (*PLAIN, *(f"{PARTITIONED}-partition-{index}" for index in range(PARTITIONS)))
)
LEDGERS: Final = ManagedLedgerConfig(
    ensemble_size=3, write_quorum=2, ack_quorum=2, max_entries_per_ledger=12, min_rollover_minutes=0
)
#: Seconds that the owners change hands, and in which everything must be well afterwards.
CHANGES_S: Final = 12.0
SETTLED_S: Final = 60.0
#: A Failover subscription begins to dispatch a second after its consumer came.
RECEIVE_MS: Final = 1500


class Where(NamedTuple):
    """A message's id without what clients add."""

    topic: str
    ledger_id: int
    entry_id: int
    batch_index: int


def where(topic: str, message_id: gc.MessageId) -> Where:
    partition = message_id.partition()
    name = f"{topic}-partition-{partition}" if topic == PARTITIONED else topic
    return Where(name, message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())


async def stored_at(broker: Broker, name: TopicName) -> dict[Where, bytes]:
    """Every message of a topic, in order, as this broker reads it."""
    ledger = (await broker.registry.get(name, create=True)).ledger
    found: dict[Where, bytes] = {}
    position = ledger.ledgers.first_position
    while entries := await ledger.reader.read_range(position, 1000, 1 << 30):
        for entry in entries:
            for one in _messages_of(entry.data, entry.ledger_id, entry.entry_id, {}):
                found[Where(str(name), one.ledger_id, one.entry_id, one.batch_index)] = one.payload
        position = ledger.ledgers.next_position(Position(entries[-1].ledger_id, entries[-1].entry_id))
    return found


class Cluster:
    """The brokers and what is below them."""

    def __init__(self, world: sim.SimWorld, *, reads_events: bool = False, names: Sequence[str] = BROKERS) -> None:
        """``reads_events``: brokers read policies of topics at each other."""
        self.world = world
        self.names = names
        self.url = ",".join(f"{name}:{PORT}" for name in names)
        self.reads_events = reads_events
        self.rng = world.rng("cluster")
        self.server = MemoryMetadata()
        self.bookies = {f"bookie-{number}": MemoryBookie() for number in range(3)}
        self.table = OwnershipTable(BROKERS)
        self.table.run_at = self._run_at
        self.brokers: dict[str, Broker] = {}
        self.stores: dict[str, MemoryMetadataStore] = {}
        #: Topics whose owner is not what the table says, for it was not told or is about to go.
        self.unsettled: set[str] = set()

    async def start(self) -> Self:
        for name in self.names:
            await self.boot(name)
        await self.world.node("a").run(self._set_up)
        for name in NAMES:
            self.table.owners[str(name)] = self.rng.choice(BROKERS)
        return self

    async def _set_up(self, _: sim.SimNode) -> None:
        broker = self.brokers["a"]
        await initialize_cluster(broker.resources, ClusterSetup("c", {"serviceUrl": "http://a:8080"}))
        await broker.partitions.create(TopicName.parse(PARTITIONED), PARTITIONS)

    async def boot(self, name: str) -> None:
        """A broker without memory of a life before."""
        node = self.world.node(name)
        node.start()
        await node.run(self._boot)

    def ownership_of(self, node: sim.SimNode, metadata: MemoryMetadataStore) -> Ownership:
        """What the broker that begins there knows of owners."""
        view = self.table.brokers[node.name] = TableOwnership(self.table, node.name)
        return view

    def begin_ownership(self, broker: Broker) -> None:
        """Before it serves."""

    def peers_of(self, node: sim.SimNode) -> Callable[[Ownership, Callable[[], Endpoints]], PeerTopics] | None:
        """What asks the other broker; None: it is not asked."""
        del node
        return None

    async def _boot(self, node: sim.SimNode) -> None:
        runtime = node.runtime
        metadata = self.stores[node.name] = MemoryMetadataStore(runtime, self.server)
        metadata.faults.delay_ms_max = 20
        bookkeeper = BookKeeper(runtime, metadata, LocalBookiePool(self.bookies), BookKeeperConfig())
        ledgers = ManagedLedgerFactory(runtime, metadata, bookkeeper, LEDGERS, is_shared=True)
        reader = None
        if self.reads_events:
            client = gc.connect(f"pulsar://{self.url}", runtime=runtime, **CLIENT)
            reader = ClientTables(lambda: client)
        broker = Broker(
            runtime,
            metadata,
            ledgers,
            BrokerConfig(cluster_name="c"),
            Resources(metadata),
            version="test",
            ownership=self.ownership_of(node, metadata),
            tables_elsewhere=reader,
            peers=self.peers_of(node),
        )
        self.begin_ownership(broker)
        await broker.start(endpoints_of(node.name))
        self.brokers[node.name] = broker
        await runtime.network.listen(broker.new_connection, "0.0.0.0", PORT)

    def crash(self, name: str) -> None:
        self.world.crash(self.world.node(name))
        del self.brokers[name]
        store = self.stores.pop(name)
        self.server.detach(store)
        self.server.end_session(store.session, 0)

    async def _run_at(self, name: str, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        node = self.world.node(name)
        if node.is_up:
            try:
                await node.run(lambda _: what())
            except NodeCrashedError:
                return

    def check_owners(self) -> None:
        """Nobody but its owner has a topic open, but for owners that nobody told yet."""
        for name in NAMES:
            if str(name) in self.unsettled:
                continue
            owner = self.table.owner(name)
            holders = [
                broker
                for broker, one in self.brokers.items()
                if (topic := one.topics.get(str(name))) is not None and not topic.is_closing
            ]
            assert set(holders) <= {owner}, f"{name} of {owner} is open at {holders}"

    async def stored(self) -> dict[Where, bytes]:
        """Every message of every topic, read by its owner."""
        found: dict[Where, bytes] = {}
        for name in NAMES:
            owner = self.table.owner(name)
            assert owner is not None
            found |= await self.world.node(owner).run(lambda _, owner=owner, name=name: self._stored(owner, name))
        return found

    async def _stored(self, owner: str, name: TopicName) -> dict[Where, bytes]:
        return await stored_at(self.brokers[owner], name)


class Changes:
    """Owners change, in good order and not; brokers stall and crash; beliefs go stale."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.table = cluster.table
        self.rng = cluster.world.rng("changes")
        self.kinds: list[tuple[str, Callable[[list[TopicName], str], Awaitable[None]]]] = [
            ("given", self.give),
            ("given", self.give),
            ("given", self.give),
            ("nobody", self.leave_to_nobody),
            ("seized", self.seize),
            ("stalled", self.stall),
            ("crashed", self.crash),
            ("asking", self.ask),
            ("misled", self.mislead),
            ("unloaded", self.unload),
        ]

    async def run(self) -> None:
        while self.world.now < CHANGES_S:
            await self.world.sleep(self.rng.uniform(0, 1.2))
            label, change = self.rng.choice(self.kinds)
            names = self.rng.sample(NAMES, self.rng.randrange(1, len(NAMES) + 1))
            self.world.points.hits[f"owner.{label}"] += 1
            self.cluster.check_owners()
            await change(names, self.rng.choice(BROKERS))
            self.cluster.check_owners()
        self.table.is_asking = False

    async def give(self, names: list[TopicName], broker: str) -> None:
        await self._unsettled(names, self.table.give(names, broker))

    async def leave_to_nobody(self, names: list[TopicName], broker: str) -> None:
        await self._unsettled(names, self.table.give(names, None))
        await self.world.sleep(self.rng.uniform(0, 0.5))
        self.cluster.check_owners()
        await self._unsettled(names, self.table.give(names, broker))

    async def _unsettled(self, names: list[TopicName], change: Awaitable[None]) -> None:
        chosen = {str(name) for name in names}
        self.cluster.unsettled |= chosen
        await change
        self.cluster.unsettled -= chosen

    async def seize(self, names: list[TopicName], broker: str) -> None:
        """The owner before is not told for a while: it goes on with what it has open."""
        chosen = {str(name) for name in names}
        self.cluster.unsettled |= chosen
        tell = await self.table.seize(names, broker)
        await self.world.sleep(self.rng.choice([0, 0.01, 0.1]))
        if self.rng.random() < 0.5:
            # As another client would: those of before are still where they were.
            await self._open(names, broker)
        await self.world.sleep(self.rng.choice([0, 0.1, 1.0]))
        await tell()
        self.cluster.unsettled -= chosen

    async def _open(self, names: list[TopicName], broker: str) -> None:
        async def open_all(_: sim.SimNode) -> None:
            for name in names:
                try:
                    await self.cluster.brokers[broker].registry.get(name, create=True)
                except GemingaError:
                    continue

        await self.world.node(broker).run(open_all)

    async def stall(self, names: list[TopicName], broker: str) -> None:
        """A broker stands still, what it has goes to the other one, and it wakes up."""
        node, other = self.world.node(broker), BROKERS[broker == BROKERS[0]]
        self.world.pause(node)
        held = [name for name in NAMES if self.table.owner(name) == broker]
        await self.world.sleep(self.rng.uniform(0, 0.5))
        chosen = {str(name) for name in held}
        self.cluster.unsettled |= chosen
        tell = await self.table.seize(held, other)
        await self.world.sleep(self.rng.uniform(0, 1))
        self.world.resume(node)
        await self.world.sleep(self.rng.choice([0, 0.05]))
        await tell()
        self.cluster.unsettled -= chosen

    async def crash(self, names: list[TopicName], broker: str) -> None:
        other = BROKERS[broker == BROKERS[0]]
        self.cluster.crash(broker)
        await self.world.sleep(self.rng.uniform(0, 0.5))
        await self.table.seize([name for name in NAMES if self.table.owner(name) == broker], other)
        await self.world.sleep(self.rng.uniform(0, 0.5))
        self.cluster.check_owners()
        await self.cluster.boot(broker)

    async def ask(self, names: list[TopicName], broker: str) -> None:
        self.table.is_asking = not self.table.is_asking

    async def mislead(self, names: list[TopicName], broker: str) -> None:
        """A broker that is not the owner sends clients to one that is gone, or that does not want them."""
        there = self.rng.choice([*BROKERS, "gone"])
        belief = Elsewhere(Endpoints(endpoints_of(there)), is_owner=self.rng.random() < 0.5)
        view = self.table.brokers[broker]
        told = [name for name in names if self.table.owner(name) != broker]
        for name in told:
            view.beliefs[str(name)] = belief
        await self.world.sleep(self.rng.uniform(0, 0.7))
        for name in told:
            view.beliefs.pop(str(name), None)

    async def unload(self, names: list[TopicName], broker: str) -> None:
        async def unload_all(_: sim.SimNode) -> None:
            for name in names:
                try:
                    await self.cluster.brokers[broker].registry.unload(name)
                except GemingaError:
                    continue

        await self.world.node(broker).run(unload_all)


class Traffic:
    """Producers and consumers of one topic, and what they were promised."""

    def __init__(self, cluster: Cluster, topic: str, client: gc.Client) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.topic = topic
        self.client = client
        self.rng = cluster.world.rng("traffic", topic)
        #: Receipts: where a message is.
        self.receipts: dict[Where, bytes] = {}
        #: Acknowledged, with a response.
        self.acknowledged: set[Where] = set()
        #: Acknowledged, and nobody knows whether that was stored.
        self.in_doubt: set[Where] = set()
        self.is_over = False
        self.sent = 0
        #: Nobody keeps what was published before there was a subscription.
        self.is_subscribed = asyncio.Event()

    async def produce(self) -> None:
        await self.is_subscribed.wait()
        producer = await insist(self.world, lambda: self.client.create_producer(self.topic, send_timeout_millis=0))
        while self.world.now < CHANGES_S:
            await asyncio.gather(*(self._send(producer) for _ in range(self.rng.randrange(1, 6))))
            await self.world.sleep(self.rng.uniform(0, 0.2))
        await producer.close()

    async def _send(self, producer: gc.Producer[bytes]) -> None:
        payload = b"%s %d" % (self.topic.encode(), self.sent)
        self.sent += 1
        place = where(self.topic, await producer.send(payload))
        assert place not in self.receipts, f"two receipts for {place}"
        self.receipts[place] = payload

    async def consume(self) -> None:
        """One consumer after the other; each must not get what was acknowledged before it began."""
        kind = self.rng.choice([gc.ConsumerType.Exclusive, gc.ConsumerType.Shared, gc.ConsumerType.Failover])
        while not (self.is_over and self.acknowledged | self.in_doubt >= set(self.receipts)):
            consumer = await insist(self.world, lambda: self._subscribe(kind))
            self.is_subscribed.set()
            before = frozenset(self.acknowledged)
            for _ in range(self.rng.choice([5, 20, 60])):
                try:
                    message = await consumer.receive(RECEIVE_MS)
                except gc.Timeout:
                    break
                place = where(self.topic, message.message_id())
                assert place not in before, f"{place} was acknowledged, with a response, and came again"
                if self.rng.random() < 0.9:
                    await self._acknowledge(consumer, message, place)
            await consumer.close()

    def _subscribe(self, kind: gc.ConsumerType) -> Awaitable[gc.Consumer[bytes]]:
        return self.client.subscribe(
            self.topic,
            "sub",
            consumer_type=kind,
            initial_position=gc.InitialPosition.Earliest,
            ack_receipt_enabled=True,
            receiver_queue_size=10,
        )

    async def _acknowledge(self, consumer: gc.Consumer[bytes], message: gc.Message[bytes], place: Where) -> None:
        try:
            await consumer.acknowledge(message)
        except gc.PulsarException:
            self.in_doubt.add(place)
            return
        self.acknowledged.add(place)


async def two_brokers(world: sim.SimWorld) -> None:
    """One story; raises where a promise was broken."""
    cluster = await Cluster(world).start()
    await follow(cluster, Changes(cluster).run, TOPICS)


async def follow(cluster: Cluster, change: Callable[[], Awaitable[None]], topics: Sequence[str]) -> None:
    """Clients of these topics while ``change`` is under way, and what they were promised."""
    world = cluster.world
    traffics: list[Traffic] = []

    async def clients(node: sim.SimNode) -> None:
        async with gc.connect(f"pulsar://{cluster.url}", runtime=node.runtime, **CLIENT) as client:
            traffics.extend(Traffic(cluster, topic, client) for topic in topics)
            consuming = [spawn(one.consume(), name=f"consume {one.topic}") for one in traffics]
            await asyncio.gather(*(one.produce() for one in traffics))
            for one in traffics:
                one.is_over = True
            await asyncio.gather(*consuming)

    working = world.node("clients").run(clients)
    await change()
    try:
        async with asyncio.timeout(SETTLED_S):
            await working
    except TimeoutError as error:
        told = [(one.topic, one.sent, len(one.receipts), len(one.acknowledged)) for one in traffics]
        raise AssertionError(f"clients did not follow: (topic, sent, receipts, acknowledged) {told}") from error
    cluster.check_owners()
    stored = await cluster.stored()
    consumed = {place for one in traffics for place in one.acknowledged | one.in_doubt}
    for one in traffics:
        assert len(one.receipts) == one.sent
        for place, payload in one.receipts.items():
            # What everybody acknowledged may have been trimmed.
            assert stored.get(place, payload if place in consumed else None) == payload, f"{place} is lost"
