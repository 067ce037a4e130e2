"""Numbers in messages that can not be: refused where they enter, harmless where they are stored already."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry, peek_metadata
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker

Sub = pb.CommandSubscribe
#: One more than may be.
KEYS = [pb.EncryptionKeys(key=f"{number}", value=b"v") for number in range(1001)]
PROPERTIES = [pb.KeyValue(key="k", value="v")] * 65537


async def store(world: BrokerWorld, *entries: bytes) -> None:
    """Put entries into the log past all checks, as another broker may have."""
    topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=True)
    assert isinstance(topic, PersistentTopic)
    stored = asyncio.get_running_loop().create_future()
    topic.ledger.append(entries, stored.set_result)
    assert (await stored).error is None


def entry(**fields) -> bytes:
    return encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **fields), b"payload")


async def receive_and_acknowledge(client: Client, count: int) -> list[tuple[int, int]]:
    """The next ``count`` messages, each acknowledged with an answer."""
    positions = []
    for _ in range(count):
        message = (await client.expect(Type.MESSAGE)).message.message_id
        positions.append((message.ledgerId, message.entryId))
    for position in positions:
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, request_id=client.next_request_id())
        ack.message_id.add(ledgerId=position[0], entryId=position[1])
        client.send(pb.BaseCommand(type=Type.ACK, ack=ack))
        assert not (await client.expect(Type.ACK_RESPONSE)).ackResponse.HasField("error")
    return positions


@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared, Sub.Exclusive, Sub.Failover])
@pytest.mark.parametrize("numbers", [(3, -5), (-5, 3), (0, 1), (-(1 << 31), (1 << 31) - 1, 2)])
def test_stored_batches_of_impossible_sizes_are_delivered_and_acknowledged(sub_type: int, numbers) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await store(world, *(entry(num_messages_in_batch=number) for number in numbers))
        client = await world.subscriber(subType=sub_type, permits=1 << 24)
        positions = await receive_and_acknowledge(client, len(numbers))
        topic = world.broker.topics[TOPIC]
        assert topic.subscriptions["sub"].cursor.backlog_count == 0
        assert topic.subscriptions["sub"].unacked_count == 0
        request = pb.CommandGetLastMessageId(consumer_id=1, request_id=900)
        client.send(pb.BaseCommand(type=Type.GET_LAST_MESSAGE_ID, getLastMessageId=request))
        last = (await client.expect(Type.GET_LAST_MESSAGE_ID_RESPONSE)).getLastMessageIdResponse.last_message_id
        assert (last.ledgerId, last.entryId) == positions[-1]
        # They are still there after a restart, and so is their acknowledgment.
        client.lose()
        await world.restart()
        await store(world, entry())
        client = await world.subscriber(subType=sub_type)
        assert len(await receive_and_acknowledge(client, 1)) == 1

    run_with_broker(scenario)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_messages_in_batch", -1),
        ("num_messages_in_batch", -5),
        ("num_messages_in_batch", -(1 << 31)),
        ("num_chunks_from_msg", -1),
        ("chunk_id", -1),
        ("total_chunk_msg_size", -(1 << 31)),
        ("publish_time", (1 << 64) - 1),
        ("highest_sequence_id", (1 << 64) - 1),
    ],
)
@pytest.mark.parametrize("dedup", [False, True])
def test_messages_with_impossible_numbers_are_refused_and_their_neighbours_stored(field, value, dedup) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        client.send_message(0)
        client.send_message(1, metadata={field: value})
        client.send_message(2)
        assert (await client.receipt()).sequence_id == 0
        error = (await client.expect(Type.SEND_ERROR)).send_error
        assert (error.sequence_id, error.error) == (1, pb.NotAllowedError)
        assert field in error.message
        assert (await client.receipt()).sequence_id == 2
        assert not client.is_closed

    run_with_broker(scenario, deduplication=dedup)


@pytest.mark.parametrize("dedup", [False, True])
@pytest.mark.parametrize(
    ("most", "beyond"),
    [
        ({"replicate_to": ["w"] * 1000}, {"replicate_to": ["w"] * 1001}),
        ({"replicate_to": ["w" * 65536]}, {"replicate_to": ["w" * 65000, "é" * 269]}),
        ({"encryption_keys": KEYS[:1000]}, {"encryption_keys": KEYS}),
        ({"properties": PROPERTIES[:65536]}, {"properties": PROPERTIES}),
        ({"replicated_from": "f" * 4096}, {"replicated_from": "f" * 4097}),
        ({"uuid": "u" * 4160}, {"uuid": "u" * 4161}),
    ],
    ids=lambda fields: "".join(fields),
)
def test_messages_with_lists_and_texts_beyond_their_limits_are_refused(most, beyond, dedup) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="producer")
        client.send_message(0)
        client.send_message(1, metadata=beyond)
        client.send_message(2, metadata=most)
        assert (await client.receipt()).sequence_id == 0
        error = (await client.expect(Type.SEND_ERROR)).send_error
        assert (error.sequence_id, error.error) == (1, pb.NotAllowedError)
        (field,) = beyond
        assert f"{field} has " in error.message
        assert ", more than " in error.message
        assert (await client.receipt()).sequence_id == 2

    run_with_broker(scenario, deduplication=dedup)


def test_who_says_too_much_of_itself_is_not_let_in() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        name, too_long = "é" * 2048, "é" * 2049
        told = [pb.KeyValue(key="k" * 1024, value="v" * (127 << 10))]
        for fields, text in (
            ({"producer_name": too_long}, "producer_name has 4098 bytes, more than 4096"),
            ({"producer_name": "p", "metadata": [*told, *told]}, "metadata has 262144 bytes, more than 131072"),
        ):
            client.request_producer(**fields)
            error = await client.error()
            assert (error.error, error.message) == (pb.NotAllowedError, text)
        await client.create_producer(producer_name=name, metadata=told)
        await client.publish(0)
        for fields, text in (
            ({"consumer_name": too_long}, "consumer_name has 4098 bytes, more than 4096"),
            ({"consumer_name": "c", "metadata": [*told, *told]}, "metadata has 262144 bytes, more than 131072"),
        ):
            request = pb.CommandSubscribe(topic=TOPIC, subscription="s", subType=Sub.Shared, **fields)
            request.consumer_id, request.request_id = 2, client.next_request_id()
            client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
            error = await client.error()
            assert (error.error, error.message) == (pb.NotAllowedError, text)
        await client.subscribe(consumer_name=name, metadata=told)
        await receive_and_acknowledge(client, 1)

    run_with_broker(scenario)


@pytest.mark.parametrize("topic", [TOPIC, TOPIC.replace("persistent", "non-persistent", 1)])
@pytest.mark.parametrize("durable", [True, False])
def test_subscriptions_of_names_and_properties_beyond_their_limits_are_not_made(topic: str, durable: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        much = [pb.KeyValue(key="k", value="v" * (1 << 17))]
        cases = [("n" * 1025, [], "a subscription's name has at most 1024 bytes, not 1025")]
        if durable and topic == TOPIC:
            cases.append(("s", much, "a subscription's properties have at most 131072 bytes, not 131073"))
        for name, properties, text in cases:
            request = pb.CommandSubscribe(topic=topic, subscription=name, subType=Sub.Shared, durable=durable)
            request.subscription_properties.extend(properties)
            request.consumer_id, request.request_id = 2, client.next_request_id()
            client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
            error = await client.error()
            assert (error.error, error.message) == (pb.NotAllowedError, text)
        assert not world.broker.topics[topic].subscriptions
        await client.subscribe(topic, subscription="n" * 1024, durable=durable)
        assert [*world.broker.topics[topic].subscriptions] == ["n" * 1024]

    run_with_broker(scenario)


@pytest.mark.parametrize("field", ["sequence_id", "highest_sequence_id", "num_messages"])
def test_send_commands_with_impossible_numbers_are_refused(field: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        values = [-1, (1 << 20) + 1] if field == "num_messages" else [1 << 63, (1 << 64) - 1]
        for value in values:
            send = pb.CommandSend(producer_id=1, sequence_id=5)
            setattr(send, field, value)
            client.send_bytes(raw_send(send, entry()))
            error = (await client.expect(Type.SEND_ERROR)).send_error
            assert (error.sequence_id, error.error) == (send.sequence_id, pb.NotAllowedError)
        await client.publish(7)

    run_with_broker(scenario, deduplication=True)


def raw_send(send: pb.CommandSend, data: bytes) -> bytes:
    command = pb.BaseCommand(type=Type.SEND, send=send).SerializeToString()
    return (len(command) + 4 + len(data)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + data


def test_epoch_beyond_all_grants_is_refused_and_the_topic_goes_on() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.request_producer(
            producer_access_mode=pb.ExclusiveWithFencing, topic_epoch=(1 << 64) - 1, producer_name="greedy"
        )
        assert (await client.error()).error == pb.NotAllowedError
        success = await client.create_producer(producer_access_mode=pb.ExclusiveWithFencing, producer_name="modest")
        assert success.topic_epoch == 0

    run_with_broker(scenario)


def test_stored_sequence_ids_beyond_int64_do_not_keep_deduplication_from_saving() -> None:
    async def scenario(world: BrokerWorld) -> None:
        huge = pb.MessageMetadata(producer_name="p", sequence_id=(1 << 64) - 1, publish_time=(1 << 64) - 1)
        await store(world, encode_entry(huge, b""), entry(deliver_at_time=-(1 << 63)), entry(event_time=(1 << 64) - 1))
        await world.restart()
        client = await world.publisher()
        await client.publish(0)
        await client.subscribe(subType=Sub.Shared)
        await receive_and_acknowledge(client, 4)
        client.lose()
        await world.restart()
        topic = await world.broker.registry.get(TopicName.parse(TOPIC), create=False)
        assert isinstance(topic, PersistentTopic)
        assert topic.dedup is not None
        assert topic.dedup.state.persisted["p"] == 0

    run_with_broker(scenario, deduplication=True)


@pytest.mark.parametrize("field", ["partition_key", "producer_name", "properties"])
@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_stored_texts_that_are_none_are_delivered_and_acknowledged(field: str, sub_type: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        texts = {"producer_name": b"p"} | ({field: b"\xff\xfe"} if field != "properties" else {})
        encoded = b"".join(
            bytes((tag, len(text))) + text
            for tag, text in ((0x0A, texts["producer_name"]), (0x32, texts.get("partition_key", b"k")))
        )
        if field == "properties":
            encoded += b"\x22\x08\x0a\x02\xff\xfe\x12\x02\xff\xfe"
        encoded += b"\x10\x00\x18\x01"
        entry_bytes = len(encoded).to_bytes(4, "big") + encoded + b"payload"
        metadata = peek_metadata(entry_bytes)
        assert metadata is not None
        await store(world, entry_bytes)
        client = await world.subscriber(subType=sub_type)
        await receive_and_acknowledge(client, 1)

    run_with_broker(scenario)
