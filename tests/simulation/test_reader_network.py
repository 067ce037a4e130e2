"""Readers behind a hostile network: each message comes once, in its order, however often the subscription is made anew.

A subscription of a reader lives no longer than its connection: after a loss the client alone says where it goes on.
1. Messages are published while the network is sound. 2. Faults, as for consumers; the reader takes one message, or a
batch within limits of count and bytes, waits, is cancelled, seeks back to what it had. 3. Healed: the rest comes.
"""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga import sim
from geminga.runtime import spawn
from support.house.weekly_sample import SeedCheck, few_and_blocks
from support.worlds.client_scenario import ClientScenario
from support.worlds.client_world import SLOW, STRUCK

FAULTS_S = 15.0
#: Virtual seconds in which everything must have come once the network is healed.
HEALED_S = 90.0
MESSAGES = 150
BATCH = 7
TOPICS = tuple(f"persistent://public/default/t-{number}" for number in range(3))
#: What must have happened in every run of some tens of seeds.
FAULTS = (
    *STRUCK,
    *SLOW,
    "broker.restart",
    "read cancelled",
    "batch read",
    "reader back",
    "read while away",
    "read while asked",
    "sought",
)


class Reading:
    """What one reader has read of each topic: always the messages from some place on, each once."""

    def __init__(self, world: sim.SimWorld) -> None:
        self.world = world
        self.rng = world.rng("reading")
        #: Topic -> number of the message that comes next.
        self.next: dict[str, int] = {}
        #: Topic -> ids by number.
        self.ids: dict[str, list[gc.MessageId]] = {}
        #: Ids as they came: they name their topic.
        self.read: dict[tuple[str, int], gc.MessageId] = {}

    @property
    def count(self) -> int:
        """Messages read, of all topics."""
        return sum(self.next.values())

    def take(self, messages: list[gc.Message[bytes]]) -> None:
        for message in messages:
            topic = message.topic_name()
            number = self.next[topic]
            assert int(message.data()) == number, f"{topic}: {message.data()!r} came, {number} is the next one"
            assert message.message_id() == self.ids[topic][number]
            self.read[topic, number] = message.message_id()
            self.next[topic] += 1

    async def step(self, consumer: gc.Consumer[bytes]) -> None:
        """One call, of a kind by chance."""
        hits = self.world.points.hits
        dice = self.rng.random()
        was_connected = consumer.is_connected()
        was_asked = any(topic._attachment.is_subscribing for topic in consumer.held.all())
        before = self.count
        try:
            if dice < 0.6:
                self.take([await consumer.receive(3000)])
            elif dice < 0.8:
                self.take(await consumer.batch_receive())
                hits["batch read"] += self.count > before
            elif dice < 0.97 or self.world.now > FAULTS_S:
                await self._cancelled(consumer)
            else:
                await self._seek(consumer)
        except gc.Timeout:
            pass
        hits["read while away"] += not was_connected and self.count > before
        hits["read while asked"] += was_asked and self.count > before
        hits["reader back"] += not was_connected and consumer.is_connected()
        if self.rng.random() < 0.5:
            await self.world.sleep(self.rng.choice([0, 0.0005, 0.01, 0.3]))

    async def _cancelled(self, consumer: gc.Consumer[bytes]) -> None:
        task = spawn(consumer.receive(), name="cancelled read")
        await self.world.sleep(self.rng.choice([0, 0.001, 0.1]))
        task.cancel()
        await asyncio.wait([task])
        self.world.points.hits["read cancelled"] += task.cancelled()
        if not task.cancelled():
            self.take([task.result()])

    async def _seek(self, consumer: gc.Consumer[bytes]) -> None:
        """To a message it had; unknown whether it moved where the answer was lost, so it asks until it is told."""
        if not self.read:
            return
        topic, number = self.rng.choice(sorted(self.read))
        while True:
            try:
                await consumer.seek(self.read[topic, number])
            except gc.PulsarException as error:
                if not error.retriable:
                    raise
                await self.world.sleep(0.1)
                continue
            break
        self.world.points.hits["sought"] += 1
        self.next[topic] = number + 1


async def hostile_network(world: sim.SimWorld) -> None:
    rng = world.rng("scenario")
    stage = await ClientScenario(world).start()
    is_batched = rng.random() < 0.7
    topics = TOPICS[: rng.choice([1, 1, 3])]
    reading = Reading(world)
    options: gc.ConsumerArguments = {
        "is_durable": False,
        "start_message_id": gc.MessageId.earliest,
        "receiver_queue_size": rng.choice([1, 10, 1000]),
        "batch_receive_policy": gc.BatchReceivePolicy(rng.choice([-1, 5]), rng.choice([8, 40, 1000]), 50),
    }

    async def publish_all(_: sim.SimNode) -> None:
        options: gc.ProducerArguments = {"batching_enabled": is_batched, "batching_max_messages": BATCH}
        async with stage.connect() as client:
            for topic in topics:
                async with await client.create_producer(topic, **options) as producer:
                    sent = [spawn(producer.send(b"%d" % number), name="send") for number in range(MESSAGES)]
                    reading.ids[topic] = [await receipt for receipt in sent]
                    reading.next[topic] = 0

    async def read(_: sim.SimNode) -> None:
        async with stage.connect() as client:
            consumer = await stage.insist(lambda: client.subscribe(list(topics), "reader", **options))
            while reading.count < MESSAGES * len(topics):
                await reading.step(consumer)
            await consumer.close()
        assert client.pool.open_connections == 0

    await stage.client_node.run(publish_all)
    faults = stage.faults(rng, FAULTS_S)
    async with asyncio.timeout(FAULTS_S + HEALED_S):
        await stage.client_node.run(read)
    await faults
    await stage.check_nothing_left()


@pytest.mark.slow
@few_and_blocks(range(80, 1000), least=20, most=200, many=range(1000, 2000), block=50, hits_min=1)
def test_readers_survive_a_hostile_network(check: SeedCheck) -> None:
    check(hostile_network, FAULTS)
