"""Connections: handshake, keep-alive, batches of frames, back-pressure, broken clients."""

from __future__ import annotations

import asyncio

import pytest

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PING_FRAME, PONG_FRAME, encode_command
from geminga.wire.pulsar.frame import encode_frame
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker, send_frame
from support.worlds.policy_levels import seconds


def connect_frame(version: int = 21) -> bytes:
    connect = pb.CommandConnect(client_version="test-1", protocol_version=version, auth_method_name="whatever")
    return encode_command(pb.BaseCommand(type=Type.CONNECT, connect=connect))


def test_connect_answers_with_common_version_and_limits() -> None:
    async def scenario(world: BrokerWorld) -> None:
        for version, expected in ((21, 21), (15, 15), (99, 21)):
            client = Client(world.broker)
            client.send_bytes(connect_frame(version))
            connected = (await client.expect(Type.CONNECTED)).connected
            assert connected.protocol_version == expected
            assert connected.max_message_size == 1000
            assert connected.server_version == "Geminga test"
            assert connected.feature_flags.supports_topic_watchers
            assert connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation

    run_with_broker(scenario, message_bytes_max=1000)


@pytest.mark.parametrize(
    "data",
    [
        PING_FRAME,  # before CONNECT
        connect_frame() + connect_frame(),
        connect_frame() + b"\x00\x00\x00\x00\x00\x00\x00\x00",
        connect_frame() + b"\x7f\xff\xff\xff\x00\x00\x00\x04",
        connect_frame() + b"\x00\x00\x00\x06\x00\x00\x00\x04\x08\x06",
        connect_frame() + encode_frame(b"\x08\x5a"),
        connect_frame() + encode_frame(b"\x08\x0d"),
        connect_frame() + encode_frame(b"\x08\x07"),
        connect_frame() + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        connect_frame() + send_frame(0, producer_id=7),
    ],
)
def test_broken_client_is_closed_with_one_line(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        client.send_bytes(data)
        assert client.is_closed
        await asyncio.sleep(0)  # noqa: TID251  # one turn of the loop
        assert not world.broker.connections.open

    run_with_broker(scenario)
    assert len([record for record in caplog.records if "closing connection" in record.message]) == 1


def test_invalid_text_is_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        producer = pb.CommandProducer(topic="abc", producer_id=1, request_id=1)
        frame = encode_command(pb.BaseCommand(type=Type.PRODUCER, producer=producer))
        client.send_bytes(frame.replace(b"abc", b"\xff\xfe\xfd"))
        assert client.is_closed

    run_with_broker(scenario)


def test_silent_client_is_pinged_then_closed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        await client.expect(Type.PING)
        client.send_bytes(PONG_FRAME)
        await client.expect(Type.PING)
        await seconds(31)
        assert client.is_closed

    run_with_broker(scenario)


def test_client_without_handshake_is_closed() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        await seconds(31)
        assert client.is_closed

    run_with_broker(scenario)


def test_ping_is_answered() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.send_bytes(PING_FRAME)
        await client.expect(Type.PONG)

    run_with_broker(scenario)


def test_sends_of_one_read_are_one_append_and_one_write() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        calls = world.bookie.add_calls
        writes = []
        on_write = client.transport.on_write
        client.transport.on_write = lambda data: (writes.append(data), on_write(data))
        client.send_bytes(b"".join(send_frame(index) for index in range(1, 101)))
        receipts = [await client.receipt() for _ in range(100)]
        assert [receipt.sequence_id for receipt in receipts] == list(range(1, 101))
        assert [receipt.message_id.entryId for receipt in receipts] == list(range(1, 101))
        assert world.bookie.add_calls == calls + 1
        assert len(writes) == 1

    run_with_broker(scenario)


def test_bytes_one_by_one_give_the_same_receipts() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        for byte in b"".join(send_frame(index) for index in range(3)):
            client.send_bytes(bytes((byte,)))
        assert [(await client.receipt()).sequence_id for _ in range(3)] == [0, 1, 2]

    run_with_broker(scenario)


def test_writable_callbacks_wait_for_the_client_to_take_what_was_written() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        called: list[str] = []
        client.connection.pause_writing()
        client.connection.output.on_writable(lambda: called.append("first"))
        assert not client.connection.output.is_writable
        assert called == []
        client.connection.resume_writing()
        assert called == ["first"]
        client.connection.resume_writing()
        assert called == ["first"]

    run_with_broker(scenario)


def test_connection_limits_refuse_one_too_many() -> None:
    async def scenario(world: BrokerWorld) -> None:
        first = await world.client()
        second = Client(world.broker)
        assert second.is_closed
        first.lose()
        await asyncio.sleep(0)  # noqa: TID251
        await world.client()

    run_with_broker(scenario, connections_max=1)


def test_dead_connection_is_found_by_a_liveness_check() -> None:
    async def scenario(world: BrokerWorld) -> None:
        alive, dead = await world.client(), await world.client()
        is_alive = alive.connection.check_liveness()
        await alive.expect(Type.PING)
        alive.send_bytes(PONG_FRAME)
        assert await is_alive
        assert not await dead.connection.check_liveness()
        assert dead.is_closed

    run_with_broker(scenario)


def test_lost_connection_takes_its_producers_along() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        topic = world.broker.topics[TOPIC]
        assert topic.producers
        client.lose()
        await asyncio.sleep(0)  # noqa: TID251
        assert topic.producers == {}
        assert not world.broker.connections.open

    run_with_broker(scenario)


def test_closed_connection_that_can_not_write_is_cut_off() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        aborted: list[bool] = []
        client.transport.close = lambda: None  # what is buffered is never taken
        client.transport.abort = lambda: (aborted.append(True), client.connection.connection_lost(None))
        client.connection.close("test")
        assert not aborted
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(6, future.set_result, None)
        await future
        assert aborted == [True]
        assert world.broker.topics[TOPIC].producers == {}

    run_with_broker(scenario)
