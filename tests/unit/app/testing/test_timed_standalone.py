"""A broker whose clock a test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

import geminga.admin
import geminga.client as gc
from geminga.app.testing.timed_standalone import MovedClock, TimedStandalone
from geminga.model.errors import ConfigurationError, LocalError

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def broker():
    with TimedStandalone(config={"messageExpiryCheckIntervalInMinutes": 1}) as made:
        yield made


@asynccontextmanager
async def subscribed(broker, topic: str) -> AsyncIterator[tuple[gc.Producer[bytes], gc.Consumer[bytes]]]:
    async with (
        gc.connect(broker.service_url) as client,
        client.subscribe(topic, "s", consumer_type=gc.ConsumerType.Shared) as consumer,
        client.create_producer(topic) as producer,
    ):
        yield producer, consumer


def test_delayed_message_comes_when_the_clock_says_so_and_not_before(broker) -> None:
    async def story() -> None:
        async with subscribed(broker, "delayed") as (producer, consumer):
            await producer.send(b"in two hours", deliver_after=2 * HOUR)
            broker.advance(HOUR)
            await producer.send(b"at once")
            assert (await consumer.receive(10_000)).data() == b"at once"
            broker.advance(HOUR.total_seconds())
            assert (await consumer.receive(10_000)).data() == b"in two hours"
            assert producer.is_connected()  # hours in which nothing came break no connection

    asyncio.run(story())


def test_messages_expire(broker) -> None:
    async def story() -> None:
        async with (
            geminga.admin.connect(broker.web_service_url) as admin,
            subscribed(broker, "expiring") as (producer, consumer),
        ):
            await admin.namespace_policies.message_ttl.set("public/default", 3600)
            await consumer.close()
            await producer.send(b"old")
            broker.advance(2 * HOUR)
            async with asyncio.timeout(60):
                while (await admin.topics.stats("expiring"))["subscriptions"]["s"]["msgBacklog"]:
                    pass
            await admin.namespace_policies.message_ttl.remove("public/default")

    asyncio.run(story())


def test_transaction_times_out(broker) -> None:
    async def story() -> None:
        async with gc.connect(broker.service_url) as client, client.create_producer("in-transaction") as producer:
            txn = await client.transaction(timeout=HOUR)
            await producer.send(b"never seen", txn=txn)
            broker.advance(2 * HOUR)
            with pytest.raises((gc.InvalidTxnStatusError, gc.TransactionNotFound)):
                await txn.commit()

    asyncio.run(story())


def test_what_is_acknowledged_goes_when_its_time_of_retention_is_over(broker) -> None:
    """A ledger is full after four hours, and goes an hour after its last message."""

    async def story() -> None:
        async with (
            geminga.admin.connect(broker.web_service_url) as admin,
            subscribed(broker, "kept") as (producer, consumer),
        ):
            kept = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
            await admin.namespace_policies.retention.set("public/default", kept)

            async def ledgers() -> list[int]:
                await producer.send(b"order")
                await consumer.acknowledge(await consumer.receive(10_000))
                await consumer.flush_acknowledgements()
                return [each["ledgerId"] for each in (await admin.topics.internal_stats("kept"))["ledgers"]]

            (first,) = await ledgers()
            async with asyncio.timeout(60):
                while first in await ledgers():
                    broker.advance(5 * HOUR)

    asyncio.run(story())


def test_what_the_clock_can_not_do_is_said(broker) -> None:
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(LocalError, match="time goes forward"):
            broker.advance(seconds)
    with pytest.raises(LocalError, match="not running"):
        TimedStandalone().advance(1)
    with pytest.raises(ConfigurationError, match="gemingaEventLoop=uvloop"):
        TimedStandalone(config={"gemingaEventLoop": "uvloop"})


def test_clock_tells_the_systems_time_and_what_was_added() -> None:
    clock, moved = MovedClock(), MovedClock()
    moved.moved_s = 1000.0
    assert moved.monotonic() - clock.monotonic() == pytest.approx(1000, abs=1)
    assert moved.wall_ms() - clock.wall_ms() == pytest.approx(1_000_000, abs=1000)
    assert moved.worked() - clock.worked() == pytest.approx(0, abs=1)
