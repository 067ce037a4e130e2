"""Clients through proxies that are killed, before a broker that is restarted: nothing that was acknowledged is lost.

Two doors, the clients know both. Doors are killed without a word, in the middle of whatever passes, and come back;
links break; the broker stops cleanly or is abandoned. In the end each message whose ``send`` returned is stored, and
received, and nothing is left of the doors' connections.
"""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga import sim
from geminga.broker.access.anonymous import OPEN
from geminga.client import InitialPosition
from geminga.proxy.brokers import Brokers, FixedEntry
from geminga.proxy.config import ProxyConfig
from geminga.proxy.core.targets import AllowedTargets, Target
from geminga.proxy.service import ProxyService
from geminga.sim.seeds import run_seeds
from support.house.weekly_sample import run_week
from support.worlds.client_world import CLIENT, PORT, BrokerOnNode, insist

TOPIC = "persistent://public/default/t"
DOORS = ("door", "gate")
URL = "pulsar://" + ",".join(f"{door}:{PORT}" for door in DOORS)
MESSAGES = 60
KILLS = 4
#: What must really have happened.
LABELS = ("proxy.killed", "proxy.killed.relaying", "broker.restarted", "broker.abandoned", "links.broken")


async def open_door(node: sim.SimNode) -> ProxyService:
    async def resolve(host: str, port: int) -> list[str]:
        return [host]

    settings = ProxyConfig(connect_timeout_ms=2_000, read_timeout_ms=5_000)
    brokers = Brokers(
        node.runtime,
        AllowedTargets(["proxy"], ["*"], [str(PORT)]),
        resolve,
        authentication=None,
        tls=None,
        timeout_s=2,
        message_bytes_max=settings.message_bytes_max,
        version="test",
        sends_header=False,
    )
    entry = FixedEntry(Target("proxy", PORT))
    service = ProxyService(node.runtime, settings, OPEN, brokers, entry, version="proxy", handshake_s=5)
    await node.runtime.network.listen(service.connection, "0.0.0.0", PORT)
    return service


async def kills(world: sim.SimWorld) -> None:
    broker_node, client_node = world.node("proxy"), world.node("client")
    broker = BrokerOnNode(broker_node, keep_alive_interval_s=5)
    await broker_node.run(lambda _: broker.start())
    services = {door: await world.node(door).run(open_door) for door in DOORS}
    rng = world.rng("kills")
    is_over = asyncio.Event()

    async def misfortune() -> None:
        for _ in range(KILLS):
            await world.sleep(rng.uniform(0.2, 4))
            door = rng.choice(DOORS)
            world.points.hits["proxy.killed"] += 1
            if any(one._relay is not None for one in services[door].services.open):
                world.points.hits["proxy.killed.relaying"] += 1
            world.crash(world.node(door), power_loss=False, reset_peers=rng.random() < 0.7)
            await world.sleep(rng.uniform(0, 2))
            services[door] = await world.restart(world.node(door), open_door)
            kind = rng.choice(("broker.restarted", "broker.abandoned", "links.broken", "nothing"))
            world.points.hits[kind] += 1
            if kind == "broker.restarted":
                await broker_node.run(lambda _: broker.restart())
            elif kind == "broker.abandoned":
                await broker_node.run(lambda _: broker.abandon())
            elif kind == "links.broken":
                world.network.reset_connections(broker_node)
        is_over.set()

    async def story(_: sim.SimNode) -> tuple[list[bytes], set[bytes]]:
        acknowledged: list[bytes] = []
        received: set[bytes] = set()
        async with gc.connect(URL, runtime=client_node.runtime, **CLIENT) as client:
            # Nothing is trimmed: it takes no message.
            await insist(world, lambda: client.subscribe(TOPIC, "keeper", initial_position=EARLIEST))
            consumer = await insist(world, lambda: client.subscribe(TOPIC, "s", initial_position=EARLIEST))
            producer = await insist(world, lambda: client.create_producer(TOPIC))
            number = 0
            while number < MESSAGES or not is_over.is_set():
                payload = b"%d" % number
                await insist(world, lambda payload=payload: producer.send(payload))
                acknowledged.append(payload)
                number += 1
                await world.sleep(rng.uniform(0, 0.3))
            while not received.issuperset(acknowledged):
                async with asyncio.timeout(120):
                    message = await consumer.receive()
                received.add(message.data())
                await consumer.acknowledge(message)
        return acknowledged, received

    misfortunes = world.loop.create_task(misfortune())
    acknowledged, _ = await client_node.run(story)
    await misfortunes
    stored = {one.payload for one in await broker_node.run(lambda _: broker.messages(TOPIC))}
    assert stored >= set(acknowledged)
    await world.sleep(30)
    for door in DOORS:
        assert not services[door].services.open
        assert world.network.connections(world.node(door)) == []


EARLIEST = InitialPosition.Earliest


def test_nothing_acknowledged_is_lost_when_proxies_are_killed() -> None:
    run_week(kills, range(1, 1000), least=2, most=12, labels=LABELS)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_in_many_seeds() -> None:
    report = run_seeds(kills, range(1, 201))
    report.check(labels=LABELS)
