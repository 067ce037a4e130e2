"""Consumers behind a hostile network: no hang, no leak, nothing lost, and what was acknowledged stays acknowledged.

1. Messages are published while the network is sound. 2. Faults: connections are cut at any byte, go silent, are
refused, carry garbage; the broker restarts, is slow or stalls; receivers are cancelled. The consumer acknowledges
messages and ids, and some negatively. 3. The network is healed: everything must come and be acknowledged, in order of
the messages' first deliveries where the subscription type has one. 4. A new consumer gets nothing. Every kind of fault
is counted where it strikes, and must have struck.
"""

from __future__ import annotations

import asyncio
import re

import pytest

import geminga.client as gc
from geminga import sim
from geminga.model import TopicName
from geminga.runtime import spawn
from support.house.weekly_sample import SeedCheck, few_and_blocks, sampled
from support.worlds.client_scenario import ClientScenario
from support.worlds.client_world import SLOW, STRUCK

FAULTS_S = 15.0
#: Virtual seconds in which everything must have come once the network is healed.
HEALED_S = 90.0
MESSAGES = 150
TOPIC = "topic"
#: What must have happened in every run of some tens of seeds.
FAULTS = (
    *STRUCK,
    *SLOW,
    "broker.restart",
    "receive cancelled",
    "negative",
    "delivered again",
    "second consumer",
    "second consumer left",
)


class Consumption:
    """What one consumer of the scenario received and acknowledged."""

    def __init__(self, stage: ClientScenario, options: gc.ConsumerArguments) -> None:
        self.stage = stage
        self.world = world = stage.world
        self.rng = world.rng("consumption")
        self.options = options
        self.received: dict[bytes, int] = {}
        self.acknowledged: set[bytes] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.failures: list[gc.PulsarException] = []
        self.is_ordered = options["consumer_type"] in (gc.ConsumerType.Exclusive, gc.ConsumerType.Failover)

    async def subscribe(self, client: gc.Client) -> gc.Consumer[bytes]:
        return await self.stage.insist(lambda: client.subscribe(TOPIC, "sub", **self.options))

    async def run(self, client: gc.Client, expected: set[bytes], *, leaves_s: float = float("inf")) -> None:
        """Consume until everything is acknowledged, by whomever, or until it is time to leave."""
        consumer = await self.subscribe(client)
        while self.acknowledged < expected and self.world.now < leaves_s:
            message = await self.receive(consumer)
            if message is None:
                continue
            times = self.received.get(message.data(), 0)
            self.received[message.data()] = times + 1
            self.world.points.hits["delivered again"] += times > 0
            dice = self.rng.random()
            if dice < 0.1:
                self.world.points.hits["negative"] += 1
                await consumer.negative_acknowledge(message)
            elif dice < 0.13:
                await self.world.sleep(self.rng.uniform(0, 1))
                self.acknowledge(consumer, message)
            else:
                self.acknowledge(consumer, message)
        if self.tasks:
            await asyncio.wait(self.tasks)
        await consumer.close()
        assert consumer.stats().pending_acks == 0

    async def receive(self, consumer: gc.Consumer[bytes]) -> gc.Message[bytes] | None:
        """A message; None if it was given up: by its own time limit, or cancelled from outside."""
        if self.rng.random() < 0.8:
            try:
                return await consumer.receive(3000)
            except gc.Timeout:
                return None
        task = spawn(consumer.receive(), name="cancelled receive")
        await self.world.sleep(self.rng.choice([0, 0.001, 0.1]))
        task.cancel()
        await asyncio.wait([task])
        self.world.points.hits["receive cancelled"] += task.cancelled()
        return None if task.cancelled() else task.result()

    def acknowledge(self, consumer: gc.Consumer[bytes], message: gc.Message[bytes]) -> None:
        task = spawn(self._acknowledge(consumer, message), name="acknowledge")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _acknowledge(self, consumer: gc.Consumer[bytes], message: gc.Message[bytes]) -> None:
        what = message if self.rng.random() < 0.7 else message.message_id()
        try:
            await consumer.acknowledge(what)
        except gc.PulsarException as error:
            self.failures.append(error)
            return
        self.acknowledged.add(message.data())


