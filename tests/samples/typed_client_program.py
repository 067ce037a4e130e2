"""What a user writes, with every part of the client; checked with ``mypy --strict``, never run."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

from geminga.client import (
    Client,
    CompressionType,
    Consumer,
    ConsumerDeadLetterPolicy,
    ConsumerType,
    InitialPosition,
    Message,
    MessageId,
    Opening,
    Producer,
    PulsarException,
    Reader,
    TableView,
    Timeout,
    blocking,
    connect,
)
from geminga.client.schema import StringSchema


def heard(error: PulsarException | None, message_id: MessageId | None) -> None:
    """What became of a message."""
    print(error, message_id)


async def produce(client: Client) -> MessageId:
    """Bytes, and text by a schema."""
    async with client.create_producer("orders", compression_type=CompressionType.ZSTD) as opened:
        plain: Producer[bytes] = opened
        await plain.send(b"zero")
    async with client.create_producer("texts", schema=StringSchema()) as other:
        typed: Producer[str] = other
        await typed.send("text")
    producer: Producer[bytes] = await client.create_producer("orders", compression_type=CompressionType.ZSTD)
    async with producer:
        producer.send_nowait(b"one", partition_key="k", properties={"a": "b"})
        producer.send_nowait(b"later", heard, deliver_after=timedelta(hours=1))
        await producer.flush()
        last: MessageId = await producer.send(b"two")
    texts: Producer[str] = await client.create_producer("texts", schema=StringSchema())
    await texts.send("text")
    return last


async def listen(consumer: Consumer[bytes], message: Message[bytes]) -> None:
    """A listener."""
    await consumer.acknowledge(message)


async def consume(client: Client) -> None:
    """All ways to receive."""
    consumer = await client.subscribe(
        "orders",
        "billing",
        consumer_type=ConsumerType.Shared,
        initial_position=InitialPosition.Earliest,
        dead_letter_policy=ConsumerDeadLetterPolicy(max_redeliver_count=3),
    )
    try:
        message = await consumer.receive(timeout_millis=1000)
    except Timeout:
        return
    except PulsarException as error:
        raise SystemExit(str(error)) from error
    data: bytes = message.data()
    print(data, message.message_id(), message.partition_key(), message.properties())
    await consumer.acknowledge(await consumer.batch_receive())
    async for one in consumer:
        await consumer.negative_acknowledge(one)
    await client.subscribe(re.compile("public/default/orders-.*"), "all", message_listener=listen)
    texts: Consumer[str] = await client.subscribe("texts", "s", schema=StringSchema())
    value: str | None = (await texts.receive()).value()
    print(value)
    async with client.subscribe("texts", "s", schema=StringSchema()) as more:
        also: Consumer[str] = more
        await also.flush_acknowledgements()
    later: Opening[Consumer[bytes]] = client.subscribe("orders", "s")
    await asyncio.create_task(later)  # noqa: TID251 - what users write


async def look(client: Client) -> None:
    """Readers and table views."""
    reader: Reader[bytes] = await client.create_reader("orders", MessageId.earliest)
    while await reader.has_message_available():
        print((await reader.read_next()).data())
    async with client.create_reader("orders", MessageId.latest) as entered:
        other: Reader[bytes] = entered
        print(other.topic())
    async with client.create_table_view("texts", schema=StringSchema()) as settings:
        setting: str | None = settings.get("k")
        print(setting)
    view: TableView[str] = await client.create_table_view("texts", schema=StringSchema())
    newest: str | None = view.get("k")
    print(newest)


def script() -> None:
    """The same, blocking."""
    with blocking.connect("pulsar://localhost:6650") as client:
        producer: blocking.Producer[bytes] = client.create_producer("orders")
        sent: MessageId = producer.send(b"hello")
        consumer: blocking.Consumer[bytes] = client.subscribe("orders", "s")
        for message in consumer:
            consumer.acknowledge(message)
            print(sent, message.data())


async def main() -> None:
    """All of it."""
    async with connect("pulsar://localhost:6650", operation_timeout_ms=5_000) as client:
        await produce(client)
        await consume(client)
        await look(client)


if __name__ == "__main__":
    asyncio.run(main())
