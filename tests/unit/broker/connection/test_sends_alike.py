"""SENDs of one read that differ in the last bits of the sequence id only are not decoded one by one: nobody notices."""

from __future__ import annotations

import pytest

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker, send_frame


async def answers(client: Client, count: int) -> list[tuple[int, int]]:
    """Sequence ids, lowest and highest, of the next receipts; (sequence id, -1) of what was refused."""
    found = []
    while len(found) < count:
        await client.wait_for_news()
        while client.received:
            command, _ = client.received.popleft()
            if command.type == Type.SEND_RECEIPT:
                found.append((command.send_receipt.sequence_id, command.send_receipt.highest_sequence_id))
            elif command.type == Type.SEND_ERROR:
                found.append((command.send_error.sequence_id, -1))
    return found


def raw(sequence_id: int, extra: bytes) -> bytes:
    """A SEND with ``extra`` behind the sequence id of its command."""
    frame = send_frame(sequence_id)
    size = int.from_bytes(frame[4:8], "big")
    command, data = frame[8 : 8 + size], frame[8 + size :]
    command = command[:3] + bytes((size - 4 + len(extra),)) + command[4:] + extra
    return (len(command) + 4 + len(data)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + data


@pytest.mark.parametrize("first", [0, 120, 16_300, 2_097_100, (1 << 62) + 100])
def test_each_of_a_long_row_has_its_own_receipt(first: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        client.send_bytes(b"".join(send_frame(first + index) for index in range(300)))
        assert await answers(client, 300) == [(first + index, first + index) for index in range(300)]
        assert world.broker.topics[TOPIC].publishing.messages_in == 300

    run_with_broker(scenario)


def test_what_differs_in_more_is_decoded() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.create_producer(TOPIC + "-other", producer_id=2)
        damaged = send_frame(206, b"damaged")
        row = [
            *(send_frame(sequence_id) for sequence_id in range(200, 203)),
            send_frame(203, num_messages=5),
            send_frame(204, num_messages=5),
            send_frame(205, num_messages=5, highest_sequence_id=210),
            damaged[:-1] + b"!",
            send_frame(900, producer_id=2),
            send_frame(901, producer_id=2),
            *(send_frame(sequence_id) for sequence_id in range(211, 214)),
        ]
        client.send_bytes(b"".join(row))
        found = await answers(client, len(row))
        own = [(200, 200), (201, 201), (202, 202), (203, 203), (204, 204), (205, 210), (206, -1)]
        own += [(211, 211), (212, 212), (213, 213)]
        assert [pair for pair in found if pair[0] < 900] == own
        assert [pair for pair in found if pair[0] >= 900] == [(900, 900), (901, 901)]
        topics = world.broker.topics
        assert (topics[TOPIC].publishing.messages_in, topics[TOPIC + "-other"].publishing.messages_in) == (
            3 + 3 * 5 + 3,
            2,
        )

    run_with_broker(scenario)


def test_the_last_of_two_sequence_ids_counts() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        client.send_bytes(b"".join(raw(sequence_id, b"\x10\x07") for sequence_id in range(300, 310)))
        assert await answers(client, 10) == [(7, 7)] * 10

    run_with_broker(scenario)


def test_metadata_of_64_kib_are_looked_at_for_impossible_numbers_too() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        metadata = pb.MessageMetadata(producer_name="producer", sequence_id=1, publish_time=1, num_messages_in_batch=-1)
        metadata.properties.add(key="k", value="x" * (65_536 - metadata.ByteSize() - 8))
        assert 65_536 <= metadata.ByteSize() < 65_546  # the last two bytes of the size say: nearly nothing
        client.send_message(0)
        client.send_message(1, metadata={"num_messages_in_batch": -1, "properties": metadata.properties})
        client.send_message(2)
        assert await answers(client, 3) == [(0, 0), (1, -1), (2, 2)]

    run_with_broker(scenario)
