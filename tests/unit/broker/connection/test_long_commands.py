"""Commands that a client makes as long as it can: nobody else waits for them, and what follows them finds them done."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from geminga.broker.connection.back_pressure import COMMAND_BYTES_MAX
from geminga.broker.connection.core.read_gate import PauseReason
from geminga.model import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PING_FRAME, encode_command
from geminga.wire.pulsar.metadata import encode_entry
from support.house.turn_probe import TurnProbe
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker

MEBIBYTE = 1024 * 1024
#: As many ids of messages as a frame takes, with room for what is around them.
IDS = 350_000
HELD = 5_000
#: Entries with the longest ack set there is: of 128 KiB each, if nobody asks how large their batches are.
ENTRIES = 600
TURN_S = 0.05
Shared = pb.CommandSubscribe.Shared


async def turn() -> None:
    await asyncio.sleep(0)  # noqa: TID251  # a turn of the loop, not time


def entry(sequence_id: int, **metadata) -> bytes:
    return encode_entry(
        pb.MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1, **metadata), b"x"
    )


async def fill(world: BrokerWorld, count: int, **metadata) -> int:
    """Entries in the topic; the id of their ledger."""
    client = await world.publisher()
    topic = next(iter(world.broker.topics.values()))
    results = []
    topic.ledger.append([entry(i, **metadata) for i in range(count)], results.append)
    while sum(result.count for result in results) < count:
        await turn()
    client.lose()
    await turn()
    return results[0].ledger_id


def ack_frame(ids, request_id: int | None = None, consumer_id: int = 1) -> bytes:
    ack = pb.CommandAck(consumer_id=consumer_id, ack_type=pb.CommandAck.Individual)
    for ledger_id, entry_id, *words in ids:
        found = ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
        if words:
            found.ack_set.extend(words[0])
    if request_id is not None:
        ack.request_id = request_id
    return encode_command(pb.BaseCommand(type=Type.ACK, ack=ack))


def redeliver_frame(ids, consumer_id: int = 1) -> bytes:
    request = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id)
    for ledger_id, entry_id in ids:
        request.message_ids.add(ledgerId=ledger_id, entryId=entry_id)
    return encode_command(
        pb.BaseCommand(type=Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=request)
    )


def close_consumer_frame(request_id: int, consumer_id: int = 1) -> bytes:
    request = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id)
    return encode_command(pb.BaseCommand(type=Type.CLOSE_CONSUMER, close_consumer=request))


async def holding(world: BrokerWorld, count: int, sub_type=Shared, **metadata) -> tuple[Client, int]:
    """A client whose consumer was sent ``count`` entries, and their ledger."""
    ledger_id = await fill(world, count, **metadata)
    client = await world.subscriber(subType=sub_type, permits=count * metadata.get("num_messages_in_batch", 1))
    while sum(command.type == Type.MESSAGE for command, _ in client.received) < count:
        await turn()
    client.received.clear()
    return client, ledger_id


def cursor_of(world: BrokerWorld):
    return world.broker.topics[next(iter(world.broker.topics))].subscriptions["sub"].cursor


@pytest.mark.parametrize("sub_type", [Shared, pb.CommandSubscribe.Exclusive])
def test_acknowledgment_of_very_many_ids_takes_many_turns_and_is_answered_when_done(sub_type) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, ledger_id = await holding(world, HELD, sub_type)
        other = await world.client()
        # Every second entry that is there, and far more that are not.
        ids = [(ledger_id, 2 * i) for i in range(IDS)]
        frame = ack_frame(ids, request_id=7) + close_consumer_frame(8)
        assert 2 * MEBIBYTE < len(frame) < 5 * MEBIBYTE
        pongs = 0
        with TurnProbe() as probe:
            await turn()  # what follows is measured
            client.send_bytes(frame)
            assert client.connection.gate.reasons & PauseReason.COMMAND_UNDER_WAY
            while not any(command.type == Type.SUCCESS for command, _ in client.received):
                other.send_bytes(PING_FRAME)
                await other.expect(Type.PONG)
                await turn()
                pongs += 1
        assert probe.longest_s < TURN_S, probe.what
        assert pongs > 100
        kinds = [command.type for command, _ in client.received]
        assert kinds.index(Type.ACK_RESPONSE) < kinds.index(Type.SUCCESS) or sub_type != Shared
        cursor = cursor_of(world)
        assert cursor.backlog_count == HELD // 2
        assert client.connection.gate.reasons == PauseReason.NONE

    run_with_broker(scenario, max_unacked_messages_per_consumer=0, max_unacked_messages_per_subscription=0)


def test_redelivery_of_very_many_ids_takes_many_turns() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, ledger_id = await holding(world, HELD)
        frame = redeliver_frame([(ledger_id, i) for i in range(IDS)]) + PING_FRAME
        with TurnProbe() as probe:
            await turn()  # what follows is measured
            client.send_bytes(frame)
            while not any(command.type == Type.PONG for command, _ in client.received):
                await turn()
            await turn()  # to the end of this one
        assert probe.longest_s < TURN_S, probe.what
        client.send(pb.BaseCommand(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=HELD)))
        while sum(command.type == Type.MESSAGE for command, _ in client.received) < HELD:
            await turn()
        found = [command.message for command, _ in client.received if command.type == Type.MESSAGE]
        assert {message.redelivery_count for message in found} == {1}
        assert sorted(message.message_id.entryId for message in found) == list(range(HELD))

    run_with_broker(scenario, max_unacked_messages_per_consumer=0, max_unacked_messages_per_subscription=0)


@pytest.mark.parametrize("batch", [1, 1100])
def test_ack_sets_take_no_more_memory_than_their_batches(batch) -> None:
    async def scenario(world: BrokerWorld) -> None:
        size = {"compression": pb.ZLIB, "uncompressed_size": 6 * batch}
        ledger_id = await fill(world, ENTRIES, num_messages_in_batch=batch, **size)
        client = await world.subscriber(permits=0)
        words = [1] * (1 << 14)
        frames = [
            ack_frame([(ledger_id, i, words) for i in range(first, first + 100)], request_id=first)
            for first in range(0, ENTRIES, 100)
        ]
        tracemalloc.start()
        for frame in frames:
            client.send_bytes(frame)
            while not any(command.type == Type.ACK_RESPONSE for command, _ in client.received):
                await turn()
            [response] = [command.ackResponse for command, _ in client.received if command.type == Type.ACK_RESPONSE]
            assert not response.HasField("error"), response
            client.received.clear()
        frames.clear()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20 * MEBIBYTE
        cursor = cursor_of(world)
        for i in (0, ENTRIES - 1):
            # One message of each word is left: of those that the batch has.
            assert len(cursor.state.ack_set(Position(ledger_id, i)) or ()) == -(-batch // 64)

    run_with_broker(scenario)


def test_sets_of_several_frames_are_charged_at_their_size() -> None:
    async def scenario(world: BrokerWorld) -> None:
        size = {"compression": pb.ZLIB, "uncompressed_size": 6 << 20}
        ledger_id = await fill(world, 4, num_messages_in_batch=1 << 20, **size)
        client = await world.subscriber(permits=0)
        cursor = cursor_of(world)
        client.send_bytes(ack_frame([(ledger_id, i, [-1] * (1 << 14)) for i in range(4)], request_id=1))
        await client.expect(Type.ACK_RESPONSE)
        assert cursor.state.ledger_memory_bytes(ledger_id) > 4 * (1 << 17)
        client.send_bytes(ack_frame([(ledger_id, i) for i in range(4)], request_id=2))
        await client.expect(Type.ACK_RESPONSE)
        assert cursor.state.ledger_memory_bytes(ledger_id) < 1000

    run_with_broker(scenario)


def test_ack_set_that_no_batch_can_have_is_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, ledger_id = await holding(world, 2)
        client.send_bytes(ack_frame([(ledger_id, 0, [1] * ((1 << 14) + 1))], request_id=3))
        response = (await client.expect(Type.ACK_RESPONSE)).ackResponse
        assert response.error == pb.NotAllowedError
        client.send_bytes(ack_frame([(ledger_id, 0, [1] * 200_000)], request_id=4))
        while not client.is_closed:
            await turn()

    run_with_broker(scenario)


def test_connection_that_is_lost_behind_a_long_command_leaves_when_it_is_done() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, ledger_id = await holding(world, HELD)
        client.send_bytes(ack_frame([(ledger_id, i) for i in range(HELD - 1)]) + ack_frame([(ledger_id, HELD - 1)]))
        assert client.connection.gate.reasons & PauseReason.COMMAND_UNDER_WAY
        client.lose()
        cursor = cursor_of(world)
        while world.broker.topics[next(iter(world.broker.topics))].subscriptions["sub"].consumers:
            await turn()
        assert cursor.backlog_count == 0
        assert client.connection not in world.broker.connections.open

    run_with_broker(scenario)


@pytest.mark.parametrize("damage", ["cut", "field", "id"])
def test_long_command_that_can_not_be_read_closes_the_connection(damage) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client, ledger_id = await holding(world, 2)
        frame = bytearray(ack_frame([(ledger_id, i % 2) for i in range(5_000)]))
        assert frame[-6:] == b"\x1a\x04\x08\x00\x10\x01"
        if damage == "cut":
            frame[-1] |= 0x80
        elif damage == "field":
            frame[-6] = 0x1B
        else:
            frame[-2] = 0x7F
        client.send_bytes(bytes(frame) + PING_FRAME)
        for _ in range(100):
            await turn()
        assert client.is_closed

    run_with_broker(scenario)


def test_other_commands_have_a_limit() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        request = pb.CommandSubscribe(
            topic=TOPIC,
            subscription="s",
            subType=Shared,
            consumer_id=1,
            request_id=1,
            consumer_name="n" * COMMAND_BYTES_MAX,
        )
        client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        assert client.is_closed

    run_with_broker(scenario)
