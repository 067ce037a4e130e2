"""Text fields of messages that are no UTF-8, as clients in other languages can write them: nothing breaks or hangs."""

from __future__ import annotations

import asyncio

import crc32c
import pytest

import geminga.client as gc
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.message import EncryptionContext, Message
from geminga.client.consumer_rules.chunk_assembly import Chunk, ChunkAssembly
from geminga.managed_ledger import AppendResult
from geminga.model import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import encode_batch, single_message_head
from geminga.wire.pulsar.metadata import encode_entry
from support.worlds.policy_levels import seconds
from support.worlds.scripted_broker import run_with_broker

#: Stands for BROKEN, which the generated classes do not take.
MARK = b"BROKEN"
BROKEN = b"a\xff\xc3(\xed\xa0"
#: BROKEN with U+FFFD for what is no UTF-8, as Java's decoder has it.
READ = "a\ufffd\ufffd(\ufffd\ufffd"
TEXT = MARK.decode()
OPTIONS: gc.ConsumerArguments = {
    "consumer_type": gc.ConsumerType.Shared,
    "initial_position": gc.InitialPosition.Earliest,
    "negative_ack_redelivery_delay_ms": 10,
}


def metadata_of(is_batch: bool) -> pb.MessageMetadata:
    metadata = pb.MessageMetadata(producer_name=TEXT, sequence_id=1, publish_time=5, replicated_from=TEXT)
    if is_batch:
        metadata.num_messages_in_batch = 2
        return metadata
    metadata.partition_key, metadata.ordering_key = TEXT, MARK
    metadata.properties.add(key=TEXT, value="v")
    metadata.properties.add(key="k", value=TEXT)
    return metadata


def content_of(is_batch: bool) -> bytes:
    if not is_batch:
        return b"payload"
    properties = {TEXT: "v", "k": TEXT}
    head = single_message_head(7, 1, partition_key=TEXT, ordering_key=MARK, properties=properties)
    return encode_batch([b"payload", b"payload"], 1, {0: head, 1: head})


def broken(data: bytes) -> bytes:
    assert len(MARK) == len(BROKEN)
    return data.replace(MARK, BROKEN)


def entry_of(is_batch: bool) -> EntryBatch:
    metadata = pb.MessageMetadata.FromString(broken(metadata_of(is_batch).SerializeToString()))
    return EntryBatch(broken(content_of(is_batch)), 0, metadata, 7, 8)


@pytest.mark.parametrize("is_batch", [False, True])
def test_texts_of_a_message_are_read_and_bytes_are_as_sent(is_batch: bool) -> None:
    entry = entry_of(is_batch)
    for index in entry.order:
        message: Message[bytes] = Message(entry, index)
        assert message.data() == b"payload"
        assert message.partition_key() == message.ordering_key() == message.producer_name() == READ
        assert message.replicated_from() == READ
        assert message.properties() == {READ: "v", "k": READ}
        assert message.key_bytes() == message.ordering_key_bytes() == BROKEN
        for text in (message.partition_key(), message.producer_name(), *message.properties()):
            text.encode()
    key = slice(entry.key_starts[0], entry.key_ends[0])
    assert entry.key_data[key] == BROKEN


def test_key_that_is_not_the_base64_it_says_is_given_as_sent() -> None:
    metadata = metadata_of(False)
    metadata.partition_key_b64_encoded = True
    entry = EntryBatch(b"", 0, pb.MessageMetadata.FromString(broken(metadata.SerializeToString())), 7, 8)
    assert Message(entry, 0).key_bytes() == BROKEN


def test_names_of_encryption_keys_are_read() -> None:
    metadata = metadata_of(False)
    key = metadata.encryption_keys.add(key=TEXT, value=b"wrapped")
    key.metadata.add(key="m", value=TEXT)
    metadata.encryption_algo = TEXT
    context = EncryptionContext(pb.MessageMetadata.FromString(broken(metadata.SerializeToString())))
    assert context.keys == {READ: (b"wrapped", {"m": READ})}
    assert context.algorithm == READ


async def store(broker, is_batch: bool) -> None:
    """What another client published; the checksum fits."""
    topic = await broker.broker.registry.get(TopicName.parse("t"), create=True)
    entry = encode_entry(metadata_of(is_batch), content_of(is_batch))
    rest = broken(entry[6:])
    data = entry[:2] + crc32c.crc32c(rest).to_bytes(4, "big") + rest
    stored: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    topic.ledger.append([data], stored.set_result)
    assert (await stored).error is None


