"""Whatever the application's own code raises, nobody who waits for the client is forgotten and no message is lost."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client._client import Client
from geminga.client._transport.link import Link
from geminga.client.schema import StringSchema
from geminga.runtime import wait_ms
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import polite, run_against, run_with_broker

TOPIC = "persistent://public/default/topic"
EARLIEST = gc.InitialPosition.Earliest
SHARED = gc.ConsumerType.Shared


class Broken(gc.CryptoKeyReader):
    """Raises what no reader should."""

    async def get_public_key(self, key_name, metadata):
        raise KeyError(key_name)

    async def get_private_key(self, key_name, metadata):
        raise KeyError(key_name)


def run(scenario, **options):
    """With a limit that is far below the send timeout."""

    async def limited(client: gc.Client, broker: BrokerOnNode):
        async with asyncio.timeout(20):
            return await scenario(client)

    return run_with_broker(limited, **options)


async def stored(client: gc.Client, count: int) -> list[bytes]:
    """The topic's messages."""
    async with await client.create_reader(TOPIC, gc.MessageId.earliest) as reader:
        return [(await reader.read_next(1000)).data() for _ in range(count)]


# ---- producers


def test_key_reader_that_raises_fails_the_producer_by_name() -> None:
    async def scenario(client: gc.Client) -> None:
        with pytest.raises(gc.CryptoError, match="KeyError"):
            await client.create_producer(TOPIC, encryption_key="a", crypto_key_reader=Broken())

    run(scenario)


@pytest.mark.parametrize("count", [1, 3])
def test_key_reader_that_raises_sends_in_the_clear_where_that_is_wanted(count: int) -> None:
    async def scenario(client: gc.Client) -> None:
        action = gc.CryptoFailureAction.SEND
        producer = await client.create_producer(
            TOPIC, encryption_key="a", crypto_key_reader=Broken(), crypto_failure_action=action
        )
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(count)))
        assert await stored(client, count) == [b"%d" % number for number in range(count)]

    run(scenario)


@pytest.mark.parametrize("kind", [gc.BatchingType.Default, gc.BatchingType.KeyBased])
def test_message_that_can_not_be_encoded_fails_alone(kind: gc.BatchingType) -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_type=kind)
        sends = [producer.send(b"a"), producer.send(b"b", properties={"half": "\ud800"}), producer.send(b"c")]
        first, second, third = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(first, gc.MessageId)
        assert isinstance(third, gc.MessageId)
        assert isinstance(second, gc.PulsarException)
        assert isinstance(second.__cause__, UnicodeEncodeError)
        assert await stored(client, 2) == [b"a", b"c"]

    run(scenario)


def test_message_that_can_not_be_encoded_is_told_to_its_callback_and_to_flush() -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC)
        heard: list[object] = []
        bad = {"half": "\ud800"}
        producer.send_nowait(b"a", lambda error, _: heard.append(error), properties=bad)
        await producer.flush()
        await wait_ms(1)
        assert [type(error) for error in heard] == [gc.UnexpectedError]
        producer.send_nowait(b"b", properties=bad)
        with pytest.raises(gc.UnexpectedError):
            await producer.flush()
        assert producer.pending_messages == 0

    run(scenario)


def test_close_ends_what_can_not_be_encoded() -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_max_publish_delay_ms=10_000)
        heard: list[object] = []
        producer.send_nowait(b"a", lambda error, _: heard.append(error), properties={"half": "\ud800"})
        producer.send_nowait(b"b", lambda error, _: heard.append(error))
        await producer.close()
        await wait_ms(1)
        assert sorted(str(type(error).__name__) for error in heard) == ["NoneType", "UnexpectedError"]

    run(scenario)


def test_early_message_that_can_not_be_encoded_is_told_and_the_others_leave() -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        await producer.send(b"creates the topic")
        producer = client_made(client)
        producer.connect_soon()
        bad = asyncio.ensure_future(producer.send(b"a", properties={"half": "\ud800"}))
        good = asyncio.ensure_future(producer.send(b"b"))
        assert isinstance(await good, gc.MessageId)
        with pytest.raises(gc.UnexpectedError):
            await bad
        await producer.close()

    def client_made(client: gc.Client):
        from geminga.client._producing.messages import MessageBuilder
        from geminga.client._producing.topic_producer import TopicProducer

        options = gc.ProducerOptions(batching_enabled=False)
        return TopicProducer(
            client.cluster,
            client.memory,
            TOPIC,
            options,
            MessageBuilder(client.runtime.clock),
            producer_id=100,
            on_closed=client.lifetime.forget_producer,
        )

    run(scenario)


class Angry(gc.ProducerInterceptor):
    """Raises whenever it is called about what is settled."""

    def on_send_acknowledgement(self, producer, message, message_id, error):
        raise KeyError("heard")

    def close(self):
        raise KeyError("closed")