async def publish(client: gc.Client, *, batched: bool) -> set[bytes]:
    async with await client.create_producer(TOPIC, batching_enabled=batched, batching_max_messages=7) as producer:
        payloads = [b"%d" % number for number in range(MESSAGES)]
        for number, payload in enumerate(payloads):
            producer.send_nowait(payload, partition_key=f"k{number % 5}")
    return set(payloads)


async def hostile_network(world: sim.SimWorld) -> None:
    rng = world.rng("scenario")
    stage = await ClientScenario(world).start()
    is_batched = rng.random() < 0.6
    consumption = Consumption(
        stage,
        {
            "consumer_type": rng.choice(list(gc.ConsumerType)),
            "initial_position": gc.InitialPosition.Earliest,
            "receiver_queue_size": rng.choice([1, 10, 1000]),
            "ack_receipt_enabled": True,
            "ack_group_time_ms": rng.choice([0, 100]),
            "batch_index_ack_enabled": rng.random() < 0.5,
            "negative_ack_redelivery_delay_ms": rng.choice([100, 1000]),
            "unacked_messages_timeout_ms": rng.choice([0, 2000]),
        },
    )

    has_second = consumption.options["consumer_type"] is not gc.ConsumerType.Exclusive and rng.random() < 0.5

    async def publish_all(_: sim.SimNode) -> set[bytes]:
        async with stage.connect() as client:
            # The subscription exists before the faults begin.
            await (await client.subscribe(TOPIC, "sub", **consumption.options)).close()
            return await publish(client, batched=is_batched)

    async def consume(_: sim.SimNode) -> None:
        async with stage.connect() as client:
            await consumption.run(client, expected)
        assert client.pool.open_connections == 0

    async def consume_too(_: sim.SimNode) -> None:
        if not has_second:
            return
        world.points.hits["second consumer"] += 1
        leaves_s = world.now + rng.uniform(0, rng.choice([FAULTS_S / 4, 2 * FAULTS_S]))
        async with stage.connect() as client:
            await consumption.run(client, expected, leaves_s=leaves_s)
        world.points.hits["second consumer left"] += consumption.acknowledged < expected

    async def look(_: sim.SimNode) -> list[bytes]:
        async with stage.connect() as client:
            consumer = await consumption.subscribe(client)
            try:
                return [(await consumer.receive(3000)).data()]
            except gc.Timeout:
                return []

    expected = await stage.client_node.run(publish_all)
    faults = stage.faults(rng, FAULTS_S)
    async with asyncio.timeout(FAULTS_S + HEALED_S):
        await asyncio.gather(stage.client_node.run(consume), stage.client_node.run(consume_too))
    await faults
    if consumption.is_ordered and not has_second:
        order = [int(payload) for payload in consumption.received]
        assert order == sorted(order), f"order of first deliveries: {order}"
    assert set(consumption.received) == expected
    assert [error for error in consumption.failures if not error.retriable] == []
    found = await stage.client_node.run(look)
    # Without acknowledgment by index, a batch that the broker took back before all of it was acknowledged comes whole.
    was_taken_back = stage.broker.restarts or has_second
    is_whole = is_batched and not consumption.options["batch_index_ack_enabled"]
    assert found == [] or (is_whole and was_taken_back), found
    await stage.check_nothing_left()


@pytest.mark.slow
@few_and_blocks(range(1000), least=12, most=200, many=range(1000, 2000), block=50, hits_min=1)
def test_consumers_survive_a_hostile_network(check: SeedCheck) -> None:
    check(hostile_network, FAULTS)


