"""The loads: each sets a world up, and gives a step that sends so many messages in lock step to be measured.

All is one process without sockets, threads and clocks: ``geminga.sim`` with the worlds of ``tests/support``. A row of
several brokers and bookies is one too, with all their work and that of the simulated network in its figures.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import geminga.client as gc
from bench.guard.rows import BATCH, WINDOW
from geminga import sim
from geminga.bookie import LocalBookie
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import encode_batch
from geminga.wire.pulsar.commands import encode_command
from geminga.wire.pulsar.metadata import encode_entry
from support.clusters.bookie_ensemble import SMALL
from support.clusters.cluster_world import LEDGERS, PARTITIONED, ClusterWorld
from support.worlds.bookies import Listed
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, send_frame
from support.worlds.client_world import URL, BrokerOnNode
from support.worlds.rest_world import ask, rest_application

#: Sends so many messages, and waits for what is due for each.
Step = Callable[[int], Awaitable[None]]
#: Takes the step, and returns when all was measured.
Measure = Callable[[Step], Awaitable[None]]
#: Its number are the messages of all steps together.
Load = Callable[[sim.SimWorld, Measure, int], Awaitable[None]]

PAYLOAD: Final = b"x" * 100
SUBSCRIPTIONS: Final = 10
CONSUMERS: Final = 3
PERMITS: Final = 1_000_000
#: No ledger ends while it is measured.
_LONG: Final = {"max_entries_per_ledger": 1_000_000}
#: A client whose timers are long: nothing is missed here, and their turns would depend on how long the load takes.
_PATIENT: Final[gc.ClientArguments] = {"operation_timeout_ms": 30_000}


def _with_broker(scenario: Callable[[BrokerWorld, Measure, int], Awaitable[None]]) -> Load:
    """A broker over a real bookie on a simulated disk, and clients that speak frames without a network."""

    async def load(world: sim.SimWorld, measure: Measure, total: int) -> None:
        async def on_node(node: sim.SimNode) -> None:
            bookie = await LocalBookie.open(node.runtime, "/bookie", SMALL, ledgers=Listed())
            broker_world = BrokerWorld(node.runtime, BrokerConfig(), ManagedLedgerConfig(**_LONG), bookie=bookie)
            await broker_world.start()
            await scenario(broker_world, measure, total)
            await broker_world.stop()
            await bookie.close()

        await world.node("broker").run(on_node)

    return load


class _Sender:
    """Publishes one frame after the other; what it sends was encoded by this tree's test code."""

    def __init__(self, client: Client, **fields: Any) -> None:
        self._client = client
        self._fields = fields
        self._next = 0

    async def send(self) -> None:
        sequence_id, self._next = self._next, self._next + 1
        metadata = {"partition_key": f"k{sequence_id % 16}"}
        self._client.send_bytes(send_frame(sequence_id, PAYLOAD, metadata=metadata, **self._fields))
        await self._client.receipt()


async def _producer(world: BrokerWorld) -> _Sender:
    client = await world.client()
    await client.create_producer()
    return _Sender(client)


async def _publish_small(world: BrokerWorld, measure: Measure, _: int) -> None:
    sender = await _producer(world)

    async def step(count: int) -> None:
        for _ in range(count):
            await sender.send()

    await measure(step)