def test_interceptor_that_raises_does_not_hide_the_receipt() -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, interceptors=[Angry()])
        assert isinstance(await producer.send(b"a"), gc.MessageId)
        heard = asyncio.get_running_loop().create_future()
        producer.send_nowait(b"b", lambda error, message_id: heard.set_result((error, message_id)))
        error, message_id = await heard
        assert error is None
        assert isinstance(message_id, gc.MessageId)
        await producer.close()
        assert await stored(client, 2) == [b"a", b"b"]

    run(scenario)


def test_interceptor_and_router_that_give_nonsense_are_named() -> None:
    class Forgetful(gc.ProducerInterceptor):
        def before_send(self, producer, message):
            return None

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, interceptors=[Forgetful()])
        with pytest.raises(gc.InvalidMessage, match="Forgetful"):
            await producer.send(b"a")

    run(scenario)


def test_authentication_that_raises_is_named_at_once() -> None:
    class Authentication:
        method_name = "token"

        def data(self) -> bytes:
            raise KeyError("no token")

    async def scenario(client: gc.Client) -> None:
        with pytest.raises(gc.ErrorGettingAuthenticationData, match="no token"):
            await asyncio.wait_for(client.create_producer("t"), 5)

    run_against(polite, scenario, authentication=Authentication())


def test_what_nobody_foresaw_in_a_reconnect_ends_it_with_an_error() -> None:
    async def scenario(client: gc.Client) -> None:
        assert isinstance(client, Client)
        failures: list[gc.PulsarException] = []

        async def attach(connection) -> None:
            raise KeyError("attached")

        link = Link(client.cluster, "persistent://public/default/t", "test", attach=attach, on_failed=failures.append)
        link.lost()
        await wait_ms(5000)
        assert [type(failure) for failure in failures] == [gc.UnexpectedError]
        assert isinstance(failures[0].__cause__, KeyError)

    run_against(polite, scenario)


# ---- consumers


class AngryConsumerInterceptor(gc.ConsumerInterceptor):
    """Raises whenever it is called."""

    def before_consume(self, consumer, message):
        raise KeyError("received")

    def on_acknowledge(self, consumer, message_id, error):
        raise KeyError("acknowledged")

    def on_negative_acks_send(self, consumer, message_ids):
        raise KeyError("negative")

    def on_ack_timeout_send(self, consumer, message_ids):
        raise KeyError("late")

    def close(self):
        raise KeyError("closed")


def test_interceptor_that_raises_loses_no_message_and_no_redelivery() -> None:
    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC)
        consumer = await client.subscribe(
            TOPIC,
            "s",
            consumer_type=SHARED,
            interceptors=[AngryConsumerInterceptor()],
            negative_ack_redelivery_delay_ms=100,
            unacked_messages_timeout_ms=2000,
        )
        await producer.send(b"a")
        message = await consumer.receive(1000)
        await consumer.negative_acknowledge(message)
        message = await consumer.receive(5000)
        assert message.redelivery_count() == 1
        message = await consumer.receive(10_000)  # after the ack timeout
        assert message.redelivery_count() == 2
        await consumer.acknowledge(message)
        await producer.send(b"b")
        assert [one.data() for one in await consumer.batch_receive()] == [b"b"]
        await consumer.close()

    run(scenario)


def test_closing_the_client_goes_on_past_what_raises() -> None:
    class Listener:
        async def close(self) -> None:
            raise KeyError("closed")

    async def scenario(client: gc.Client) -> None:
        assert isinstance(client, Client)
        producer = await client.create_producer(TOPIC, batching_max_publish_delay_ms=10_000)
        receipt = asyncio.ensure_future(producer.send(b"a"))
        producer.send_nowait(b"b")
        await wait_ms(0)
        client.lifetime.remember(Listener())
        await client.close()
        assert isinstance(await receipt, gc.MessageId)
        assert client.pool.is_closed

    run(scenario)


class _Decoder:
    """Can not be prepared."""

    info = None

    def __init__(self, error: Exception) -> None:
        self._error = error

    def is_ready(self, schema_version: bytes) -> bool:
        return False

    async def prepare(self, schema_version: bytes) -> None:
        raise self._error

    def decode(self, payload: bytes, *, schema_version: bytes = b"", key: bytes | None = None) -> str:
        raise ValueError("no schema")


class _Schema(StringSchema):
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def bind_consumer(self, topic, source):
        return _Decoder(self._error)


@pytest.mark.parametrize("error", [KeyError("schema"), gc.AuthorizationError("not yours"), gc.UnexpectedError("")])
def test_schema_that_can_not_be_prepared_holds_nothing_back(error: Exception) -> None:
    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe(TOPIC, "s", schema=_Schema(error))
        producer = await client.create_producer(TOPIC)
        await producer.send(b"a")
        message = await consumer.receive(5000)
        assert message.data() == b"a"
        with pytest.raises(ValueError, match="no schema"):
            message.value()

    run(scenario)
