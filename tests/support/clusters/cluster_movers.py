"""Programs of a simulated cluster that publish and acknowledge in transactions, and what they know of each.

Feeders publish to two topics, one message alone or some of both topics in a transaction. Movers take from these and
publish to two others, in one transaction with the acknowledgments. Watchers read the topics that movers publish to. A
transaction is committed, aborted, left to its time-out, or its program dies in it; each message says whose it is, and
what it was made of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import geminga.client as gc
from geminga.client import TransactionState
from geminga.runtime import spawn
from geminga.sim import NodeCrashedError, SimNode
from support.clusters.cluster_traffic import AGAIN_S, CLIENTS, KINDS, live_through_crashes
from support.clusters.cluster_world import TOPICS, ClusterWorld
from support.clusters.two_brokers import Where, where
from support.worlds.client_world import CLIENT, insist

#: Seconds that transactions may be open.
TIMEOUTS_S: Final = (2.0, 4.0, 8.0)
RECEIVE_MS: Final = 1500
#: Virtual seconds without a message, when nobody disturbs any more, after which a mover has all: longer than any
#: transaction holds something, and than a cluster takes to settle.
IDLE_S: Final = 30.0
ENDS: Final = ("commit", "commit", "commit", "commit", "commit", "abort", "leave", "end twice")
#: Of a message that is in no transaction.
ALONE: Final = "-"


class Told(NamedTuple):
    """What a message says of itself; no two say the same."""

    #: The transaction, or :data:`ALONE`.
    label: str
    writer: str
    number: int
    #: What it was made of, as text; empty: of nothing.
    origin: str = ""

    def encode(self) -> bytes:
        return " ".join((self.label, self.writer, str(self.number), self.origin)).encode()


def told(payload: bytes) -> Told:
    label, writer, number, origin = payload.decode().split(" ")
    return Told(label, writer, int(number), origin)


def text_of(place: Where) -> str:
    return "/".join(map(str, place)).removeprefix("persistent://")


@dataclass
class Try:
    """One transaction of a program."""

    label: str
    timeout_s: float
    #: What was sent, or at least tried: topic and message.
    sent: list[tuple[str, Told]] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    #: Its commit was asked for: from then on it may count.
    is_asked: bool = False
    #: True: it counts; False: it does not; None: nobody was told.
    counts: bool | None = None


class Book:
    """What all programs did and were told; it survives them."""

    def __init__(self) -> None:
        self.tries: dict[str, Try] = {}
        #: Messages in no transaction that there is a receipt for, with their topics.
        self.receipts: set[tuple[str, Told]] = set()
        self.numbers: dict[str, int] = {}

    def next_number(self, writer: str) -> int:
        number = self.numbers.get(writer, -1) + 1
        self.numbers[writer] = number
        return number

    def check_visible(self, topic: str, one: Told) -> None:
        """Of a message that somebody received."""
        if one.label != ALONE:
            found = self.tries[one.label]
            assert found.is_asked, f"{one} of {topic} was seen, and its commit was never asked for"
            assert found.counts is not False, f"{one} of {topic} was seen, and its transaction was aborted"


class Movers:
    """See the module; on two nodes that may die."""

    def __init__(self, cluster: ClusterWorld, changes_s: float, is_calm: Callable[[], bool]) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.changes_s = changes_s
        self.is_calm = is_calm
        self.book = Book()
        self.rng = rng = cluster.world.rng("movers")
        topics = rng.sample(TOPICS, len(TOPICS))
        self.inputs, self.outputs = topics[:2], topics[2:]
        self.kinds: dict[str, gc.ConsumerType] = {topic: rng.choice(KINDS) for topic in TOPICS}
        self.batches = rng.random() < 0.5
        programs: list[tuple[str, Callable[[gc.Client], Awaitable[None]]]] = []
        for topic in self.inputs:
            programs.append((f"feed {topic}", lambda client, topic=topic: self._feed(client, topic)))
            for index in range(rng.choice((1, 2)) if self.kinds[topic] in KINDS[1:] else 1):
                programs.append((f"move {topic} {index}", lambda client, topic=topic: self._move(client, topic)))
        for topic in self.outputs:
            programs.append((f"watch {topic}", lambda client, topic=topic: self._watch(client, topic)))
        self.programs = [(rng.choice(CLIENTS), *one) for one in programs]
        #: Programs that did all they had to.
        self.finished: set[str] = set()
        self.subscribed = {topic: asyncio.Event() for topic in TOPICS}

    async def run(self) -> None:
        """Until all was moved."""
        await live_through_crashes(self.world, self._live)

    async def _live(self, node: SimNode) -> None:
        async with gc.connect(f"pulsar://{self.cluster.url}", runtime=node.runtime, **CLIENT) as client:
            tasks = [
                spawn(self._program(name, client, work), name=name)
                for where_, name, work in self.programs
                if where_ == node.name and name not in self.finished
            ]
            await asyncio.gather(*tasks)

    async def _program(self, name: str, client: gc.Client, work: Callable[[gc.Client], Awaitable[None]]) -> None:
        try:
            await work(client)
        except AssertionError as error:
            # At once: the others would go on until their patience ends.
            self.world.loop.fail(error)
        self.finished.add(name)

    def _count(self, what: str) -> None:
        self.world.points.hits[f"cluster.transaction {what}"] += 1

    # ---- programs

    async def _feed(self, client: gc.Client, topic: str) -> None:
        for each in self.inputs:
            await self.subscribed[each].wait()
        producers = {each: await self._producer(client, each) for each in self.inputs}
        writer = f"feeder-{self.inputs.index(topic)}"
        while self.world.now < self.changes_s:
            await self.world.sleep(self.rng.uniform(0, 0.8))
            if self.rng.random() < 0.5:
                await self._send_alone(producers[topic], topic, writer)
            else:
                await self._transact(client, writer, producers, [], None)

    async def _send_alone(self, producer: gc.Producer[bytes], topic: str, writer: str) -> None:
        one = Told(ALONE, writer, self.book.next_number(writer))
        try:
            await producer.send(one.encode(), partition_key=str(one.number % 3))
        except gc.PulsarException as error:
            if not error.retriable:
                raise
        else:
            self.book.receipts.add((topic, one))

    async def _move(self, client: gc.Client, topic: str) -> None:
        producers = {each: await self._producer(client, each) for each in self.outputs}
        writer = f"mover-{self.inputs.index(topic)}"
        idle_s = 0.0
        while idle_s < IDLE_S:
            consumer = await self._consumer(client, topic)
            for _ in range(self.rng.choice((2, 10, 30))):
                messages = await self._gather(consumer)
                if messages:
                    idle_s = 0.0
                    await self._transact(client, writer, producers, messages, consumer)
                else:
                    idle_s = idle_s + RECEIVE_MS / 1000 if self.is_calm() else 0.0
                    if idle_s >= IDLE_S:
                        break
            await self._close(consumer)

    async def _gather(self, consumer: gc.Consumer[bytes]) -> list[gc.Message[bytes]]:
        found: list[gc.Message[bytes]] = []
        for _ in range(self.rng.choice((1, 2, 5))):
            try:
                found.append(await consumer.receive(RECEIVE_MS if not found else 50))
            except gc.Timeout:
                break
        return found

    async def _watch(self, client: gc.Client, topic: str) -> None:
        while not self.is_calm():
            consumer = await self._consumer(client, topic)
            for _ in range(self.rng.choice((5, 20, 60))):
                try:
                    message = await consumer.receive(RECEIVE_MS)
                except gc.Timeout:
                    break
                self.book.check_visible(topic, told(message.data()))
                try:
                    await consumer.acknowledge(message)
                except gc.PulsarException as error:
                    if not error.retriable:
                        raise
            await self._close(consumer)

    async def leave_open(self, count: int) -> None:
        """A program begins so many, publishes in each, and dies; nobody begins any after these."""

        async def work(node: SimNode) -> None:
            async with gc.connect(f"pulsar://{self.cluster.url}", runtime=node.runtime, **CLIENT) as client:
                producers = {each: await self._producer(client, each) for each in self.outputs}
                for _ in range(count):
                    txn = await insist(self.world, lambda: client.transaction(max(TIMEOUTS_S)), AGAIN_S)
                    label = f"{txn.id.coordinator}.{txn.id.number}"
                    one = self.book.tries[label] = Try(label, max(TIMEOUTS_S))
                    try:
                        await self._fill(txn, one, "leaver", producers, [], None)
                    except gc.PulsarException:
                        self._count("failed")
                self.world.loop.call_soon(self.world.crash, node)
                await self.world.sleep(1)

        node = self.world.node("leaver")
        node.start()
        try:
            await node.run(work)
        except NodeCrashedError:
            self._count("outlived its program")

    # ---- a transaction

    async def _transact(
        self,
        client: gc.Client,
        writer: str,
        producers: dict[str, gc.Producer[bytes]],
        messages: list[gc.Message[bytes]],
        consumer: gc.Consumer[bytes] | None,
    ) -> None:
        timeout_s = self.rng.choice(TIMEOUTS_S)
        try:
            txn = await client.transaction(timeout_s)
        except gc.PulsarException:
            await self._give_back(consumer)
            await self.world.sleep(AGAIN_S)
            return
        label = f"{txn.id.coordinator}.{txn.id.number}"
        assert label not in self.book.tries, f"transaction {label} was begun twice"
        one = self.book.tries[label] = Try(label, timeout_s)
        self._count("begun")
        try:
            await self._fill(txn, one, writer, producers, messages, consumer)
            await self._end(client, txn, one)
        except gc.PulsarException:
            self._count("failed")
            if txn.state is TransactionState.OPEN:
                try:
                    await txn.abort()
                except gc.PulsarException:
                    pass
        if txn.state is TransactionState.ABORTED:
            one.counts = False
            self._count("aborted")
        elif txn.state is TransactionState.COMMITTED:
            one.counts = True
            self._count("committed")
        if one.counts is not True:
            await self._give_back(consumer)

    async def _fill(
        self,
        txn: gc.Transaction,
        one: Try,
        writer: str,
        producers: dict[str, gc.Producer[bytes]],
        messages: list[gc.Message[bytes]],
        consumer: gc.Consumer[bytes] | None,
    ) -> None:
        origins: dict[str, gc.Message[bytes]] = {}
        for message in messages:
            assert consumer is not None
            topic = message.topic_name().partition("-partition-")[0]
            self.book.check_visible(topic, told(message.data()))
            origins[text_of(where(topic, message.message_id()))] = message
        # What fails is known when it ends.
        for origin in origins or [""] * self.rng.randrange(1, 4):
            for topic, producer in producers.items():
                number = self.book.next_number(writer)
                text = Told(one.label, writer, number, origin)
                one.sent.append((topic, text))
                if self.rng.random() < 0.5:
                    producer.send_nowait(text.encode(), txn=txn, partition_key=str(number % 3))
                else:
                    await producer.send(text.encode(), txn=txn, partition_key=str(number % 3))
        if consumer is not None:
            one.taken += origins
            await consumer.acknowledge(list(origins.values()), txn=txn)

    async def _end(self, client: gc.Client, txn: gc.Transaction, one: Try) -> None:
        how = self.rng.choice(ENDS)
        if self.rng.random() < 0.2:
            await self.world.sleep(self.rng.uniform(0, one.timeout_s))
        if how == "leave":
            self._count("left open")
        elif how == "abort":
            await txn.abort()
        elif how == "commit":
            one.is_asked = True
            await txn.commit()
        else:
            one.is_asked = True
            await self._end_twice(client, txn, one)

    async def _end_twice(self, client: gc.Client, txn: gc.Transaction, one: Try) -> None:
        """Somebody else asks for the other end at the same time: one of the two is answered, or the same one twice."""

        async def abort() -> bool:
            await self.world.sleep(self.rng.choice((0, 0.002, 0.01)))
            try:
                await client.end_transaction(txn.id, commit=False)
            except gc.PulsarException:
                return False
            return True

        aborting = spawn(abort(), name=f"abort {one.label}")
        try:
            await txn.commit()
        finally:
            is_aborted = await aborting
            self._count("ended twice")
            if is_aborted:
                assert txn.state is not TransactionState.COMMITTED, f"{one.label} was committed, and aborted"
                one.counts = False

    async def _give_back(self, consumer: gc.Consumer[bytes] | None) -> None:
        if consumer is not None:
            try:
                await consumer.redeliver_unacknowledged_messages()
            except gc.PulsarException as error:
                if not error.retriable:
                    raise

    # ---- what programs use

    async def _producer(self, client: gc.Client, topic: str) -> gc.Producer[bytes]:
        options: gc.ProducerArguments = {"batching_enabled": self.batches, "batching_max_publish_delay_ms": 5}
        found: gc.Producer[bytes] = await insist(
            self.world,
            lambda: client.create_producer(topic, send_timeout_millis=0, **options),
            AGAIN_S,
        )
        return found

    async def _consumer(self, client: gc.Client, topic: str) -> gc.Consumer[bytes]:
        found: gc.Consumer[bytes] = await insist(
            self.world,
            lambda: client.subscribe(
                topic,
                "sub",
                consumer_type=self.kinds[topic],
                initial_position=gc.InitialPosition.Earliest,
                ack_receipt_enabled=True,
                receiver_queue_size=10,
            ),
            AGAIN_S,
        )
        self.subscribed[topic].set()
        return found

    async def _close(self, consumer: gc.Consumer[bytes]) -> None:
        try:
            await consumer.close()
        except gc.PulsarException as error:
            if not error.retriable:
                raise