async def _publish_batched(world: BrokerWorld, measure: Measure, _: int) -> None:
    client = await world.client()
    await client.create_producer()
    sent = 0

    async def step(count: int) -> None:
        nonlocal sent
        for _ in range(count // BATCH):
            metadata = pb.MessageMetadata(
                producer_name="producer", sequence_id=sent, publish_time=1, num_messages_in_batch=BATCH
            )
            entry = encode_entry(metadata, encode_batch([PAYLOAD] * BATCH, sent))
            client.send_bytes(send_frame(sent, entry=entry, num_messages=BATCH))
            await client.receipt()
            sent += BATCH

    await measure(step)


def _ack(message: pb.BaseCommand, consumer_id: int) -> bytes:
    ack = pb.CommandAck(
        consumer_id=consumer_id, ack_type=pb.CommandAck.Individual, message_id=[message.message.message_id]
    )
    return encode_command(pb.BaseCommand(type=Type.ACK, ack=ack))


async def _take(client: Client) -> None:
    """Receive one message, and acknowledge it."""
    command = await client.expect(Type.MESSAGE)
    client.send_bytes(_ack(command, command.message.consumer_id))


async def _fan_out(world: BrokerWorld, measure: Measure, _: int) -> None:
    sender = await _producer(world)
    clients = [await world.client() for _ in range(SUBSCRIPTIONS)]
    for number, client in enumerate(clients):
        await client.subscribe(subscription=f"sub-{number}", permits=PERMITS)

    async def step(count: int) -> None:
        for _ in range(count):
            await sender.send()
            for client in clients:
                await _take(client)

    await measure(step)


def _several_consumers(kind: Any) -> Load:
    async def scenario(world: BrokerWorld, measure: Measure, _: int) -> None:
        sender = await _producer(world)
        client = await world.client()
        for number in range(1, CONSUMERS + 1):
            await client.subscribe(consumer_id=number, subType=kind, permits=PERMITS)

        async def step(count: int) -> None:
            for _ in range(count):
                await sender.send()
                await _take(client)

        await measure(step)

    return _with_broker(scenario)


async def _catch_up(world: BrokerWorld, measure: Measure, total: int) -> None:
    sender = await _producer(world)
    for _ in range(total):
        await sender.send()
    # What is read comes from the bookie: nothing is in the caches of a broker that has just started.
    await world.restart()
    client = await world.client()
    await client.subscribe(permits=1)
    await _take(client)
    flow = encode_command(pb.BaseCommand(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=WINDOW)))

    async def step(count: int) -> None:
        for _ in range(count // WINDOW):
            client.send_bytes(flow)
            for _ in range(WINDOW):
                await _take(client)

    await measure(step)


def _with_client(scenario: Callable[[gc.Client, Measure], Awaitable[None]], **settings: Any) -> Load:
    """Our client and a broker on two nodes of a simulated network."""

    async def load(world: sim.SimWorld, measure: Measure, _: int) -> None:
        # Its address is "proxy" in the broker's endpoints; there is none here.
        broker_node = world.node("proxy")

        async def serve(node: sim.SimNode) -> None:
            await BrokerOnNode(node, **settings).start()

        async def use(node: sim.SimNode) -> None:
            async with gc.connect(URL, runtime=node.runtime, **_PATIENT) as client:
                await scenario(client, measure)

        await broker_node.run(serve)
        await world.node("client").run(use)

    return load


async def _client_publishes(client: gc.Client, measure: Measure) -> None:
    producer = await client.create_producer(TOPIC, batching_enabled=False)

    async def step(count: int) -> None:
        for _ in range(count):
            await producer.send(PAYLOAD)

    await measure(step)


async def _client_consumes(client: gc.Client, measure: Measure) -> None:
    producer = await client.create_producer(TOPIC, batching_enabled=False)
    consumer = await client.subscribe(TOPIC, "sub")
    await _pass_through(producer, consumer, measure)


async def _pass_through(producer: Any, consumer: Any, measure: Measure) -> None:
    """Each message is sent, received and acknowledged before the next."""

    async def step(count: int) -> None:
        for _ in range(count):
            await producer.send(PAYLOAD)
            await consumer.acknowledge(await consumer.receive())

    await measure(step)


async def _transaction(client: gc.Client, measure: Measure) -> None:
    source = await client.create_producer(TOPIC, batching_enabled=False)
    target = await client.create_producer(f"{TOPIC}-target", batching_enabled=False)
    consumer = await client.subscribe(TOPIC, "sub")

    async def step(count: int) -> None:
        for _ in range(count):
            await source.send(PAYLOAD)
            message = await consumer.receive()
            txn = await client.transaction(60)
            await target.send(PAYLOAD, txn=txn)
            await consumer.acknowledge(message, txn=txn)
            await txn.commit()

    await measure(step)


def _rest(method: str, path: str, body: Callable[[int], bytes]) -> Load:
    """Calls of the admin REST as an application, without HTTP's bytes."""

    async def scenario(world: BrokerWorld, measure: Measure, _: int) -> None:
        sender = await _producer(world)
        await (await world.client()).subscribe()
        for _ in range(10):
            await sender.send()
        application = rest_application(world.broker)
        asked = 0

        async def step(count: int) -> None:
            nonlocal asked
            for _ in range(count):
                asked += 1
                answer = await ask(application, method, path, body(asked))
                if answer.status >= 300:
                    raise RuntimeError(f"{method} {path}: {answer}")

        await measure(step)

    return _with_broker(scenario)


def _cluster(brokers: int, bookies: int, quorums: tuple[int, int, int]) -> Load:
    """Brokers and bookies that only meet over the network, the metadata node, and our client on a node of its own."""

    async def load(world: sim.SimWorld, measure: Measure, _: int) -> None:
        ensemble, write, ack = quorums
        ledgers = replace(LEDGERS, ensemble_size=ensemble, write_quorum=write, ack_quorum=ack, **_LONG)
        cluster = ClusterWorld(
            world,
            names=[chr(ord("a") + number) for number in range(brokers)],
            bookies=[f"bookie-{number}" for number in range(bookies)],
            ledgers=ledgers,
        )
        await cluster.start()

        async def use(node: sim.SimNode) -> None:
            async with gc.connect(f"pulsar://{cluster.url}", runtime=node.runtime, **_PATIENT) as client:
                producer = await client.create_producer(PARTITIONED, batching_enabled=False)
                consumer = await client.subscribe(PARTITIONED, "sub")
                await _pass_through(producer, consumer, measure)

        await world.node("client").run(use)

    return load


def _nothing(_: int) -> bytes:
    return b""


def _minutes(number: int) -> bytes:
    return b"%d" % (3600 + number % 2)


_STATS = "/admin/v2/persistent/public/default/topic/stats"
_TTL = "/admin/v2/namespaces/public/default/messageTTL"

#: By the names of :data:`bench.guard.rows.ROWS`.
LOADS: Final[dict[str, Load]] = {
    "publish small": _with_broker(_publish_small),
    "publish batched": _with_broker(_publish_batched),
    "fan-out 10": _with_broker(_fan_out),
    "Shared": _several_consumers(pb.CommandSubscribe.Shared),
    "Key_Shared": _several_consumers(pb.CommandSubscribe.Key_Shared),
    "catch-up": _with_broker(_catch_up),
    "client publishing": _with_client(_client_publishes),
    "client consuming": _with_client(_client_consumes),
    "transaction": _with_client(_transaction, transaction_coordinator_enabled=True),
    "REST statistics": _rest("GET", _STATS, _nothing),
    "policy POST": _rest("POST", _TTL, _minutes),
    "--brokers 2": _cluster(2, 1, (1, 1, 1)),
    "cluster 3/2/2": _cluster(3, 3, (3, 2, 2)),
}
