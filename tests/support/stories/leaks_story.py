"""Brokers, bookies and sessions that end while nearly everything that is made is deleted again; then all is counted.

Lives of a broker, one after another, each killed at a named point or anywhere. In each, two workers make and delete
topics, partitioned topics, subscriptions, schemas, policies, transactions, namespaces and tenants; ledgers are trimmed
and go to the lake. Bookies lose their power, one is gone for good and another one takes its place; sessions of the
broker end. In the last life everything that was not answered is asked for again. Then disks, metadata and lake are
compared with the story's own history (:mod:`support.stories.leaks_checks`): nothing that was deleted is there, all that
a policy keeps is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from geminga.bookie import crash_points as bookie_points
from geminga.broker.composition.service import Broker
from geminga.broker.rest.namespace_routes.deletion import delete_namespace_and_topics
from geminga.broker.schema import crash_points as schema_points
from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.system_topics import table
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger.shared import crash_points as ledger_points
from geminga.model.errors import (
    GemingaError,
    NotFoundError,
    StorageError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TopicName
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.clusters.transacting import Transacting
from support.house.orphans import collect_now
from support.stories.leaks_checks import check_all, payload
from support.stories.leaks_cluster import LeaksCluster
from support.stories.leaks_history import Namespace, Subscription, Topic
from support.worlds.broker_world import Type

NAMESPACES: Final = ("one/kept", "one/used", "two/used")
#: The first is a partition of none.
LOCAL_NAMES: Final = ("x", "y", "parts-partition-0", "parts-partition-1")
PARTITIONS: Final = 2
LIVES: Final = 3
STEPS: Final = 6
WORKERS: Final = 2
#: One step takes no longer, virtual seconds; what takes longer was not answered.
STEP_S: Final = 300.0
#: Attempts at what was not answered, in the last life.
ATTEMPTS_MAX: Final = 20
POINTS: Final = tuple(ledger_points.ALL) + tuple(schema_points.ALL)
BOOKIE_POINTS: Final = tuple(point for point in bookie_points.ALL if ".journal." in point or ".gc." in point)
#: Until time-outs of transactions, looks at the lake and rounds of trimming are over, virtual seconds.
QUIET_S: Final = 650.0
#: Of the broker's own tables: so few records that stories come to what happens with more.
SUPERSEDED_MAX: Final = 4
TRANSACTION_MS: Final = 20_000

LABELS: Final = (
    "leaks.broker died at a point",
    "leaks.bookie is gone for good",
    "leaks.session lost",
    "leaks.topic dropped",
    "leaks.namespace went",
    "leaks.transaction ended",
    "leaks.has a lake",
)

Step = Callable[[Namespace], Awaitable[None]]


class LeaksStory:
    """See the module."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("leaks")
        self.has_lake = self.rng.random() < 0.4
        self.loses_bookie = self.rng.random() < 0.4
        self.cluster = LeaksCluster(world, has_lake=self.has_lake)
        self.world.points.hits["leaks.has a lake"] += self.has_lake
        self.number = 0
        self.namespaces = {name: _namespace(name, is_retained=name == NAMESPACES[0]) for name in NAMESPACES}
        self.locks = {name: asyncio.Lock() for name in self._lock_names()}
        #: Whether each is there; None: perhaps.
        self.tenants: dict[str, bool | None] = {name.partition("/")[0]: False for name in NAMESPACES}
        self.told: list[str] = []
        self.broker: Broker

    def _lock_names(self) -> list[str]:
        names = [str(topic.name) for one in self.namespaces.values() for topic in one.topics.values()]
        return [*names, *NAMESPACES, *{name.partition("/")[0] for name in NAMESPACES}]

    def tell(self, what: str) -> None:
        self.told.append(f"{self.world.now:.2f} {what}")

    # ---- lives

    async def run(self) -> None:
        await self.cluster.start()
        for number in range(LIVES):
            node = self.world.node(f"broker-{number % 2}")
            await self.live(node)
        await self.last_life()

    async def live(self, node: SimNode) -> None:
        node.start()
        self.start_repair()
        self.node, self.armed = node, ""
        self.steps_left = 1 << 30
        if self.rng.random() < 0.6:
            self.armed = self.rng.choice(POINTS)
            self.world.crash_at(self.armed, self.rng.choice((1, 1, 2, 4)), node=node)
        elif self.rng.random() < 0.7:
            self.steps_left = self.rng.randrange(WORKERS * STEPS)
        trouble = asyncio.ensure_future(self.trouble())
        try:
            await node.run(self.work)
        except NodeCrashedError:
            self.world.points.hits["leaks.broker died at a point"] += 1
        trouble.cancel()
        for label in (self.armed, *BOOKIE_POINTS):
            self.world.points.disarm(label)
        self.cluster.kill_broker(node)
        await self.cluster.stop_repair()
        self.locks = {name: asyncio.Lock() for name in self.locks}
        self.tell("killed")

    def start_repair(self) -> None:
        """It has nothing to do where all come back."""
        if self.loses_bookie:
            self.cluster.start_repair()

    async def work(self, node: SimNode) -> None:
        self.broker = await self.cluster.boot(node)
        workers = [asyncio.ensure_future(self.worker()) for _ in range(WORKERS)]
        await asyncio.gather(*workers)
        await asyncio.sleep(self.rng.choice((0, 0.1, 5)))

    async def worker(self) -> None:
        for _ in range(STEPS):
            namespace = self.namespaces[self.rng.choice(NAMESPACES)]
            steps: list[Step] = [self.use, self.use, self.use, self.fill, self.transact, self.drop, self.unsubscribe]
            step = self.rng.choice((*steps, self.partition, self.go, self.pause))
            if self.steps_left == 0:
                # In the middle of it.
                self.world.loop.call_later(self.rng.uniform(0, 0.15), self.world.crash, self.node)
            self.steps_left -= 1
            await self.attempt(step, namespace)

    async def attempt(self, step: Step, namespace: Namespace) -> bool:
        """Whether it was answered."""
        self.tell(f"{step.__name__} {namespace.name}")
        try:
            async with asyncio.timeout(STEP_S):
                await step(namespace)
                return True
        except (GemingaError, TimeoutError, AssertionError) as error:
            # Assertions are of the clients, about an error in the place of an answer.
            self.tell(f"  {step.__name__} {namespace.name}: {error!r}")
            return False

    async def trouble(self) -> None:
        """Of bookies and of the broker's session, one at a time."""
        while True:
            await self.world.sleep(self.rng.uniform(0, 6) if self.rng.random() < 0.7 else self.rng.uniform(0, 300))
            acts = (self.crash_bookie, self.crash_bookie, self.collect_bookie, self.expire, self.lose_bookie)
            await self.rng.choice(acts)()

    async def crash_bookie(self) -> None:
        bookie = self.rng.choice(self.cluster.present())
        if self.rng.random() < 0.5:
            label = self.rng.choice(BOOKIE_POINTS)
            self.world.crash_at(label, self.rng.choice((1, 2)), node=bookie.node)
            await self.world.sleep(self.rng.uniform(0, 10))
            self.world.points.disarm(label)
        self.tell(f"{bookie.node.name} lost its power")
        self.cluster.restart_bookie_later(bookie.node.name, self.rng.choice((0.1, 3)))
        await self.world.sleep(4)

    async def collect_bookie(self) -> None:
        bookie = self.rng.choice(self.cluster.present())
        self.tell(f"{bookie.node.name} collects")
        await bookie.on_node(lambda one: one.collect_garbage(compact_below=self.rng.choice((0, 0.5, 1))))

    async def expire(self) -> None:
        self.tell("session lost")
        self.world.points.hits["leaks.session lost"] += 1
        self.cluster.store.expire_session(outage_ms=self.rng.choice((5, 2000)))

    async def lose_bookie(self) -> None:
        if self.loses_bookie and not self.cluster.gone:
            name = self.rng.choice(self.cluster.present()).node.name
            self.tell(f"{name} is gone for good")
            self.world.points.hits["leaks.bookie is gone for good"] += 1
            await self.cluster.lose_bookie(name)

    # ---- steps

    @asynccontextmanager
    async def holding(self, *names: str) -> AsyncIterator[None]:
        """Nobody else of the story does anything with these."""
        async with AsyncExitStack() as stack:
            for name in sorted(names):
                await stack.enter_async_context(self.locks[name])
            yield

    def any_topic(self, namespace: Namespace) -> Topic:
        return self.rng.choice([topic for topic in namespace.topics.values() if topic.name.partition < 0])

    async def make(self, namespace: Namespace) -> None:
        """The tenant and the namespace, where they are missing."""
        tenant = namespace.name.partition("/")[0]
        async with self.holding(tenant, namespace.name):
            if namespace.is_there:
                return
            if namespace.is_there is None and not namespace.is_wanted:
                await self._go(namespace)
            resources = self.broker.resources
            if not self.tenants[tenant]:
                self.tenants[tenant] = None
                if not await resources.tenants.exists(tenant):
                    await resources.tenants.create(tenant, {"allowedClusters": ["standalone"]})
                self.tenants[tenant] = True
            namespace.is_there, namespace.is_wanted = None, True
            if await resources.namespaces.find(namespace.name) is None:
                await resources.namespaces.create(namespace.name)
            if namespace.is_retained:
                retention = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
                await resources.namespaces.set_policy(namespace.name, "retention_policies", retention)
            namespace.is_there = True

    async def open(self, topic: Topic) -> PersistentTopic:
        if topic.is_there is None and not topic.is_wanted:
            await self._drop(topic)
        topic.comes()
        found: Any = await self.broker.registry.get(topic.name, create=True)
        topic.is_there = True
        return found

    @asynccontextmanager
    async def opened(self, namespace: Namespace) -> AsyncIterator[tuple[Topic, PersistentTopic | None]]:
        """One of its topics, which nobody else has meanwhile; not opened where the namespace was deleted since."""
        await self.make(namespace)
        topic = self.any_topic(namespace)
        async with self.holding(str(topic.name)):
            yield topic, await self.open(topic) if namespace.is_there else None

    async def use(self, namespace: Namespace) -> None:
        """A topic with subscriptions, and at times a schema and policies of its own."""
        async with self.opened(namespace) as (topic, opened):
            if opened is None:
                return
            await self.subscribe(opened, topic, self.rng.choice(("s", "t")))
            await self.publish(topic, self.rng.randint(0, 9))
            for name in sorted(opened.subscriptions):
                await self.acknowledge(opened, topic, name)
            if self.rng.random() < 0.4:
                await self.describe(topic)

    async def fill(self, namespace: Namespace) -> None:
        """Ledgers that nobody needs any more."""
        async with self.opened(namespace) as (topic, opened):
            if opened is None:
                return
            await self.publish(topic, 20)
            for name in sorted(opened.subscriptions):
                await self.acknowledge(opened, topic, name, share=1)

    async def publish(self, topic: Topic, count: int) -> None:
        if not count:
            return
        client = await self.cluster.client(self.broker)
        await client.create_producer(str(topic.name))
        for _ in range(count):
            self.number += 1
            client.send_message(self.number, payload(self.number))
        first = self.number - count + 1
        for number in range(first, first + count):
            receipt = await client.receipt()
            topic.messages[number] = Position(receipt.message_id.ledgerId, receipt.message_id.entryId)
        client.lose()

    async def subscribe(self, opened: PersistentTopic, topic: Topic, name: str) -> None:
        found = topic.subscriptions.get(name)
        if found is not None and found.is_there:
            return
        if found is not None and not found.is_wanted:
            await self._unsubscribe(opened, topic, name)
        one = topic.subscriptions[name] = Subscription()
        if name not in opened.subscriptions:
            await opened.create_subscription(name, EARLIEST)
        one.is_there, one.since = True, self.number

    async def acknowledge(
        self, opened: PersistentTopic, topic: Topic, name: str, *, share: float | None = None
    ) -> None:
        """Up to some message that it has not yet acknowledged."""
        one = topic.subscriptions.get(name)
        # What a transaction holds back nobody has been given yet.
        positions = sorted(
            place for place in topic.messages.values() if place <= opened.ledger.extent.readable_position
        )
        if one is None or not one.is_there or not positions:
            return
        share = self.rng.random() if share is None else share
        position = positions[int(share * (len(positions) - 1))]
        one.asked = max(one.asked, position)
        await self._acknowledge(opened, one, name, position)

    async def _acknowledge(self, opened: PersistentTopic, one: Subscription, name: str, position: Position) -> None:
        done: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        opened.subscriptions[name].cursor.acknowledge_cumulative(position, done=done.set_result)
        error = await done
        if error is not None:
            raise error
        one.done = max(one.done, position)

    async def describe(self, topic: Topic) -> None:
        """A schema of one of many versions, and a policy."""
        schema_id = f"{topic.name.namespace}/{topic.name.local_name}"
        definition = b'{"type":"record","name":"R","fields":[{"name":"f%d","type":"string"}]}' % self.number
        info = SchemaInfo("", SchemaType.AVRO, definition)
        topic.has_schema = None
        await self.broker.schemas.registry.put_if_absent(schema_id, info, Strategy.ALWAYS_COMPATIBLE)
        topic.has_schema, topic.has_policies = True, None
        maximum = self.number
        await self.broker.policies.topics.update(topic.name, lambda document: {**document, "maxConsumers": maximum})
        topic.has_policies = True

    async def transact(self, namespace: Namespace) -> None:
        """Messages and acknowledgments of a transaction that is committed, aborted, or left open."""
        async with self.opened(namespace) as (topic, opened):
            if opened is None:
                return
            await self.subscribe(opened, topic, "u")
            one = topic.subscriptions["u"]
            one.has_transactions = topic.was_transacted = True
            client = await self.cluster.client(self.broker)
            await client.subscribe(str(topic.name), subscription="u", permits=50)
            await client.create_producer(str(topic.name))
            speaking = Transacting(client)
            coordinator = self.rng.randrange(2)
            await speaking.connect(coordinator)
            txn_id = await speaking.begin(TRANSACTION_MS, coordinator)
            await speaking.add_partition(txn_id, str(topic.name))
            sent: dict[int, Position] = {}
            for _ in range(self.rng.randint(1, 8)):
                self.number = number = self.number + 1
                answer = await speaking.send(payload(number), txn_id, number=number)
                if answer.type != Type.SEND_RECEIPT:
                    raise StorageError(f"not sent: {answer.send_error.message}")
                place = answer.send_receipt.message_id
                sent[number] = Position(place.ledgerId, place.entryId)
            await speaking.add_subscription(txn_id, str(topic.name), "u")
            received = [message_id for message_id, _ in speaking.messages()]
            if received and self.rng.random() < 0.8:
                one.asked = max(one.asked, max(Position(each.ledgerId, each.entryId) for each in received))
                await speaking.acknowledge([received[-1]], txn_id, is_cumulative=True)
            ending = self.rng.choice(("commit", "commit", "abort", "leave"))
            if ending != "leave":
                ended = await speaking.end(txn_id, commit=ending == "commit")
                self.world.points.hits["leaks.transaction ended"] += 1
                if ending == "commit" and not ended.HasField("error"):
                    topic.messages.update(sent)
            client.lose()
            if self.rng.random() < 0.25:
                await self._unsubscribe(opened, topic, "u")

    async def drop(self, namespace: Namespace) -> None:
        topic = self.any_topic(namespace)
        async with self.holding(str(topic.name)):
            await self._drop(topic)

    async def _drop(self, topic: Topic) -> None:
        topic.goes()
        try:
            await self.broker.registry.delete(topic.name, force=True)
        except (TopicNotFoundError, NotFoundError):
            pass
        topic.is_gone()
        self.world.points.hits["leaks.topic dropped"] += 1

    async def unsubscribe(self, namespace: Namespace) -> None:
        topic = self.any_topic(namespace)
        async with self.holding(str(topic.name)):
            if not topic.is_there:
                return
            opened = await self.open(topic)
            names = sorted(topic.subscriptions)
            if names:
                await self._unsubscribe(opened, topic, self.rng.choice(names))

    async def _unsubscribe(self, opened: PersistentTopic, topic: Topic, name: str) -> None:
        one = topic.subscriptions[name]
        one.is_there, one.is_wanted = None, False
        try:
            await opened.delete_subscription(name, force=True)
        except SubscriptionNotFoundError:
            pass
        one.is_there = False

    def partitions_of(self, namespace: Namespace) -> list[Topic]:
        return [topic for topic in namespace.topics.values() if topic.name.partition >= 0]

    async def partition(self, namespace: Namespace) -> None:
        """A partitioned topic is made, or goes."""
        await self.make(namespace)
        parts = self.partitions_of(namespace)
        async with self.holding(*(str(topic.name) for topic in parts)):
            if not namespace.is_there:
                return
            name = TopicName.parse(f"persistent://{namespace.name}/parts")
            if namespace.partitions or (namespace.partitions is None and not namespace.wanted_partitions):
                namespace.partitions, namespace.wanted_partitions = None, 0
                for topic in parts:
                    topic.goes()
                try:
                    await self.broker.administered.partitions.delete(name, force=True)
                except (TopicNotFoundError, NotFoundError):
                    pass
                namespace.partitions = 0
                for topic in parts:
                    topic.is_gone()
                return
            namespace.partitions, namespace.wanted_partitions = None, PARTITIONS
            for topic in parts:
                topic.comes()
            if await self.broker.resources.partitioned_topics.find(name) is None:
                await self.broker.partitions.create(name, PARTITIONS)
            else:
                await self.broker.partitions.create_missing(name)
            namespace.partitions = PARTITIONS
            for topic in parts:
                topic.is_there = True
            for topic in parts:
                opened = await self.open(topic)
                await self.subscribe(opened, topic, "s")
                await self.publish(topic, 3)

    async def go(self, namespace: Namespace) -> None:
        """By force, with all that is in it; at times its tenant too."""
        tenant = namespace.name.partition("/")[0]
        async with self.holding(tenant, namespace.name, *(str(topic.name) for topic in namespace.topics.values())):
            await self._go(namespace)
            if self.rng.random() < 0.5 and not await self.broker.resources.namespaces.list(tenant):
                await self._go_tenant(tenant)

    async def _go(self, namespace: Namespace) -> None:
        namespace.goes()
        try:
            await delete_namespace_and_topics(self.broker.administered, namespace.name)
        except NotFoundError:
            pass
        namespace.is_gone()
        self.world.points.hits["leaks.namespace went"] += 1

    async def _go_tenant(self, tenant: str) -> None:
        self.tenants[tenant] = None
        try:
            await self.broker.resources.tenants.delete(tenant)
        except NotFoundError:
            pass
        self.tenants[tenant] = False

    async def pause(self, namespace: Namespace) -> None:
        del namespace
        await asyncio.sleep(self.rng.choice((1, 60, 400, 4000)))

    # ---- the end

    async def last_life(self) -> None:
        """Nobody disturbs; what was not answered is asked for again, and everything is counted, at times twice."""
        # Until those that lost their power are back.
        await self.world.sleep(5)
        for bookie in self.cluster.present():
            await bookie.start()
        self.start_repair()
        node = self.world.node(f"broker-{LIVES % 2}")
        node.start()
        self.tell("the last life")
        await node.run(self.settle)
        await node.run(self.count)
        if self.rng.random() < 0.3:
            await node.run(self.delete_everything)
            await node.run(self.count)

    async def settle(self, node: SimNode) -> None:
        self.broker = await self.cluster.boot(node)
        for namespace in self.namespaces.values():
            await self.insist(self.resolve, namespace)

    async def insist(self, step: Step, namespace: Namespace) -> None:
        for _ in range(ATTEMPTS_MAX):
            if await self.attempt(step, namespace):
                return
            await asyncio.sleep(5)
        raise AssertionError(f"{step.__name__} of {namespace.name} was refused {ATTEMPTS_MAX} times: {self.told[-1]}")

    async def resolve(self, namespace: Namespace) -> None:
        """What was asked for last is asked for again."""
        if namespace.is_there is None:
            await (self.make(namespace) if namespace.is_wanted else self._go(namespace))
        if namespace.partitions is None:
            await self.partition(namespace)
        for topic in namespace.topics.values():
            if topic.is_there is None and not topic.is_wanted:
                await self._drop(topic)
            if topic.is_there is False:
                continue
            opened = await self.open(topic)
            for name, one in sorted(topic.subscriptions.items()):
                if one.is_there is None:
                    again = self.subscribe if one.is_wanted else self._unsubscribe
                    await again(opened, topic, name)
                if one.is_there and one.asked > one.done:
                    await self._acknowledge(opened, one, name, one.asked)
            if topic.has_schema is None or topic.has_policies is None:
                await self.describe(topic)

    async def delete_everything(self, _: SimNode) -> None:
        for namespace in self.namespaces.values():
            await self.insist(self.resolve_gone, namespace)
        for tenant in sorted(self.tenants):
            await self._go_tenant(tenant)

    async def resolve_gone(self, namespace: Namespace) -> None:
        if namespace.is_there is not False:
            await self._go(namespace)

    async def count(self, node: SimNode) -> None:
        """Rounds of everything that collects, then the look at what there is."""
        await asyncio.sleep(QUIET_S)
        await self.cluster.forget_lost_bookies()
        await self.broker.ledger_upkeep.trim_all()
        await collect_now(node.runtime, self.cluster.store, self.cluster.bookkeeper)
        await self.cluster.stop_repair()
        for bookie in self.cluster.present():
            await bookie.on_node(lambda one: one.collect_garbage(compact_below=1.0))
            await bookie.stop()
            await bookie.start()
            await bookie.on_node(lambda one: one.collect_garbage(compact_below=1.0))
            await bookie.stop()
        check_all(self)
        for bookie in self.cluster.present():
            await bookie.start()
        self.start_repair()


def _namespace(name: str, *, is_retained: bool) -> Namespace:
    names = {local: TopicName.parse(f"persistent://{name}/{local}") for local in LOCAL_NAMES}
    return Namespace(name, {local: Topic(each) for local, each in names.items()}, is_retained)


async def leaks(world: SimWorld) -> None:
    """The scenario; a failure tells its story."""
    story = LeaksStory(world)
    superseded_max = table.SUPERSEDED_MAX
    table.SUPERSEDED_MAX = SUPERSEDED_MAX
    try:
        await story.run()
    except BaseException as error:
        error.add_note("\n".join(story.told))
        raise
    finally:
        table.SUPERSEDED_MAX = superseded_max
