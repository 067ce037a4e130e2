"""A user's program over the public API, for type checkers: ``mypy --strict`` and ``pyright`` find nothing in it.

``make check`` reads it beside the source, ``make package`` beside the installed wheel, by both. What it says of types
(``assert_type``) is the promise: a producer of orders sends orders, a consumer of orders receives them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

import pytest

import geminga
import geminga.admin
import geminga.admin.blocking
import geminga.client
import geminga.client.blocking
from geminga.admin.values import Retention
from geminga.client import (
    AuthenticationToken,
    Consumer,
    ConsumerDeadLetterPolicy,
    ConsumerType,
    InitialPosition,
    Message,
    MessageId,
    Producer,
    ProducerInterceptor,
    PulsarException,
    Reader,
    TableView,
    Timeout,
    Topics,
    Transaction,
)
from geminga.client.failover import AutoClusterFailover, ServiceTarget
from geminga.client.schema import AvroSchema, JsonSchema, KeyValue, KeyValueSchema, StringSchema
from geminga.entry_filters import ACCEPT, REJECT, EntryFilter, FilteredEntry, FilterVerdict
from geminga.pytest_plugin import BrokerProcess, TimedStandalone


@dataclass
class Order:
    order_id: str
    amount: float


class Stamp(ProducerInterceptor):
    """Interceptors see what is sent, whatever its type."""


async def asynchronous(url: str, topics: Topics) -> list[Order]:
    """Producers and consumers have the type of their schema."""
    found: list[Order] = []
    async with geminga.client.connect(url, operation_timeout_ms=10_000) as client:
        async with client.create_producer("orders", schema=JsonSchema(Order), interceptors=[Stamp()]) as producer:
            assert_type(producer, Producer[Order])
            assert_type(await producer.send(Order("o-1", 2.5), partition_key="ada"), MessageId)
            producer.send_nowait(Order("o-2", 1.0), lambda error, message_id: print(error, message_id))
            await producer.flush()
        plain = await client.create_producer("texts")
        assert_type(plain, Producer[bytes])
        consumer = await client.subscribe(
            topics,
            "settlement",
            schema=AvroSchema(Order),
            consumer_type=ConsumerType.Shared,
            initial_position=InitialPosition.Earliest,
            dead_letter_policy=ConsumerDeadLetterPolicy(5),
        )
        assert_type(consumer, Consumer[Order])
        try:
            message = await consumer.receive(timeout_millis=1_000)
        except Timeout as error:
            print(error.retriable)
        else:
            assert_type(message, Message[Order])
            order = message.value()
            if order is not None:
                found.append(order)
        async with client.transaction(timeout=30) as txn:
            assert_type(txn, Transaction)
            await plain.send(b"in it", txn=txn)
            async for each in consumer:
                await consumer.acknowledge(each, txn)
                break
        async with client.create_reader("texts", MessageId.earliest, schema=StringSchema()) as reader:
            assert_type(reader, Reader[str])
            while await reader.has_message_available():
                print((await reader.read_next()).value())
        pairs = KeyValueSchema(StringSchema(), JsonSchema(Order))
        async with client.create_producer("pairs", schema=pairs) as keyed:
            await keyed.send(KeyValue("ada", Order("o-3", 1.0)))
        async with client.create_table_view("newest", schema=StringSchema()) as view:
            assert_type(view, TableView[str])
            assert_type(view.get("ada"), str | None)
    return found


def blocking(url: str) -> None:
    """The same names without ``await``."""
    with geminga.client.blocking.connect(url, authentication=AuthenticationToken("file:///token")) as client:
        producer = client.create_producer("orders", schema=JsonSchema(Order))
        assert_type(producer.send(Order("o-1", 1.0)), MessageId)
        with client.subscribe(re.compile("persistent://public/default/.*"), "all") as consumer:
            message = consumer.receive(500)
            assert_type(message.value(), bytes | None)
            consumer.acknowledge(message)
    try:
        geminga.client.blocking.connect("nowhere")
    except PulsarException as error:
        print(error)


def moving(first: str, second: str) -> geminga.client.Client:
    """A provider stands where a URL does."""
    provider = AutoClusterFailover(first, [ServiceTarget(second)], check_interval_s=30)
    return geminga.client.connect(provider)


async def administered(url: str, token: geminga.admin.Authentication) -> int:
    """Calls are typed, and errors by status."""
    kept: Retention = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
    async with geminga.admin.connect(url, authentication=token, timeout_s=5.0) as admin:
        try:
            await admin.namespaces.create("public/orders")
        except geminga.admin.ConflictError as error:
            print(error.status, error.reason)
        await admin.namespace_policies.retention.set("public/orders", kept)
        topics = await admin.topics.list("public/orders")
        assert_type(topics, list[str])
    with geminga.admin.blocking.connect(url) as admin_of_threads:
        return len(admin_of_threads.topics.list("public/orders"))


def only_europe(entry: FilteredEntry) -> FilterVerdict:
    """An entry filter."""
    return ACCEPT if entry.properties.get("region") == "eu" else REJECT


FILTER: EntryFilter = only_europe


def embedded() -> str:
    """A broker of one's own."""
    with geminga.Standalone(config={"maxMessageSize": 1_024_000}, bookies=3) as broker:
        return broker.service_url


def spark(ids: dict[str, MessageId]) -> str:
    """What makes options of Spark's source; needs neither PySpark nor Java."""
    from geminga.spark import OptionError, starting_offsets

    try:
        return starting_offsets(ids, inclusive=True)
    except OptionError as error:
        return str(error)


def pipeline() -> None:
    """A pipeline as a value."""
    from geminga.spark.pipelines import Pipeline, Sink, Source, check

    check(Pipeline("copy", (Source(topics=("orders",)),), Sink(topic="orders-2")))


@pytest.fixture(scope="session")
def geminga_config() -> dict[str, object]:
    """Overrides the plugin's."""
    return {"activeConsumerFailoverDelayTimeMillis": 0}


def test_orders_survive(geminga_process: BrokerProcess, geminga_timed_broker: TimedStandalone) -> None:
    """Brokers of a test's own."""
    assert geminga_process.restart().is_running
    geminga_process.fill_disk()
    geminga_process.free_disk()
    geminga_timed_broker.advance(timedelta(hours=1))


async def test_client_of_a_runner(geminga_client: geminga.client.Client) -> None:
    """As pytest-asyncio or anyio run it."""
    async with geminga_client as client:
        assert_type(await client.create_producer("orders"), Producer[bytes])


def test_orders_arrive(geminga_broker: geminga.Standalone, geminga_service_url: str, geminga_topic: str) -> None:
    """A test with the plugin's fixtures."""
    assert geminga_broker.service_url == geminga_service_url
    with geminga.client.blocking.connect(geminga_service_url) as client:
        assert_type(client.create_producer(geminga_topic).send(b"o"), MessageId)
