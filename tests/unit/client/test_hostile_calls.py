"""Calls with arguments that can not be: each raises at once, and nobody else waits because of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import geminga.client as gc
from geminga.runtime import next_turn
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_with_broker

TOPIC = "persistent://public/default/topic"

HOSTILE = [
    None,
    True,
    -1,
    1 << 63,
    1 << 70,
    0.5,
    float("nan"),
    "text",
    "\ud800",
    b"bytes",
    [None],
    {},
    object(),
    timedelta(days=999_999_999),
    timedelta(days=-1),
]


def ids() -> list[gc.MessageId]:
    """Of what is not there, as far as they can be made."""
    found = []
    for numbers in [
        (-1, 1 << 70, 1, -1),
        (-1, 1, 1 << 64, -1),
        (1 << 40, 1, 1, 1),
        (-5, -7, -9, -11),
        (-1, 3, 3, 1 << 40),
    ]:
        try:
            found.append(gc.MessageId(*numbers))
        except (gc.PulsarException, ValueError, OverflowError):
            pass
    return found


async def hostile(make, *arguments) -> None:
    """The call ends, in whatever way but not by hanging."""
    try:
        async with asyncio.timeout(3):
            result = make(*arguments)
            if asyncio.iscoroutine(result):
                await result
    except TimeoutError:
        raise AssertionError(f"{make} {arguments} hangs") from None
    except (gc.PulsarException, TypeError, ValueError, AttributeError, OverflowError):
        pass


@pytest.mark.parametrize("kind", [gc.ConsumerType.Exclusive, gc.ConsumerType.Shared])
def test_consumer_goes_on_after_senseless_calls(kind) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        consumer = await client.subscribe(
            TOPIC,
            "s",
            consumer_type=kind,
            ack_receipt_enabled=True,
            negative_ack_redelivery_delay_ms=50,
            retry_enabled=True,
        )
        for number, value in enumerate([*HOSTILE, *ids()]):
            calls = [
                consumer.acknowledge,
                consumer.acknowledge_cumulative,
                consumer.negative_acknowledge,
                consumer.seek,
                consumer.reconsume_later,
            ]
            for call in calls:
                await hostile(call, value)
            await consumer.seek(gc.MessageId.latest)
            await producer.send(b"%d" % number)
            message = await consumer.receive(5000)
            assert message.data() == b"%d" % number
            await consumer.negative_acknowledge(message)
            message = await consumer.receive(5000)
            assert message.data() == b"%d" % number
            await asyncio.wait_for(consumer.acknowledge(message), 5)

    run_with_broker(scenario)


def test_producer_goes_on_after_senseless_fields() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        fields = list(gc.MessageFields.__annotations__)
        for value in HOSTILE:
            for field in fields:
                await hostile(lambda v=value, f=field: producer.send(b"x", **{f: v}))
                heard = asyncio.get_running_loop().create_future()
                try:
                    producer.send_nowait(b"y", lambda error, _, h=heard: h.set_result(error), **{field: value})
                except (gc.PulsarException, TypeError, ValueError, AttributeError, OverflowError):
                    continue
                await asyncio.wait_for(heard, 3)
            assert isinstance(await asyncio.wait_for(producer.send(b"good"), 3), gc.MessageId)
            assert producer.pending_messages == 0
        with pytest.raises(gc.InvalidMessage, match="disable_replication"):
            await producer.send(b"x", disable_replication="no")

    run_with_broker(scenario)


def test_callback_that_nobody_would_await_is_refused_with_its_message() -> None:
    """It was called, and what it gave thrown away."""

    async def heard(error: object, message_id: object) -> None:
        raise AssertionError

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        for options in [{}, {"batching_enabled": False}, {"interceptors": [gc.ProducerInterceptor()]}]:
            producer = await client.create_producer(TOPIC, **options)
            for fields in [{}, {"partition_key": "k"}]:
                with pytest.raises(gc.InvalidMessage, match="no coroutine function"):
                    producer.send_nowait(b"x", heard, **fields)
            await producer.flush()
            assert producer.last_sequence_id() == -1

    run_with_broker(scenario)


@pytest.mark.parametrize("target", [-1, 1 << 64, True, "text", None, gc.MessageId(-1, 1 << 70, 1), 0.5])
def test_seek_that_can_not_be_leaves_the_consumer_where_it_is(target) -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        consumer = await client.subscribe(TOPIC, "s")
        await hostile(consumer.seek, target)
        await producer.send(b"next")
        assert (await consumer.receive(5000)).data() == b"next"

    run_with_broker(scenario)


def test_id_that_can_not_be_does_not_take_others_of_its_group_along() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC)
        consumer = await client.subscribe(TOPIC, "s", consumer_type=gc.ConsumerType.Shared, ack_receipt_enabled=True)
        await producer.send(b"good")
        message = await consumer.receive(5000)
        receipt = asyncio.ensure_future(consumer.acknowledge(message))
        await next_turn()
        await hostile(consumer.acknowledge, gc.MessageId(-1, "no", 1))
        await hostile(consumer.acknowledge, [gc.MessageId(-1, 1.5, 1), "x"])
        await asyncio.wait_for(receipt, 5)

    run_with_broker(scenario)
