"""Exactly one of each: an application that dies and begins again, behind a hostile network and a broker that changes.

The application numbers its messages itself. It is killed at any moment, begins again under the same producer name, and
sends again either everything or what the broker says it does not have, in other batches each time. Connections are cut
at any byte, the broker restarts or is taken over while it writes. In the end the topic must hold each message once,
in order; elsewhere retries were dropped, batches had mixed ids, ids were acknowledged and not stored.
"""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga import sim
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from support.house.weekly_sample import SeedCheck, few_and_blocks
from support.worlds.client_world import CLIENT, STRUCK, URL, BrokerOnNode, HostileProxy

MESSAGES = 200
FAULTS_S = 20.0
HEALED_S = 60.0
TOPIC = "topic"
FAULTS = (*STRUCK, "application.killed", "application.sends again", "broker.restart", "broker.taken over")


class Application:
    """One life of it after the other; what it was told is kept outside, as a database would."""

    def __init__(self, world: sim.SimWorld) -> None:
        self.world = world
        self.rng = world.rng("application")
        self.acknowledged: set[int] = set()

    async def live(self, node: sim.SimNode) -> None:
        """Send everything that may be missing; ends when all of it is acknowledged."""
        rng = self.rng
        async with gc.connect(URL, runtime=node.runtime, **CLIENT) as client:
            producer = await self.create(client)
            stored = producer.last_sequence_id()
            sends_all = rng.random() < 0.5
            self.world.points.hits["application.sends again"] += sends_all and stored >= 0
            for number in range(0 if sends_all else stored + 1, MESSAGES):
                await self.send(producer, number)
                if rng.random() < 0.1:
                    await self.world.sleep(rng.uniform(0, 0.5))
            await producer.flush()

    async def create(self, client: gc.Client) -> gc.Producer[bytes]:
        rng = self.rng
        while True:
            try:
                return await client.create_producer(
                    TOPIC,
                    producer_name="application",
                    send_timeout_millis=0,
                    batching_enabled=rng.random() < 0.8,
                    batching_max_messages=rng.choice([2, 7, 50]),
                    batching_max_publish_delay_ms=rng.choice([1, 50]),
                )
            except gc.PulsarException as error:
                if not error.retriable and not isinstance(error, gc.ProducerBusy):
                    raise
                await self.world.sleep(0.1)

    async def send(self, producer: gc.Producer[bytes], number: int) -> None:
        def done(error: gc.PulsarException | None, message_id: gc.MessageId | None) -> None:
            assert error is None, f"message {number}: {error!r}"
            self.acknowledged.add(number)

        while True:
            try:
                producer.send_nowait(b"%d" % number, done, sequence_id=number)
            except gc.ProducerQueueIsFull:
                await producer.drain()
            else:
                return


async def resend(world: sim.SimWorld) -> None:
    rng = world.rng("scenario")
    broker_node, proxy_node, node = (world.node(name) for name in ("broker", "proxy", "client"))
    broker = BrokerOnNode(broker_node, deduplication=True, deduplication_snapshot_entries=rng.choice([3, 1000]))
    proxy = HostileProxy(world, proxy_node)
    await broker_node.run(lambda _: broker.start())
    await proxy_node.run(lambda _: proxy.start())
    application = Application(world)

    async def keep_everything(_: sim.SimNode) -> None:
        topic = await broker.broker.registry.get(TopicName.parse(TOPIC), create=True)
        await topic.create_subscription("keeper", EARLIEST)

    await broker_node.run(keep_everything)

    async def change_brokers(_: sim.SimNode) -> None:
        for _ in range(rng.randrange(4)):
            await world.sleep(rng.uniform(0, FAULTS_S / 4))
            is_clean = rng.random() < 0.5
            world.points.hits["broker.restart" if is_clean else "broker.taken over"] += 1
            await (broker.restart() if is_clean else broker.abandon())
        await world.sleep(max(FAULTS_S - world.now, 0))
        proxy.is_hostile = False

    changing = broker_node.run(change_brokers)
    life = node.run(application.live)
    while world.now < FAULTS_S:
        await world.sleep(rng.uniform(0.05, FAULTS_S / 2))
        world.points.hits["application.killed"] += 1
        life = world.restart(node, application.live)
    async with asyncio.timeout(FAULTS_S + HEALED_S):
        await asyncio.gather(changing, life)
    stored = await broker_node.run(lambda _: broker.messages(TOPIC))
    assert [int(message.payload) for message in stored] == list(range(MESSAGES))
    assert application.acknowledged <= set(range(MESSAGES))


@pytest.mark.slow
@few_and_blocks(range(1000), least=12, most=200, many=range(1000, 1500), block=50, hits_min=20)
def test_each_message_is_stored_once_however_often_it_is_sent(check: SeedCheck) -> None:
    check(resend, FAULTS)
