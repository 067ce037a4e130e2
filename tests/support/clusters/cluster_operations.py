"""Whole clusters that are administered while brokers come, go and take over, and what few clients use.

Beside the traffic of :mod:`support.clusters.cluster_story`: an operator sets policies of a topic and of the namespace,
makes a partitioned topic larger and terminates a topic, at whichever broker, over REST; a program publishes messages
that are due later. In the end every broker tells the policy that was answered last, each partition of the larger topic
is there and was consumed, nothing is behind the end of the terminated topic and all before it came, and what was due
later came, never before its time.

Which story has what: ``cluster`` has Exclusive, Failover, Shared and Key_Shared subscriptions, batches, deduplication,
trimming, bundles that are unloaded, split under load, raced for and robbed; ``cluster-deletions`` deletes topics and
namespaces; ``cluster-transactions`` has transactions; this one policies, growth, termination and delays. None has
quotas that evict, expiry by time, compaction, offloading, schemas or replication: those have stories of one broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import geminga.client as gc
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.clusters.cluster_faults import Faults
from support.clusters.cluster_peers import ask
from support.clusters.cluster_story import CHANGES_S, SETTLED_S, ClusterStory
from support.clusters.cluster_world import BROKERS, NAMESPACE, PLAIN, ClusterWorld
from support.worlds.client_world import CLIENT

GROWN: Final = f"persistent://{NAMESPACE}/grown"
ENDED: Final = f"persistent://{NAMESPACE}/ended"
LATER: Final = f"persistent://{NAMESPACE}/later"
PARTITIONS_MAX: Final = 5
DELAY_S_MAX: Final = 8.0
#: Paths of policies, of a topic and of its namespace.
POLICIES: Final = (
    f"/admin/v2/persistent/{NAMESPACE}/{TopicName.parse(PLAIN[0]).local_name}/maxConsumers",
    f"/admin/v2/persistent/{NAMESPACE}/{TopicName.parse(PLAIN[1]).local_name}/maxProducers",
    f"/admin/v2/namespaces/{NAMESPACE}/maxConsumersPerTopic",
)
#: Values that hinder nobody.
VALUE_MIN: Final = 1000
RECEIVE_MS: Final = 1500
ATTEMPTS_MAX: Final = 40
AGAIN_S: Final = 0.5
LABELS: Final = tuple(
    f"cluster.{what}"
    for what in ("policy set", "partitions added", "topic terminated", "delayed message came", "operation refused")
)


class Receipts:
    """One topic's messages: those that there is a receipt for, and those that came."""

    def __init__(self) -> None:
        self.published: dict[str, tuple[int, int, int]] = {}
        self.consumed: set[str] = set()
        #: When it is due, seconds of the world's time.
        self.due: dict[str, float] = {}
        self.is_over = False

    @property
    def is_done(self) -> bool:
        return self.is_over and self.consumed >= self.published.keys()