async def topics_come_and_go(world: sim.SimWorld) -> None:
    """1. A pattern's topics are created and deleted under faults. 2. Healed: the consumer has those that are there,
    deleted ones were not created again, and what is published everywhere comes."""
    rng = world.rng("scenario")
    stage = await ClientScenario(world, topic_list_watcher=rng.random() < 0.8).start()
    broker = stage.broker
    there: set[str] = set()

    async def change_topics(_: sim.SimNode) -> None:
        while world.now < FAULTS_S:
            await world.sleep(rng.uniform(0, 1))
            if rng.random() < 0.05:
                world.points.hits["broker.restart"] += 1
                await broker.restart()
            name = f"persistent://public/default/a-{rng.randrange(6)}"
            if name in there:
                await broker.broker.registry.delete(TopicName.parse(name), force=True)
                there.discard(name)
                world.points.hits["deleted"] += 1
            else:
                await broker.broker.registry.get(TopicName.parse(name), create=True)
                there.add(name)
        stage.proxy.is_hostile = False

    async def follow(_: sim.SimNode) -> None:
        options: gc.ConsumerArguments = {
            "pattern_auto_discovery_period_ms": 3000,
            "consumer_type": gc.ConsumerType.Shared,
        }
        async with stage.connect() as client:
            consumer = await client.subscribe(re.compile("a-.*"), "sub", **options)
            stage.proxy.is_hostile = True
            await stage.broker_node.run(change_topics)
            await world.sleep(40)
            world.points.hits["watching"] += consumer.discovery is not None and consumer.discovery.is_watching
            assert set(consumer.topics()) == there
            assert set(await broker.broker.registry.list("public/default")) == there
            for name in sorted(there):
                async with await client.create_producer(name) as producer:
                    await producer.send(name.encode())
            came: set[str] = set()
            while came != there:  # a message may come twice, if a connection that was cursed before breaks now
                came.add((await consumer.receive(5000)).data().decode())

    async with asyncio.timeout(FAULTS_S + HEALED_S):
        await stage.client_node.run(follow)
    await stage.check_nothing_left()
    assert not any(connection.members.watchers for connection in broker.broker.connections.open)


PATTERN_FAULTS = ("network.cut down", "network.silence", "broker.restart", "deleted", "watching")


@pytest.mark.slow
@few_and_blocks(range(1000), least=12, most=200, many=range(1000, 2000), block=250, hits_min=1)
def test_a_pattern_follows_topics_through_a_hostile_network(check: SeedCheck) -> None:
    check(topics_come_and_go, PATTERN_FAULTS)


@pytest.mark.parametrize(
    "step",
    sampled(
        "steps of a consumer that are cancelled",
        ["subscribe", "receive", "batch", "acknowledge", "seek", "reader", "view", "close"],
        3,
    ),
)
def test_cancelling_at_every_await_leaves_nothing_behind(step: str) -> None:
    """Each step is cancelled after some virtual time, a little later each round; the client still works afterwards."""

    async def main(world: sim.SimWorld) -> int:
        stage = await ClientScenario(world).start()

        async def once(delay_s: float) -> bool:
            async with stage.connect() as client:
                producer = await client.create_producer(TOPIC)
                options = {"initial_position": gc.InitialPosition.Earliest, "ack_receipt_enabled": True}
                policy = gc.BatchReceivePolicy(5, -1, 50)
                consumer = await client.subscribe(TOPIC, "sub", batch_receive_policy=policy, **options)
                await producer.send(b"before", partition_key="k")
                message = await consumer.receive(5000)
                work = {
                    "subscribe": lambda: client.subscribe(TOPIC, "other"),
                    "receive": lambda: consumer.receive(20),
                    "batch": lambda: consumer.batch_receive(),
                    "acknowledge": lambda: consumer.acknowledge(message),
                    "seek": lambda: consumer.seek(gc.MessageId.earliest),
                    "reader": lambda: client.create_reader(TOPIC, gc.MessageId.earliest),
                    "view": lambda: client.create_table_view(TOPIC),
                    "close": lambda: consumer.close(),
                }[step]
                task = spawn(_ignoring_errors(work()), name=step)
                await world.sleep(delay_s)
                is_done = task.done()
                task.cancel()
                await asyncio.wait([task])
                if step != "close":
                    await producer.send(b"after")
                    async with asyncio.timeout(20):
                        while (await consumer.receive()).data() != b"after":
                            pass
                    await consumer.seek(gc.MessageId.latest)
            assert client.pool.open_connections == 0
            return is_done

        rounds = 0
        async with asyncio.timeout(2000):
            while not await stage.client_node.run(lambda _, delay_s=rounds * 0.0005: once(delay_s)):
                rounds += 1
        await stage.check_nothing_left()
        for topic in stage.broker.broker.topics.values():
            consumers = [len(subscription.consumers) for subscription in topic.subscriptions.values()]
            assert not any(consumers), "a consumer of a cancelled step stayed on the broker"
        return rounds

    assert sim.run(main) >= 1


async def _ignoring_errors(work) -> None:
    try:
        await work
    except gc.PulsarException:
        pass
