"""What a failed call held is gone with its error: no cycle of traceback, frame and future waits for the collector."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import geminga.client as gc
from geminga.client.schema import Int32Schema, StringSchema
from geminga.client.schema._base import SchemaVersions
from geminga.runtime import next_turn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_partitions
from support.house.uncollected import uncollected
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import polite, run_against, run_with_broker

TOPIC = "persistent://public/default/topic"
CALLS = 5


async def failing(call: Callable[[], Awaitable[object]]) -> None:
    """Several, one after the other and together, the first of which has its own costs."""
    for at_once in (1, 1, CALLS):
        outcomes = await asyncio.gather(*(one_failing(call) for _ in range(at_once)))
        assert outcomes == [True] * at_once


async def left_by(call: Callable[[], Awaitable[object]]) -> list[str]:
    """Errors that are still there after a second time."""
    await failing(call)
    with uncollected() as found:
        await failing(call)
        await next_turn()
    return found


async def one_failing(call: Callable[[], Awaitable[object]]) -> bool:
    try:
        await call()
    except gc.PulsarException:
        return True
    return False


def silent(*kinds: str) -> Callable[[pb.BaseCommand], list[bytes]]:
    """A broker that does not answer these."""
    numbers = {pb.BaseCommand.Type.Value(kind) for kind in kinds}
    return lambda command: [] if command.type in numbers else subscribing(command)


def subscribing(command: pb.BaseCommand) -> list[bytes]:
    if command.type == pb.BaseCommand.SUBSCRIBE:
        return [commands.success(command.subscribe.request_id)]
    if command.type == pb.BaseCommand.CLOSE_CONSUMER:
        return [commands.success(command.close_consumer.request_id)]
    return polite(command)


def refusing(command: pb.BaseCommand) -> list[bytes]:
    """A broker that has no permission for anybody."""
    if command.type in (pb.BaseCommand.CONNECT, pb.BaseCommand.PING):
        return polite(command)
    if command.type == pb.BaseCommand.LOOKUP:
        return [commands.lookup_failed(command.lookupTopic.request_id, pb.AuthorizationError, "no")]
    for name in command.DESCRIPTOR.fields_by_name:
        if name != "type" and command.HasField(name) and hasattr(getattr(command, name), "request_id"):
            return [commands.error(getattr(command, name).request_id, pb.AuthorizationError, "no")]
    return []


def unwelcoming(command: pb.BaseCommand) -> list[bytes]:
    """A broker that lets nobody in."""
    assert command.type == pb.BaseCommand.CONNECT
    return [commands.error((1 << 64) - 1, pb.AuthenticationError, "no")]


CALLS_OF_A_CLIENT: dict[str, Callable[[gc.Client], Awaitable[object]]] = {
    "partitions": lambda client: client.get_topic_partitions(TOPIC),
    "producer": lambda client: client.create_producer(TOPIC),
    "consumer": lambda client: client.subscribe(TOPIC, "s"),
    "consumer of two": lambda client: client.subscribe([TOPIC, TOPIC + "2"], "s"),
    "reader": lambda client: client.create_reader(TOPIC, gc.MessageId.earliest),
    "transaction": lambda client: client.transaction(),
}


@pytest.mark.parametrize("name", CALLS_OF_A_CLIENT)
@pytest.mark.parametrize(
    "script",
    [
        unwelcoming,
        refusing,
        silent("PARTITIONED_METADATA"),
        silent("LOOKUP"),
        silent("PRODUCER", "SUBSCRIBE", "TC_CLIENT_CONNECT_REQUEST"),
    ],
    ids=["unwelcome", "refused", "no-partitions", "no-lookup", "no-answer"],
)
def test_failed_call_of_a_client_leaves_nothing(name: str, script) -> None:
    async def scenario(client: gc.Client) -> list[str]:
        async def call() -> None:
            # What succeeds here would be closed, and is none that fails.
            await CALLS_OF_A_CLIENT[name](client)
            raise gc.PulsarException("it did not fail")

        return await left_by(call)

    assert run_against(script, scenario, operation_timeout_ms=300) == []


async def acknowledged(client: gc.Client) -> Callable[[], Awaitable[object]]:
    consumer = await client.subscribe(TOPIC, "s", consumer_type=gc.ConsumerType.Shared, ack_receipt_enabled=True)
    return lambda: consumer.acknowledge(gc.MessageId(-1, 3, 5, -1))


async def closed(client: gc.Client) -> Callable[[], Awaitable[object]]:
    producer = await client.create_producer(TOPIC)
    await producer.close()
    return lambda: producer.send(b"x")


async def cut_off(client: gc.Client) -> Callable[[], Awaitable[object]]:
    producer = await client.create_producer(TOPIC, send_timeout_millis=200)
    other = await client.create_producer(TOPIC + "2", send_timeout_millis=200)

    async def both() -> None:
        await asyncio.gather(producer.send(bytes(1000)), other.flush())

    return both


async def seeking(client: gc.Client) -> Callable[[], Awaitable[object]]:
    consumer = await client.subscribe(TOPIC, "s")
    return lambda: consumer.seek(gc.MessageId.earliest)


async def nothing_came(client: gc.Client) -> Callable[[], Awaitable[object]]:
    consumer = await client.subscribe(TOPIC, "s")
    return lambda: consumer.receive(50)


async def asked_for_the_last(client: gc.Client) -> Callable[[], Awaitable[object]]:
    reader = await client.create_reader(TOPIC, gc.MessageId.earliest)
    return reader.has_message_available


@pytest.mark.parametrize(
    "opened", [acknowledged, closed, cut_off, seeking, nothing_came, asked_for_the_last], ids=lambda one: one.__name__
)
def test_failed_call_of_what_is_open_leaves_nothing(opened) -> None:
    async def scenario(client: gc.Client) -> list[str]:
        call = await opened(client)
        return await left_by(call)

    assert run_against(subscribing, scenario, operation_timeout_ms=300) == []


@pytest.mark.parametrize("batching", [True, False])
def test_send_without_a_receipt_leaves_nothing(batching: bool) -> None:
    async def scenario(client: gc.Client) -> list[str]:
        producer = await client.create_producer(TOPIC, batching_enabled=batching, send_timeout_millis=200)
        return await left_by(lambda: producer.send(bytes(1000)))

    assert run_against(subscribing, scenario, operation_timeout_ms=300) == []


def test_error_that_is_kept_does_not_grow_by_who_is_told_of_it() -> None:
    """Each time that a kept error is raised, its traceback is one frame longer, with all that the frame holds."""

    def depth(error: BaseException) -> int:
        found, entry = 0, error.__traceback__
        while entry is not None:
            found, entry = found + 1, entry.tb_next
        return found

    async def scenario(client: gc.Client) -> list[int]:
        producer = await client.create_producer(TOPIC)
        await producer.close()
        depths = []
        for _ in range(5):
            with pytest.raises(gc.PulsarException) as raised:
                await producer.send(b"x")
            depths.append(depth(raised.value))
        return depths

    depths = run_against(subscribing, scenario, operation_timeout_ms=300)
    assert len(set(depths)) == 1, depths


OF_A_BROKER: dict[str, Callable[[gc.Client], Awaitable[object]]] = {
    "namespace": lambda client: client.create_producer("persistent://public/nowhere/topic"),
    "busy": lambda client: client.subscribe(TOPIC, "taken"),
    "transaction": lambda client: client.end_transaction((0, 77), commit=True),
    "schema": lambda client: client.create_producer(TOPIC, schema=Int32Schema()),
}


@pytest.mark.parametrize("name", OF_A_BROKER)
def test_failed_call_leaves_nothing_at_the_broker(name: str) -> None:
    """It runs in the same process."""

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> list[str]:
        await client.subscribe(TOPIC, "taken")
        await client.create_producer(TOPIC, schema=StringSchema())

        async def call() -> None:
            await OF_A_BROKER[name](client)
            raise AssertionError("it did not fail")

        return await left_by(call)

    assert run_with_broker(scenario, operation_timeout_ms=300) == []


def test_version_of_a_schema_that_the_broker_does_not_tell_leaves_nothing() -> None:
    class Silent:
        async def get_schema(self, topic: str, version: bytes | None = None) -> None:
            await next_turn()
            raise gc.Timeout("no answer")

    async def main() -> None:
        versions = SchemaVersions(TOPIC, Silent())  # type: ignore[arg-type]
        await failing(lambda: versions.fetch(bytes(8)))
        with uncollected() as found:
            await failing(lambda: versions.fetch(bytes(8)))
            await next_turn()
        assert found == []

    asyncio.run(main())


def late(command: pb.BaseCommand) -> list[bytes]:
    """No receipts, and what is made is answered with the next PING."""
    if command.type == pb.BaseCommand.PING:
        answers, late_answers[:] = [*late_answers], []
        return [*answers, *polite(command)]
    if command.type in (pb.BaseCommand.SUBSCRIBE, pb.BaseCommand.PARTITIONED_METADATA) and slow_topic in str(command):
        late_answers.extend(subscribing(command))
        return []
    return subscribing(command)


late_answers: list[bytes] = []
slow_topic = "slow"


@pytest.mark.parametrize("what", ["consumer", "reader", "producer", "stream"])
def test_what_is_made_while_its_client_ends_is_refused(what: str) -> None:
    """Closing waits for a receipt; what is ready meanwhile would wait for ever for a client that is gone."""

    async def scenario(client: gc.Client) -> None:
        stuck = await client.create_producer("stuck", batching_enabled=False)
        stuck.send_nowait(b"x")
        stream: gc.EntryStream[gc.EntryBatch] = client.entry_stream("slow")
        makes: dict[str, Callable[[], Awaitable[object]]] = {
            "consumer": lambda: client.subscribe("slow", "s"),
            "reader": lambda: client.create_reader("slow", gc.MessageId.earliest),
            "producer": lambda: client.create_producer("slow"),
            "stream": lambda: gc.open_batches(stream),
        }
        making = asyncio.ensure_future(makes[what]())
        await wait_ms(100)
        closing = asyncio.ensure_future(client.close())
        await wait_ms(100)
        assert not making.done()
        assert not closing.done()
        with pytest.raises(gc.AlreadyClosed):
            await making
        assert not closing.done()
        await closing

    run_against(late, scenario)


def half_hung(command: pb.BaseCommand) -> list[bytes]:
    """Of two partitions one is answered for, and nobody who leaves."""
    if command.type == pb.BaseCommand.PARTITIONED_METADATA:
        return [encode_partitions(command.partitionMetadata.request_id, 2)]
    if command.type in (pb.BaseCommand.CLOSE_PRODUCER, pb.BaseCommand.CLOSE_CONSUMER):
        return []
    return [] if "-partition-1" in str(command) else subscribing(command)


@pytest.mark.parametrize("what", ["consumer", "reader", "view", "producer"])
def test_who_gives_up_opening_waits_for_no_broker(what: str) -> None:
    async def scenario(client: gc.Client) -> None:
        opening: dict[str, Callable[[], Awaitable[object]]] = {
            "consumer": lambda: client.subscribe(TOPIC, "s"),
            "reader": lambda: client.create_reader(TOPIC, gc.MessageId.earliest),
            "view": lambda: client.create_table_view(TOPIC),
            "producer": lambda: client.create_producer(TOPIC),
        }
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await opening[what]()
        assert asyncio.get_running_loop().time() - began == pytest.approx(1.0, abs=0.01)
        await client.close()
        assert not client.is_in_use

    run_against(half_hung, scenario, operation_timeout_ms=30_000)