def check(message: gc.Message[bytes]) -> None:
    assert message.data() == b"payload"
    assert (message.partition_key(), message.ordering_key_bytes()) == (READ, BROKEN)
    properties = message.properties()
    assert {READ: properties[READ], "k": properties["k"]} == {READ: "v", "k": READ}


async def letters(client, topic: str, count: int) -> None:
    async with await client.subscribe(topic, "look", initial_position=gc.InitialPosition.Earliest) as consumer:
        for _ in range(count):
            check(await consumer.receive(5000))


@pytest.mark.parametrize("is_batch", [False, True])
def test_message_that_is_redelivered_too_often_becomes_a_dead_letter(is_batch: bool) -> None:
    """It could not be stored there, and came again and again."""

    async def scenario(client, broker):
        consumer = await client.subscribe("t", "s", dead_letter_policy=gc.ConsumerDeadLetterPolicy(1), **OPTIONS)
        await store(broker, is_batch)
        count = 2 if is_batch else 1
        for _ in range(2 * count):
            message = await consumer.receive(5000)
            check(message)
            await consumer.negative_acknowledge(message)
        await letters(client, "t-s-DLQ", count)
        with pytest.raises(gc.Timeout):
            await consumer.receive(3000)

    run_with_broker(scenario)


@pytest.mark.parametrize("is_batch", [False, True])
def test_message_goes_through_the_retry_letter_topic(is_batch: bool) -> None:
    async def scenario(client, broker):
        policy = gc.ConsumerDeadLetterPolicy(1)
        consumer = await client.subscribe("t", "s", retry_enabled=True, dead_letter_policy=policy, **OPTIONS)
        await store(broker, is_batch)
        count = 2 if is_batch else 1
        for message in [await consumer.receive(5000) for _ in range(count)]:
            await consumer.reconsume_later(message, 0.01)
        for message in [await consumer.receive(5000) for _ in range(count)]:
            check(message)
            await consumer.reconsume_later(message, 0.01)
        await letters(client, "t-s-DLQ", count)

    run_with_broker(scenario)


@pytest.mark.parametrize("is_batch", [False, True])
def test_every_kind_of_consumer_delivers_it(is_batch: bool) -> None:
    async def scenario(client, broker):
        await store(broker, is_batch)
        count = 2 if is_batch else 1
        heard: list[gc.Message[bytes]] = []
        async with await client.create_reader("t", gc.MessageId.earliest) as reader:
            check(await reader.read_next(5000))
        async with await client.subscribe("t", "batches", **OPTIONS) as consumer:
            for message in await consumer.batch_receive():
                check(message)
        async with await client.subscribe("t", "keys", **{**OPTIONS, "consumer_type": gc.ConsumerType.KeyShared}) as c:
            check(await c.receive(5000))
        listener = await client.subscribe("t", "l", message_listener=lambda _, m: heard.append(m), **OPTIONS)
        while len(heard) < count:
            await seconds(0.01)
        check(heard[0])
        await listener.close()
        async with await client.create_table_view("t") as view:
            assert dict(view.items()) == {READ: b"payload"}

    run_with_broker(scenario)


def test_count_of_retries_that_is_no_number_is_none() -> None:
    from geminga.client.consumer_rules.dead_letter_names import RECONSUME_TIMES, reconsume_times

    for text, times in (("7", 7), ("9" * 5000, 0), ("-1", 0), ("x", 0), ("\u0663", 0), (READ, 0)):
        assert reconsume_times({RECONSUME_TIMES: text}) == times


def test_parts_of_two_messages_whose_ids_read_the_same_are_not_mixed() -> None:
    assembly = ChunkAssembly()

    def come(uuid: bytes, chunk_id: int, payload: bytes) -> bytes | None:
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=5, uuid="aX")
        sent = metadata.SerializeToString().replace(b"aX", uuid)
        said = pb.MessageMetadata.FromString(sent)
        return assembly.add(Chunk(said.uuid, chunk_id, 2, 2, payload, (chunk_id, uuid[1])), 0).payload

    assert (come(b"a\xff", 0, b"1"), come(b"a\xfe", 0, b"3")) == (None, None)
    assembly.check_invariants()
    assert (come(b"a\xff", 1, b"2"), come(b"a\xfe", 1, b"4")) == (b"12", b"34")
