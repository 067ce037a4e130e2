"""Our producer against the official consumer: all of a message, batches, chunks, compression, encryption, delay."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import urllib.request

import pulsar
import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat

import geminga.client as gc
from support.house.signing import pem_files
from support.processes.official import official_client

pytestmark = pytest.mark.integration

RECEIVE_MS = 10_000


@pytest.fixture(scope="module")
def official(broker, tmp_path_factory):
    with official_client(broker.service_url, tmp_path_factory.mktemp("official")) as client:
        yield client


@pytest.fixture(scope="module")
def key_files(tmp_path_factory) -> tuple[str, str]:
    return pem_files(tmp_path_factory.mktemp("keys"), PrivateFormat.TraditionalOpenSSL)


def subscribe(official, topic, **options):
    return official.subscribe(topic, "sub", initial_position=pulsar.InitialPosition.Earliest, **options)


def produce(broker, topic, send, **options):
    """Run ``send(producer)`` with a producer of ours."""

    async def main():
        async with (
            gc.connect(broker.service_url) as client,
            await client.create_producer(topic, **options) as producer,
        ):
            return await send(producer)

    return asyncio.run(main())


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("compression", list(gc.CompressionType))
def test_everything_of_a_message_arrives(broker, official, batching, compression) -> None:
    topic = f"interop-{batching}-{compression.name}"
    consumer = subscribe(official, topic)

    async def send(producer):
        return await asyncio.gather(
            producer.send(b"plain" * 50),
            producer.send(
                b"full" * 50,
                properties={"a": "1", "ü": "ö"},
                partition_key="key",
                ordering_key="order",
                event_timestamp=1_700_000_000_000,
            ),
            producer.send(b""),
            producer.send(b"bytes key", partition_key=b"\x00\xff"),
            producer.send("ümlaut".encode(), properties={"empty": ""}),
        )

    ids = produce(broker, topic, send, batching_enabled=batching, compression_type=compression)
    messages = [consumer.receive(RECEIVE_MS) for _ in ids]
    assert [m.data() for m in messages] == [b"plain" * 50, b"full" * 50, b"", b"bytes key", "ümlaut".encode()]
    full = messages[1]
    assert (full.properties(), full.partition_key(), full.ordering_key()) == ({"a": "1", "ü": "ö"}, "key", "order")
    assert full.event_timestamp() == 1_700_000_000_000
    assert messages[0].properties() == {}
    assert messages[3].partition_key() == "AP8="
    assert messages[4].properties() == {"empty": ""}
    theirs = [m.message_id() for m in messages]
    assert [(i.ledger_id(), i.entry_id(), i.batch_index()) for i in theirs] == [
        (i.ledger_id(), i.entry_id(), i.batch_index()) for i in ids
    ]
    assert {i.batch_index() for i in theirs} == (set(range(5)) if batching else {-1})
    consumer.close()


def test_many_messages_without_waiting_arrive_in_order(broker, official) -> None:
    consumer = subscribe(official, "interop-many", receiver_queue_size=5000)
    count = 20_000

    async def send(producer):
        for index in range(count):
            producer.send_nowait(b"%d" % index)
            if index % 1000 == 0:
                await producer.drain()
        await producer.flush()
        return producer.last_sequence_id()

    assert produce(broker, "interop-many", send) == count - 1
    for index in range(count):
        message = consumer.receive(RECEIVE_MS)
        assert message.data() == b"%d" % index
    consumer.close()


@pytest.mark.parametrize("compression", [gc.CompressionType.NONE, gc.CompressionType.ZSTD])
def test_chunked_message_arrives_whole(broker, official, compression) -> None:
    topic = f"interop-chunks-{compression.name}"
    consumer = subscribe(official, topic)
    content = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(10_000))

    async def send(producer):
        return await asyncio.gather(
            producer.send(b"before"), producer.send(content, properties={"big": "yes"}), producer.send(b"after")
        )

    ids = produce(
        broker,
        topic,
        send,
        batching_enabled=False,
        chunking_enabled=True,
        chunk_max_message_size=50_000,
        compression_type=compression,
    )
    messages = [consumer.receive(RECEIVE_MS) for _ in range(3)]
    assert [m.data() for m in messages] == [b"before", content, b"after"]
    assert messages[1].properties() == {"big": "yes"}
    first = ids[1].first_chunk_message_id()
    assert first is not None
    assert first.entry_id() == ids[0].entry_id() + 1
    assert (ids[1].entry_id(), ids[2].entry_id()) == (ids[2].entry_id() - 1, messages[2].message_id().entry_id())
    consumer.close()


@pytest.mark.parametrize("batching", [False, True])
def test_encrypted_messages_are_read_with_the_private_key_only(broker, official, key_files, batching) -> None:
    public, private = key_files
    topic = f"interop-encrypted-{batching}"
    consumer = subscribe(official, topic, crypto_key_reader=pulsar.CryptoKeyReader(public, private))

    async def send(producer):
        await asyncio.gather(*(producer.send(b"secret %d" % i) for i in range(5)))

    produce(
        broker,
        topic,
        send,
        batching_enabled=batching,
        compression_type=gc.CompressionType.LZ4,
        encryption_key="client-rsa.pem",
        crypto_key_reader=gc.CryptoKeyReader(public),
    )
    assert [consumer.receive(RECEIVE_MS).data() for _ in range(5)] == [b"secret %d" % i for i in range(5)]
    consumer.close()
    other = official.subscribe(topic, "other", initial_position=pulsar.InitialPosition.Earliest)
    with pytest.raises(pulsar.Timeout):
        other.receive(500)
    other.close()


def test_encrypted_chunks_arrive_whole(broker, official, key_files) -> None:
    public, private = key_files
    consumer = subscribe(official, "interop-secret-chunks", crypto_key_reader=pulsar.CryptoKeyReader(public, private))
    content = bytes(range(256)) * 600

    async def send(producer):
        await producer.send(content)

    produce(
        broker,
        "interop-secret-chunks",
        send,
        batching_enabled=False,
        chunking_enabled=True,
        chunk_max_message_size=20_000,
        encryption_key=["one"],
        crypto_key_reader=gc.CryptoKeyReader(public),
    )
    assert consumer.receive(RECEIVE_MS).data() == content
    consumer.close()


def test_delayed_message_comes_late(broker, official) -> None:
    consumer = subscribe(official, "interop-delayed", consumer_type=pulsar.ConsumerType.Shared)

    async def send(producer):
        await producer.send(b"late", deliver_after=datetime.timedelta(seconds=2))
        await producer.send(b"now")

    produce(broker, "interop-delayed", send)
    assert [consumer.receive(RECEIVE_MS).data() for _ in range(2)] == [b"now", b"late"]
    consumer.close()


def test_key_based_batches_hold_one_key_each(broker, official) -> None:
    consumer = subscribe(official, "interop-keyed")

    async def send(producer):
        await asyncio.gather(*(producer.send(b"%d" % i, partition_key=f"k{i % 3}") for i in range(9)))

    produce(broker, "interop-keyed", send, batching_type=gc.BatchingType.KeyBased)
    keys: dict[int, set[str]] = {}
    contents: dict[str, list[bytes]] = {}
    for _ in range(9):
        message = consumer.receive(RECEIVE_MS)
        keys.setdefault(message.message_id().entry_id(), set()).add(message.partition_key())
        contents.setdefault(message.partition_key(), []).append(message.data())
    assert sorted(map(sorted, keys.values())) == [["k0"], ["k1"], ["k2"]]
    assert contents == {f"k{k}": [b"%d" % i for i in range(k, 9, 3)] for k in range(3)}
    consumer.close()


def test_partitions_get_messages_by_key_and_in_turn(broker, official) -> None:
    request = urllib.request.Request(
        f"{broker.web_service_url}/admin/v2/persistent/public/default/interop-parts/partitions",
        data=json.dumps(4).encode(),
        method="PUT",
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request).close()
    consumer = subscribe(official, "interop-parts")

    async def send(producer):
        by_key = [await producer.send(b"k", partition_key="same") for _ in range(5)]
        in_turn = [await producer.send(b"t") for _ in range(8)]
        return by_key, in_turn

    by_key, in_turn = produce(broker, "interop-parts", send)
    assert len({i.partition() for i in by_key}) == 1
    assert [len([i for i in in_turn if i.partition() == p]) for p in range(4)] == [2, 2, 2, 2]
    received = [consumer.receive(RECEIVE_MS) for _ in range(13)]
    assert sorted(m.message_id().partition() for m in received) == sorted(i.partition() for i in [*by_key, *in_turn])
    _, lazily = produce(broker, "interop-parts", send, lazy_start_partitioned_producers=True)
    assert {i.partition() for i in lazily} == {0, 1, 2, 3}
    consumer.close()


def test_second_exclusive_producer_is_fenced_and_waiting_one_takes_over(broker) -> None:
    async def main():
        async with gc.connect(broker.service_url) as client:
            exclusive = gc.ProducerAccessMode.Exclusive
            first = await client.create_producer("interop-exclusive", access_mode=exclusive)
            with pytest.raises(gc.ProducerFenced):
                await client.create_producer("interop-exclusive", access_mode=exclusive)
            waiting = asyncio.ensure_future(
                client.create_producer("interop-exclusive", access_mode=gc.ProducerAccessMode.WaitForExclusive)
            )
            await first.send(b"first")
            assert not waiting.done()
            await first.close()
            second = await asyncio.wait_for(waiting, 10)
            await second.send(b"second")
            third = await client.create_producer(
                "interop-exclusive", access_mode=gc.ProducerAccessMode.ExclusiveWithFencing
            )
            await third.send(b"third")
            with pytest.raises(gc.ProducerFenced):
                await second.send(b"too late")
            with pytest.raises(gc.ProducerFenced):
                second.send_nowait(b"too late")

    asyncio.run(main())


def test_errors_have_names(broker) -> None:
    async def main():
        async with gc.connect(broker.service_url) as client:
            with pytest.raises(gc.InvalidTopicName):
                await client.create_producer("bad://topic")
            with pytest.raises((gc.TopicNotFound, gc.BrokerMetadataError)):
                await client.create_producer("persistent://nobody/nothing/topic")
            one = await client.create_producer("interop-named", producer_name="me")
            with pytest.raises(gc.ProducerBusy):
                await client.create_producer("interop-named", producer_name="me")
            with pytest.raises(gc.MessageTooBig):
                await one.send(bytes(6 * 1024 * 1024))
            with pytest.raises(gc.InvalidMessage):
                await one.send("text")
            await one.send(b"still fine")
            await one.close()
            with pytest.raises(gc.AlreadyClosed):
                await one.send(b"closed")
        with pytest.raises(gc.AlreadyClosed):
            await client.create_producer("interop-named")
        with pytest.raises(gc.ConnectError):
            async with gc.connect("pulsar://127.0.0.1:1", operation_timeout_ms=500) as nowhere:
                await nowhere.create_producer("t")

    asyncio.run(main())


def test_service_url_list_passes_over_dead_addresses(broker) -> None:
    async def main():
        url = f"pulsar://127.0.0.1:1,127.0.0.1:{broker.broker_port},127.0.0.1:2"
        async with gc.connect(url) as client:
            producer = await client.create_producer("interop-failover")
            await producer.send(b"found")

    asyncio.run(main())