class OperationsStory(ClusterStory):
    """See the module."""

    def __init__(self, world: SimWorld) -> None:
        super().__init__(world)
        self.cluster = ClusterWorld(world, has_peers=True)
        self.excuses = type(self.excuses)(self.cluster)
        self.faults = Faults(self.cluster, self.excuses)
        # What is due is judged by the clock.
        self.faults.kinds = [one for one in self.faults.kinds if one[0] != "clock jumped"]
        self.rng = world.rng("operations")
        self.until_s = 0.0
        self.topics = {name: Receipts() for name in (GROWN, ENDED, LATER)}
        #: What may be set, by path: one, or more where an answer did not come.
        self.values: dict[str, set[int | None]] = {path: {None} for path in POLICIES}
        self.partitions = {1}
        #: Where the terminated topic ended, when that was answered.
        self.end: tuple[int, int] | None = None
        self.told = ""

    async def run(self) -> None:
        working = spawn(self._operate(), name="operations")
        await super().run()
        try:
            async with asyncio.timeout(SETTLED_S):
                await working
        except TimeoutError as error:
            left = {name: sorted(one.published.keys() - one.consumed)[:5] for name, one in self.topics.items()}
            raise AssertionError(f"clients did not follow: {left}, {self.told}") from error
        await self._check_policies()
        await self._check_end()

    async def _operate(self) -> None:
        self.until_s = self.world.now + CHANGES_S
        while self._broker() is None:
            await self.world.sleep(0.1)
        await self._insist("PUT", f"/admin/v2/persistent/{NAMESPACE}/grown/partitions", b"1", (204, 409))
        node = self.world.node("visitor")
        node.start()
        await asyncio.gather(node.run(self._visit), self._set_policies(), self._grow(), self._terminate())

    # ---- the operator

    def _broker(self) -> str | None:
        up = [name for name in self.cluster.applications if name not in self.cluster.away]
        return self.rng.choice(up) if up else None

    async def _ask(self, method: str, path: str, body: bytes = b"", broker: str | None = None) -> tuple[int, bytes]:
        """Status and body, redirections followed; 0: nobody answered."""
        broker = broker or self._broker()
        for _ in range(4):
            application = self.cluster.applications.get(broker or "")
            if application is None or broker is None:
                return 0, b""

            async def carry_out(_: SimNode, application=application, path=path) -> tuple[int, str, bytes]:
                return await ask(application, method, path, body)

            try:
                status, location, answer = await self.world.node(broker).run(carry_out)
            except (GemingaError, NodeCrashedError, OSError) as error:
                self.told = repr(error)
                return 0, b""
            self.told = f"{broker} answered {method} {path} with {status}: {answer[:300]!r}"
            if status != 307:
                if status >= 400:
                    self.world.points.hits["cluster.operation refused"] += 1
                return status, answer
            host, _, path = location.partition("://")[2].partition("/")
            broker, path = host.partition(":")[0], f"/{path}"
        return 0, b""

    async def _insist(self, method: str, path: str, body: bytes, statuses: tuple[int, ...]) -> bytes:
        for _ in range(ATTEMPTS_MAX):
            status, answer = await self._ask(method, path, body)
            if status in statuses:
                return answer
            await self.world.sleep(AGAIN_S)
        raise AssertionError(f"refused {ATTEMPTS_MAX} times, at last: {self.told}")

    async def _set_policies(self) -> None:
        value = VALUE_MIN
        while self.world.now < self.until_s:
            await self.world.sleep(self.rng.uniform(0.2, 1.5))
            path, value = self.rng.choice(POLICIES), value + 1
            # Until it is answered nobody knows; what another one stored before it may be there.
            self.values[path].add(value)
            status, _ = await self._ask("POST", path, b"%d" % value)
            if status == 204:
                self.world.points.hits["cluster.policy set"] += 1
                self.values[path] = {value}

    async def _grow(self) -> None:
        path = f"/admin/v2/persistent/{NAMESPACE}/grown/partitions"
        while self.world.now < self.until_s and max(self.partitions) < PARTITIONS_MAX:
            await self.world.sleep(self.rng.uniform(1, 6))
            wanted = max(self.partitions) + 1
            self.partitions.add(wanted)
            status, _ = await self._ask("POST", path, b"%d" % wanted)
            if status == 204:
                self.world.points.hits["cluster.partitions added"] += 1
                self.partitions = {wanted}

    async def _terminate(self) -> None:
        await self.world.sleep(self.rng.uniform(2, CHANGES_S))
        answer = await self._insist("POST", f"/admin/v2/persistent/{NAMESPACE}/ended/terminate", b"", (200,))
        import json

        place = json.loads(answer)
        self.end = place["ledgerId"], place["entryId"]
        self.world.points.hits["cluster.topic terminated"] += 1

    # ---- clients

    async def _visit(self, node: SimNode) -> None:
        try:
            async with gc.connect(f"pulsar://{self.cluster.url}", runtime=node.runtime, **CLIENT) as client:
                subscribed = {name: asyncio.Event() for name in self.topics}
                work = [self._consume(client, name, subscribed[name]) for name in self.topics]
                work += [self._publish(client, name, subscribed[name]) for name in self.topics]
                await asyncio.gather(*work)
        except AssertionError as error:
            self.world.loop.fail(error)

    async def _publish(self, client: gc.Client, name: str, subscribed: asyncio.Event) -> None:
        await subscribed.wait()
        told = self.topics[name]
        producer = await self._persist(
            lambda: client.create_producer(name, send_timeout_millis=0, auto_update_partitions_interval_ms=1000)
        )
        number = 0
        while producer is not None and (self.world.now < self.until_s or (name == ENDED and self.end is None)):
            number += 1
            text, more = f"{name[-5:]}-{number}", {}
            if name == LATER:
                delay_s = self.rng.uniform(0, DELAY_S_MAX)
                more = {"deliver_after": timedelta(seconds=delay_s)}
                told.due[text] = self.world.now + delay_s
            try:
                place = await producer.send(text.encode(), partition_key=str(number % 7), **more)
            except gc.TopicTerminated:
                break
            told.published[text] = place.ledger_id(), place.entry_id(), place.partition()
            await self.world.sleep(self.rng.uniform(0, 0.5))
        told.is_over = True

    async def _consume(self, client: gc.Client, name: str, subscribed: asyncio.Event) -> None:
        told = self.topics[name]
        consumer: gc.Consumer[bytes] | None = await self._persist(
            lambda: client.subscribe(
                name,
                "sub",
                consumer_type=gc.ConsumerType.Shared,
                # A partition that is added has the subscription from its first message on, whoever comes first.
                initial_position=gc.InitialPosition.Latest if name == GROWN else gc.InitialPosition.Earliest,
                auto_update_partitions_interval_ms=1000,
                receiver_queue_size=10,
            )
        )
        assert consumer is not None
        subscribed.set()
        while not told.is_done:
            try:
                message = await consumer.receive(RECEIVE_MS)
            except gc.Timeout:
                continue
            text = message.data().decode()
            if name == LATER:
                assert self.world.now >= told.due[text] - 0.01, f"{text} came {told.due[text] - self.world.now} s early"
                self.world.points.hits["cluster.delayed message came"] += 1
            told.consumed.add(text)
            try:
                await consumer.acknowledge(message)
            except gc.PulsarException as error:
                if not error.retriable:
                    raise

    async def _persist(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """None: the topic was terminated before."""
        while True:
            try:
                return await attempt()
            except gc.TopicTerminated:
                return None
            except gc.PulsarException as error:
                if not error.retriable:
                    raise
            await self.world.sleep(AGAIN_S)

    # ---- what must hold in the end

    async def _check_policies(self) -> None:
        for path, values in self.values.items():
            found = set()
            for broker in BROKERS:
                found.add(await self._value(path, broker))
            assert len(found) == 1, f"brokers say {found} of {path}"
            assert found <= values, f"{path} is {found}, and was set to {values}"

    async def _value(self, path: str, broker: str) -> int | None:
        for _ in range(ATTEMPTS_MAX):
            status, body = await self._ask("GET", path, broker=broker)
            if status == 200 or status == 204:
                return int(body) if body and body != b"null" else None
            await self.world.sleep(AGAIN_S)
        raise AssertionError(f"refused {ATTEMPTS_MAX} times, at last: {self.told}")

    async def _check_end(self) -> None:
        assert self.end is not None
        behind = {text: place for text, place in self.topics[ENDED].published.items() if place[:2] > self.end}
        assert not behind, f"{behind} are behind the end at {self.end}"
        count = int(
            (await self._insist("GET", f"/admin/v2/persistent/{NAMESPACE}/grown/partitions", b"", (200,)))
            .decode()
            .partition('"partitions":')[2]
            .partition(",")[0]
            .rstrip("}")
        )
        assert count in self.partitions, f"there are {count} partitions, and {self.partitions} were asked for"
        for index in range(count):
            path = f"/admin/v2/persistent/{NAMESPACE}/grown-partition-{index}/subscriptions"
            subscriptions = await self._insist("GET", path, b"", (200,))
            assert subscriptions == b'["sub"]', f"partition {index} has {subscriptions!r}"


async def cluster_operations(world: SimWorld) -> None:
    """One story; raises where a promise was broken."""
    await OperationsStory(world).run()
