"""The official producer against our consumer: fields, batches, chunks, compression, encryption, delay, ids."""

from __future__ import annotations

import asyncio
import datetime
import itertools

import pulsar
import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat

import geminga.client as gc
from support.house.signing import pem_files
from support.processes.official import official_client

pytestmark = pytest.mark.integration

RECEIVE_MS = 10_000
EARLIEST = gc.InitialPosition.Earliest
COMPRESSIONS = [
    pulsar.CompressionType.NONE,
    pulsar.CompressionType.LZ4,
    pulsar.CompressionType.ZLib,
    pulsar.CompressionType.ZSTD,
    pulsar.CompressionType.SNAPPY,
]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def official(broker, tmp_path_factory):
    with official_client(broker.service_url, tmp_path_factory.mktemp("official")) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"interop-consumer-{next(_numbers)}"


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> tuple[str, str]:
    return pem_files(tmp_path_factory.mktemp("keys"), PrivateFormat.TraditionalOpenSSL)


def consume(broker, topic, count, then=None, **options):
    """``count`` messages of ours, acknowledged; ``then(consumer, messages)`` before the consumer closes."""

    async def main():
        async with asyncio.timeout(60), gc.connect(broker.service_url) as client:
            options.setdefault("initial_position", EARLIEST)
            async with await client.subscribe(topic, "ours", **options) as consumer:
                messages = [await consumer.receive(RECEIVE_MS) for _ in range(count)]
                if then is not None:
                    return await then(consumer, messages)
                await consumer.acknowledge(messages)
                return messages

    return asyncio.run(main())


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=str)
@pytest.mark.parametrize("batched", [True, False])
def test_every_field_arrives(broker, official, topic, batched, compression) -> None:
    producer = official.create_producer(
        topic, batching_enabled=batched, compression_type=compression, batching_max_publish_delay_ms=50
    )
    sent = []
    for number in range(20):
        producer.send_async(
            b"payload %d " % number * 20,
            lambda result, message_id: sent.append(message_id),
            properties={"number": str(number), "text": "ä→"},
            partition_key=f"key-{number % 4}",
            ordering_key="order",
            event_timestamp=1000 + number,
            sequence_id=100 + number,
        )
    producer.flush()
    messages = consume(broker, topic, 20)
    for number, message in enumerate(messages):
        assert message.data() == message.value() == b"payload %d " % number * 20
        assert message.properties() == {"number": str(number), "text": "ä→"}
        assert message.partition_key() == f"key-{number % 4}"
        assert message.ordering_key() == "order"
        assert message.event_timestamp() == 1000 + number
        assert message.sequence_id() == 100 + number
        assert message.producer_name() == producer.producer_name()
        assert message.publish_timestamp() > 1_600_000_000_000
        assert message.topic_name() == f"persistent://public/default/{topic}"
        assert not message.has_null_value()
        assert message.encryption_context() is None
        assert message.replicated_from() == ""
    ours = [message.message_id() for message in messages]
    theirs = [(i.ledger_id(), i.entry_id(), i.batch_index()) for i in sent]
    assert [(i.ledger_id(), i.entry_id(), i.batch_index()) for i in ours] == theirs
    assert {message._entry.is_batch for message in messages} == {batched}


def test_ids_of_both_clients_are_exchangeable(broker, official, topic) -> None:
    producer = official.create_producer(topic, batching_max_publish_delay_ms=50)
    for number in range(10):
        producer.send_async(b"m%d" % number, None)
    producer.flush()
    messages = consume(broker, topic, 10)
    for message in messages:
        ours = message.message_id()
        theirs = pulsar.MessageId.deserialize(ours.serialize())
        assert gc.MessageId.deserialize(theirs.serialize()) == ours
        assert (theirs.ledger_id(), theirs.entry_id(), theirs.batch_index()) == (
            ours.ledger_id(),
            ours.entry_id(),
            ours.batch_index(),
        )
    start = pulsar.MessageId.deserialize(messages[3].message_id().serialize())
    reader = official.create_reader(topic, start)
    assert reader.read_next(RECEIVE_MS).data() == b"m4"
    reader.close()
    for own, other in (
        (gc.MessageId.earliest, pulsar.MessageId.earliest),
        (gc.MessageId.latest, pulsar.MessageId.latest),
    ):
        assert gc.MessageId.deserialize(other.serialize()) == own


