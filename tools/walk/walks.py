"""The walks: each is done a few times in a simulated world, then once more under a trace.

A broker stands over a real bookie on a simulated node, so that what is traced goes down to the journal and comes back;
the simulator's disk and network, and what the client in here calls, do not count.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from geminga import sim
from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookie.serving import BookieServer
from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.bookkeeper.core.addresses import BookieAddress
from geminga.bookkeeper.remote import ListedBookie, RemoteBookiePool
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.memory import MemoryMetadataStore
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import encode_command
from support.clusters.transacting import Transacting
from support.worlds.bookies import Listed
from support.worlds.broker_world import BrokerWorld, Client, Type, send_frame
from support.worlds.rest_world import ask, rest_application
from tools.walk.tracing import Trace, traced

#: Done so often before the trace, so that nothing is loaded or made for the first time in it.
WARM: Final = 3
#: Of the walk over the network.
BOOKIES: Final = 3
BOOKIE_PORT: Final = 3181
#: Virtual seconds until a pool has tried its connections.
CONNECTED_S: Final = 60.0
NAMESPACE_PATH: Final = "/admin/v2/namespaces/public/default"
TOPIC_PATH: Final = "/admin/v2/persistent/public/default/topic"
#: Where what the broker wrote reaches the client of the test.
CLIENT_TAKES: Final = (Client._on_write.__code__,)


async def _bookie(node: sim.SimNode) -> LocalBookie:
    config = BookieConfig(journal_pre_alloc_size_mb=1)
    return await LocalBookie.open(node.runtime, "/bookie", config, ledgers=Listed())


def _with_broker(scenario: Callable[[BrokerWorld], Awaitable[Trace]], **settings: object) -> Trace:
    async def main(world: sim.SimWorld) -> Trace:
        async def on_node(node: sim.SimNode) -> Trace:
            bookie = await _bookie(node)
            config = BrokerConfig(**settings)
            broker_world = BrokerWorld(node.runtime, config, ManagedLedgerConfig(), bookie=bookie)
            await broker_world.start()
            trace = await scenario(broker_world)
            await broker_world.stop()
            await bookie.close()
            return trace

        return await world.node("broker").run(on_node)

    return sim.run(main)


def send() -> Trace:
    """SEND of one message, from its bytes to its receipt."""

    async def scenario(world: BrokerWorld) -> Trace:
        client = await world.client()
        await client.create_producer()
        for sequence_id in range(WARM):
            await client.publish(sequence_id)
        frame = send_frame(WARM)
        with traced(CLIENT_TAKES) as trace:
            client.send_bytes(frame)
            await client.receipt()
        return trace

    return _with_broker(scenario)


def ack() -> Trace:
    """ACK of one message, from its bytes to the response that it asks for."""

    async def scenario(world: BrokerWorld) -> Trace:
        client = await world.client()
        await client.create_producer()
        for sequence_id in range(WARM + 1):
            await client.publish(sequence_id)
        await client.subscribe()
        frames = []
        for request_id in range(100, 101 + WARM):
            message_id = (await client.expect(Type.MESSAGE)).message.message_id
            ack = pb.CommandAck(
                consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[message_id], request_id=request_id
            )
            frames.append(encode_command(pb.BaseCommand(type=Type.ACK, ack=ack)))
        for frame in frames[:-1]:
            client.send_bytes(frame)
            await client.expect(Type.ACK_RESPONSE)
        with traced(CLIENT_TAKES) as trace:
            client.send_bytes(frames[-1])
            await client.expect(Type.ACK_RESPONSE)
        return trace

    return _with_broker(scenario)


def commit() -> Trace:
    """END_TXN of a transaction with one message, from the request to its response."""

    async def scenario(world: BrokerWorld) -> Trace:
        writer = Transacting(await world.client())
        await writer.client.create_producer()

        async def prepared() -> pb.CommandEndTxn:
            txn_id = await writer.begin()
            await writer.add_partition(txn_id)
            await writer.publish(b"payload", txn_id)
            return pb.CommandEndTxn(
                request_id=writer.client.next_request_id(),
                txn_action=pb.COMMIT,
                txnid_most_bits=txn_id.coordinator,
                txnid_least_bits=txn_id.number,
            )

        async def ended(frame: bytes) -> None:
            writer.client.send_bytes(frame)
            response = (await writer.client.expect(Type.END_TXN_RESPONSE)).endTxnResponse
            assert not response.HasField("error"), response

        for _ in range(WARM):
            await ended(encode_command(pb.BaseCommand(type=Type.END_TXN, endTxn=await prepared())))
        frame = encode_command(pb.BaseCommand(type=Type.END_TXN, endTxn=await prepared()))
        with traced(CLIENT_TAKES) as trace:
            await ended(frame)
        return trace

    return _with_broker(scenario, transaction_coordinator_enabled=True)


def _request(method: str, path: str, status: int, bodies: Callable[[int], bytes]) -> Trace:
    """A request that was made before, with other bodies, beside a producer and a consumer of the topic."""

    async def scenario(world: BrokerWorld) -> Trace:
        client = await world.client()
        await client.create_producer()
        await client.subscribe()
        await client.publish(0)
        await client.expect(Type.MESSAGE)
        application = rest_application(world.broker)
        for number in range(WARM):
            answer = await ask(application, method, path, bodies(number))
            assert answer.status == status, answer
        body = bodies(WARM)
        with traced(CLIENT_TAKES) as trace:
            await ask(application, method, path, body)
        return trace

    return _with_broker(scenario)


def _retention(number: int) -> bytes:
    return json.dumps({"retentionTimeInMinutes": number + 1, "retentionSizeInMB": -1}).encode()


def namespace_policy() -> Trace:
    """POST of a namespace's retention, with one loaded topic, from the request to its answer."""
    return _request("POST", f"{NAMESPACE_PATH}/retention", 204, _retention)


