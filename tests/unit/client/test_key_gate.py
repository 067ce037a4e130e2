"""Messages wait for their keys, in order, and nothing else does."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

import geminga.client as gc
from geminga.client._consuming.key_gate import KeyGate
from geminga.runtime import wait_ms
from geminga.sim.threads import SimThreads
from support.house.signing import pem_pair, rsa_key
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_with_broker

TOPIC = "persistent://public/default/topic"
EARLIEST = gc.InitialPosition.Earliest
FailureAction = gc.ConsumerCryptoFailureAction


@pytest.fixture(scope="module")
def pair() -> tuple[bytes, bytes]:
    return pem_pair(rsa_key())


class Slow(gc.CryptoKeyReader):
    """A coroutine that takes a second; fails while there is an ``error``."""

    def __init__(self, pair: tuple[bytes, bytes]) -> None:
        super().__init__()
        self.public, self.private = pair
        self.error: Exception | None = None
        self.asked = 0

    async def get_public_key(self, key_name, metadata):
        return gc.EncryptionKeyInfo(self.public)

    async def get_private_key(self, key_name, metadata):
        self.asked += 1
        await wait_ms(1000)
        if self.error is not None:
            raise self.error
        return gc.EncryptionKeyInfo(self.private)


class Plain(Slow):
    """No coroutine: it runs on the client's thread for key readers."""

    def get_public_key(self, key_name, metadata):
        return gc.EncryptionKeyInfo(self.public)

    def get_private_key(self, key_name, metadata):
        self.asked += 1
        return gc.EncryptionKeyInfo(self.private)


def run(scenario) -> None:
    async def limited(client: gc.Client, broker: BrokerOnNode) -> None:
        runtime = replace(client.runtime, threads=SimThreads(inline=True))
        url = client.service_urls.addresses[0].url
        async with asyncio.timeout(120), gc.connect(url, runtime=runtime) as with_threads:
            await scenario(with_threads)

    run_with_broker(limited)


async def publish(client: gc.Client, reader: gc.CryptoKeyReader, contents: range, **options) -> None:
    """Encrypted and in the clear by turns, each a message alone."""
    secret = await client.create_producer(TOPIC, encryption_key="a", crypto_key_reader=reader, **options)
    plain = await client.create_producer(TOPIC)
    for number in contents:
        await (plain if number % 2 else secret).send(b"%d" % number)


@pytest.mark.parametrize("kind", [Slow, Plain])
def test_messages_keep_their_order_while_a_key_is_read(pair, kind) -> None:
    async def scenario(client: gc.Client) -> None:
        reader = kind(pair)
        await publish(client, reader, range(8))
        consumer = await client.subscribe(TOPIC, "s", crypto_key_reader=reader, initial_position=EARLIEST)
        other = await client.subscribe(
            TOPIC, "other", initial_position=EARLIEST, crypto_failure_action=FailureAction.CONSUME
        )
        started = asyncio.get_running_loop().time()
        first = asyncio.ensure_future(consumer.receive())
        assert [len((await other.receive(500)).data()) > 0 for _ in range(8)] == [True] * 8
        if kind is Slow:
            assert asyncio.get_running_loop().time() - started < 0.5, "the loop and other consumers go on"
        messages = [await first, *[await consumer.receive(5000) for _ in range(7)]]
        assert [message.data() for message in messages] == [b"%d" % number for number in range(8)]
        assert reader.asked == 1
        (topic,) = consumer.held.all()
        assert isinstance(topic._intake.key_gate, KeyGate)
        assert not topic._intake.key_gate.is_holding

    run(scenario)


@pytest.mark.parametrize(
    ("action", "expected"),
    [(FailureAction.FAIL, 4), (FailureAction.DISCARD, 4), (FailureAction.CONSUME, 8)],
)
def test_key_reader_that_raises_holds_nothing_back(pair, action, expected) -> None:
    async def scenario(client: gc.Client) -> None:
        reader = Slow(pair)
        await publish(client, reader, range(8))
        reader.error = KeyError("a")
        consumer = await client.subscribe(
            TOPIC, "s", crypto_key_reader=reader, initial_position=EARLIEST, crypto_failure_action=action
        )
        got = [(await consumer.receive(5000)).data() for _ in range(expected)]
        assert [data for data in got if len(data) == 1] == [b"1", b"3", b"5", b"7"]
        assert consumer.is_connected()
        with pytest.raises(gc.Timeout):
            await consumer.receive(100)
        assert reader.asked == 1
        if action is not FailureAction.FAIL:
            return
        reader.error = None
        await consumer.redeliver_unacknowledged_messages()
        assert [(await consumer.receive(5000)).data() for _ in range(8)] == [b"%d" % number for number in range(8)]

    run(scenario)