@pytest.mark.parametrize("compression", [pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4], ids=str)
def test_chunked_messages_are_put_together_and_acknowledged_whole(broker, official, topic, compression) -> None:
    producer = official.create_producer(
        topic, batching_enabled=False, chunking_enabled=True, compression_type=compression
    )
    large = bytes(range(256)) * 50_000 if compression == pulsar.CompressionType.NONE else None
    large = large or __import__("random").Random(1).randbytes(12_000_000)
    producer.send(large, properties={"large": "1"})
    producer.send(b"small")
    messages = consume(broker, topic, 2)
    assert messages[0].data() == large
    assert messages[0].properties() == {"large": "1"}
    assert messages[0].message_id().first_chunk_message_id() is not None
    assert messages[1].data() == b"small"
    consumer = official.subscribe(topic, "ours")
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    consumer.close()


@pytest.mark.parametrize("batched", [True, False])
def test_encrypted_messages_are_decrypted_or_handled_as_asked(broker, official, topic, keys, batched) -> None:
    reader = pulsar.CryptoKeyReader(*keys)
    producer = official.create_producer(
        topic,
        batching_enabled=batched,
        encryption_key="client-rsa.pem",
        crypto_key_reader=reader,
        compression_type=pulsar.CompressionType.ZSTD,
        batching_max_publish_delay_ms=50,
    )
    for number in range(5):
        producer.send_async(b"secret %d" % number, None)
    producer.flush()
    messages = consume(broker, topic, 5, crypto_key_reader=gc.CryptoKeyReader(*keys))
    assert [message.data() for message in messages] == [b"secret %d" % number for number in range(5)]
    context = messages[0].encryption_context()
    assert context is not None
    assert list(context.keys) == ["client-rsa.pem"]

    async def without_key():
        async with asyncio.timeout(60), gc.connect(broker.service_url) as client:
            found = {}
            for action in gc.ConsumerCryptoFailureAction:
                consumer = await client.subscribe(
                    topic, action.name, initial_position=EARLIEST, crypto_failure_action=action
                )
                try:
                    found[action.name] = [await consumer.receive(500)]
                except gc.Timeout:
                    found[action.name] = []
                await consumer.close()
                again = await client.subscribe(topic, action.name, crypto_key_reader=gc.CryptoKeyReader(*keys))
                try:
                    found[action.name].append(await again.receive(500))
                except gc.Timeout:
                    pass
            return found

    found = asyncio.run(without_key())
    assert [message.data() for message in found["FAIL"]] == [b"secret 0"]
    assert found["DISCARD"] == []
    raw, clear = found["CONSUME"]
    assert b"secret" not in raw.data()
    context = raw.encryption_context()
    assert context is not None
    assert context.batch_size == (5 if batched else -1)
    assert clear.data() == b"secret 0"


def test_delayed_messages_come_when_they_are_due(broker, official, topic) -> None:
    producer = official.create_producer(topic)

    async def main():
        async with asyncio.timeout(60), gc.connect(broker.service_url) as client:
            consumer = await client.subscribe(topic, "ours", consumer_type=gc.ConsumerType.Shared)
            loop = asyncio.get_running_loop()
            started = loop.time()
            producer.send(b"later", deliver_after=datetime.timedelta(seconds=1))
            producer.send(b"now")
            first = await consumer.receive(RECEIVE_MS)
            second = await consumer.receive(RECEIVE_MS)
            return first.data(), second.data(), loop.time() - started

    first, second, seconds = asyncio.run(main())
    assert (first, second) == (b"now", b"later")
    assert seconds > 0.4


def test_partitioned_and_keyed_messages_keep_their_order_per_key(broker, official, topic) -> None:
    from support.worlds.partitions import set_partitions

    set_partitions(broker.web_service_url, topic, 3)
    producer = official.create_producer(topic)
    for number in range(90):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 9}")
    producer.flush()
    messages = consume(broker, topic, 90, consumer_type=gc.ConsumerType.KeyShared)
    for key in range(9):
        numbers = [int(message.data()) for message in messages if message.partition_key() == f"k{key}"]
        assert numbers == list(range(key, 90, 9))
    assert {message.message_id().partition() for message in messages} <= {0, 1, 2}


def test_what_we_acknowledge_the_official_consumer_does_not_get(broker, official, topic) -> None:
    producer = official.create_producer(topic, batching_max_publish_delay_ms=50)
    for number in range(10):
        producer.send_async(b"m%d" % number, None)
    producer.flush()

    async def half(consumer, messages):
        await consumer.acknowledge(messages[::2])

    consume(broker, topic, 10, half, consumer_type=gc.ConsumerType.Shared, batch_index_ack_enabled=True)
    consumer = official.subscribe(topic, "ours", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True)
    assert [consumer.receive(RECEIVE_MS).data() for _ in range(5)] == [b"m%d" % n for n in range(1, 10, 2)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(200)
    consumer.close()
