"""Frames that a consumer is sent, and its end."""

from __future__ import annotations

import asyncio

import pytest

from geminga.broker.subscription.limits import host_of
from geminga.broker.subscription.subscribe import create_subscription
from geminga.model.errors import ConsumerBusyError, NotAllowedError, SubscriptionNotFoundError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_broker_entry_metadata, encode_entry
from support.house.python_calls import counted_calls
from support.worlds.subscriptions import Sub, settle, subscribe, with_topic


@pytest.mark.parametrize("supports", [False, True])
def test_broker_entry_metadata_is_for_clients_that_know_it(supports):
    async def scenario(topic):
        connection = topic.connect()
        connection.supports_broker_entry_metadata = supports
        raw = []
        connection.write_many = lambda parts: raw.append(b"".join(parts))
        await topic.join(connection)
        message = encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"x")
        prefix = encode_broker_entry_metadata(broker_timestamp_ms=5, index=3)
        await topic.append([prefix + message])
        assert raw[0].endswith(message)
        assert (prefix in raw[0]) is supports

    with_topic(scenario)


def test_disconnect_tells_the_client_once_and_gives_back():
    async def scenario(topic):
        connection = topic.connect()
        consumer = await topic.join(connection)
        await topic.publish("m")
        consumer.disconnect()
        consumer.disconnect()
        assert len(connection.of_type(pb.BaseCommand.CLOSE_CONSUMER)) == 1
        assert connection.consumers == {}
        assert topic.subscriptions["sub"].dispatch is None
        await topic.join(connection, consumer_id=2)
        assert connection.texts(2) == ["m"]

    with_topic(scenario)


def test_limits_of_consumers_and_subscriptions_hold():
    async def scenario(topic):
        connection = await topic.joined(consumer_id=1)
        await topic.join(connection, consumer_id=2)
        with pytest.raises(ConsumerBusyError):
            await topic.join(connection, consumer_id=3)
        await topic.join(connection, subscription="other", consumer_id=4)
        with pytest.raises(ConsumerBusyError):
            await topic.join(connection, subscription="other", consumer_id=5)
        with pytest.raises(NotAllowedError):
            await create_subscription(topic, "third")

    with_topic(scenario, max_consumers_per_subscription=2, max_consumers_per_topic=3, max_subscriptions_per_topic=2)


@pytest.mark.parametrize("limit", ["max_consumers_per_topic", "max_consumers_per_address"])
def test_consumers_that_wait_for_a_seek_are_no_more_than_there_may_be(limit: str) -> None:
    """Each found that there was room, waited, and joined with the others."""

    async def scenario(topic):
        connection = await topic.joined(consumer_id=1)
        subscription = topic.subscriptions["sub"]
        await subscription.fence()
        waiting = [asyncio.ensure_future(topic.join(connection, consumer_id=2 + number)) for number in range(5)]
        await settle()
        subscription.unfence()
        joined = await asyncio.gather(*waiting, return_exceptions=True)
        assert sum(isinstance(outcome, ConsumerBusyError) for outcome in joined) == 3
        assert len(subscription.consumers) == 2

    with_topic(scenario, **{limit: 2})


def test_who_joins_under_a_limit_of_its_address_looks_at_no_other_consumer():
    async def scenario(topic):
        connection = topic.connect()
        looks = []
        for number in range(40):
            with counted_calls(host_of) as calls:
                await topic.join(connection, consumer_id=number, subscription=f"s{number % 3}")
                looks.append(calls())
        assert looks == [3] * 40, "asked before and after it may have waited, and counted"

    with_topic(scenario, max_consumers_per_address=1000)


def test_consumers_of_an_address_are_counted_whatever_becomes_of_them():
    async def scenario(topic):
        connection, other = topic.connect(), topic.connect()
        other.peer = "/10.0.0.1:4711"

        def counted() -> int:
            topic.consumer_counts.check_invariants(topic.subscriptions.values())
            return topic.consumer_counts.total

        for number in range(3):
            await topic.join(connection, consumer_id=number)
        await topic.join(other)
        with pytest.raises(ConsumerBusyError, match="different type"):
            await topic.join(other, Sub.Exclusive, consumer_id=2)
        with pytest.raises(ConsumerBusyError, match="same address"):
            await topic.join(connection, consumer_id=3)
        assert counted() == 4
        connection.consumers[1].close()
        assert counted() == 3
        topic.subscriptions["sub"].cut_off()
        assert counted() == 0
        for number in range(3):
            await topic.join(connection, Sub.Failover, consumer_id=number)
        await topic.subscriptions["sub"].fence()
        assert counted() == 0
        topic.subscriptions["sub"].unfence()
        await topic.join(connection, Sub.Exclusive, durable=False, subscription="reader")
        assert counted() == 1
        connection.drop()
        other.drop()
        assert counted() == 0

    with_topic(scenario, max_consumers_per_address=3)


def test_subscription_that_may_not_be_created_is_not_found():
    async def scenario(topic):
        request = Sub(topic=str(topic.name), subscription="sub", subType=Sub.Shared, consumer_id=1, request_id=1)
        with pytest.raises(SubscriptionNotFoundError):
            await subscribe(topic, topic.connect(), request, allow_creation=False)
        await topic.create_subscription("sub")
        await subscribe(topic, topic.connect(), request, allow_creation=False)

    with_topic(scenario)


def test_subscription_properties_and_names_survive_in_the_cursor():
    async def scenario(topic):
        connection = topic.connect()
        await topic.join(
            connection,
            subscription="a b/c%",
            subscription_properties=[pb.KeyValue(key="k", value="v")],
        )
        subscription = topic.subscriptions["a b/c%"]
        assert subscription.cursor.name == "a+b%2Fc%25"
        assert subscription.properties == {"k": "v"}
        await subscription.set_properties({"x": "y"})
        assert subscription.properties == {"x": "y"}
        connection.drop()
        await subscription.delete()
        await settle()
        assert topic.subscriptions == {}

    with_topic(scenario)