def test_closing_and_seeking_do_not_wait_for_a_key(pair) -> None:
    async def scenario(client: gc.Client) -> None:
        reader = Slow(pair)
        await publish(client, reader, range(4))
        consumer = await client.subscribe(TOPIC, "s", crypto_key_reader=reader, initial_position=EARLIEST)
        await wait_ms(100)
        await consumer.seek(gc.MessageId.earliest)
        assert [(await consumer.receive(5000)).data() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        other = await client.subscribe(TOPIC, "other", crypto_key_reader=Slow(pair), initial_position=EARLIEST)
        await wait_ms(100)
        receiving = asyncio.ensure_future(other.receive())
        await wait_ms(1)
        async with asyncio.timeout(0.5):
            await other.close()
        with pytest.raises(gc.AlreadyClosed):
            await receiving

    run(scenario)


def test_encrypted_chunks_wait_for_their_key(pair) -> None:
    async def scenario(client: gc.Client) -> None:
        reader = Slow(pair)
        producer = await client.create_producer(
            TOPIC,
            encryption_key="a",
            crypto_key_reader=reader,
            batching_enabled=False,
            chunking_enabled=True,
            chunk_max_message_size=1000,
        )
        content = bytes(range(256)) * 20
        await producer.send(content)
        consumer = await client.subscribe(TOPIC, "s", crypto_key_reader=reader, initial_position=EARLIEST)
        assert (await consumer.receive(5000)).data() == content

    run(scenario)


def test_consumer_without_prefetching_asks_for_one_while_a_key_is_read(pair) -> None:
    async def scenario(client: gc.Client) -> None:
        reader = Slow(pair)
        await publish(client, reader, range(0, 8, 2))
        consumer = await client.subscribe(
            TOPIC, "s", crypto_key_reader=reader, initial_position=EARLIEST, receiver_queue_size=0
        )
        for number in range(0, 8, 2):
            if number == 0:
                with pytest.raises(gc.Timeout):
                    await consumer.receive(100)
            assert (await consumer.receive(5000)).data() == b"%d" % number
            await wait_ms(2000)
            assert consumer.stats().prefetched_messages == 0

    run(scenario)


async def check_six_come(consumer: gc.Consumer) -> None:
    """In their order, though they are asked for again while the first is held."""
    receiving = asyncio.ensure_future(consumer.receive(10_000))
    await wait_ms(500)
    await consumer.redeliver_unacknowledged_messages()
    first = await receiving
    assert [first.data(), *[(await consumer.receive(10_000)).data() for _ in range(5)]] == [
        b"%d" % number for number in range(6)
    ]


@pytest.mark.parametrize("queue", [0, 1, 4])
@pytest.mark.parametrize("kind", [gc.ConsumerType.Exclusive, gc.ConsumerType.Shared], ids=["exclusive", "shared"])
def test_what_is_held_and_asked_for_again_comes(pair, kind: gc.ConsumerType, queue: int) -> None:
    async def scenario(client: gc.Client) -> None:
        reader = Slow(pair)
        await publish(client, reader, range(6), batching_enabled=False)
        consumer = await client.subscribe(
            TOPIC,
            "s",
            crypto_key_reader=reader,
            initial_position=EARLIEST,
            receiver_queue_size=queue,
            consumer_type=kind,
        )
        await check_six_come(consumer)

    run(scenario)


@pytest.mark.parametrize("queue", [0, 1, 10])
def test_batches_that_are_handed_out_as_they_came_take_as_many_permits_as_they_have_messages(pair, queue: int) -> None:
    async def scenario(client: gc.Client) -> None:
        reader = Slow(pair)
        consumer = await client.subscribe(
            TOPIC, "s", crypto_failure_action=FailureAction.CONSUME, receiver_queue_size=queue
        )
        producer = await client.create_producer(
            TOPIC, encryption_key="a", crypto_key_reader=reader, batching_max_messages=10
        )
        for number in range(60):
            producer.send_nowait(b"%d" % number)
        await producer.flush()
        for _ in range(6):
            assert (await consumer.receive(1000)).encryption_context() is not None

    run(scenario)