def topic_policy() -> Trace:
    """POST of a topic's retention, from the request to its answer."""
    return _request("POST", f"{TOPIC_PATH}/retention", 204, _retention)


def topic_stats() -> Trace:
    """GET of the statistics of a topic with a producer and a consumer, from the request to its answer."""
    return _request("GET", f"{TOPIC_PATH}/stats", 200, lambda _: b"")


def replicated_add() -> Trace:
    """Append of one entry to a ledger on three bookies behind sockets, from the call until two have it on disk.

    The third bookie's part counts as far as it runs until then.
    """

    async def main(world: sim.SimWorld) -> Trace:
        bookies = [world.node(f"b{number}") for number in range(BOOKIES)]

        async def serve(node: sim.SimNode) -> None:
            await BookieServer.listen(node.runtime, await _bookie(node), "0.0.0.0", BOOKIE_PORT)

        for node in bookies:
            await node.run(serve)

        async def writes(node: sim.SimNode) -> Trace:
            pool = RemoteBookiePool(node.runtime)
            addresses = [BookieAddress(bookie.name, BOOKIE_PORT) for bookie in bookies]
            pool.set_listed({f"{each.host}:{BOOKIE_PORT}": ListedBookie(each, False) for each in addresses})
            await world.sleep(CONNECTED_S)
            store = MemoryMetadataStore(node.runtime)
            bookkeeper = BookKeeper(node.runtime, store, pool)
            handle = await bookkeeper.create_ledger(ensemble_size=BOOKIES, write_quorum=BOOKIES, ack_quorum=2)
            for _ in range(WARM):
                await _appended(world, handle)
                await world.sleep(1.0)
            with traced() as trace:
                await _appended(world, handle)
            await world.sleep(1.0)
            await handle.close()
            await pool.close()
            return trace

        return await world.node("writer").run(writes)

    return sim.run(main)


async def _appended(world: sim.SimWorld, handle: LedgerHandle) -> None:
    done = world.loop.create_future()
    handle.append([b"payload"], lambda _first, _count, error: done.set_result(error))
    assert await done is None


WALKS: Final[Mapping[str, Callable[[], Trace]]] = MappingProxyType(
    {
        "SEND": send,
        "ACK": ack,
        "commit": commit,
        "policy of a namespace": namespace_policy,
        "policy of a topic": topic_policy,
        "topic stats": topic_stats,
        "replicated add": replicated_add,
    }
)
