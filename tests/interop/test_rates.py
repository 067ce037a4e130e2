"""Rates as both brokers keep them: one period's worth at once, and the rest in the time that it takes."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.processes.raw_protocol import RawConnection, frame
from support.stories.client_stories import RECEIVE_MS, run
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

RATE = 20
MESSAGES = 60
#: Two periods at the least, less what a clock's tick and a burst at the end are worth; a slow machine takes longer.
SECONDS_MIN = (MESSAGES - RATE) / RATE - 0.4


@pytest.fixture
def name(broker, topic) -> str:
    """A topic in a namespace of its own, for policies."""
    namespace = f"public/{topic}"
    rest = Rest(broker.web_service_url)
    assert rest.put(f"namespaces/{namespace}").status == 204
    return f"persistent://{namespace}/{topic}"


def set_rate(broker, name: str, path: str, value: dict) -> None:
    namespace = name.removeprefix("persistent://").rpartition("/")[0]
    assert Rest(broker.web_service_url).post(f"namespaces/{namespace}/{path}", value).status == 204


async def publish_one_by_one(client, name: str) -> float:
    """Seconds that it took to publish :data:`MESSAGES`, each in an entry of its own."""
    async with await client.create_producer(name, batching_enabled=False) as producer:
        await producer.send(b"first")
        begin = asyncio.get_running_loop().time()
        await asyncio.gather(*[producer.send(b"m%d" % n) for n in range(MESSAGES)])
        return asyncio.get_running_loop().time() - begin


async def receive_all(client, name: str) -> tuple[list[bytes], float]:
    """What a new consumer gets, and the seconds between the first and the last."""
    consumer = await client.subscribe(name, "sub", initial_position=gc.InitialPosition.Earliest)
    found = [await consumer.receive(RECEIVE_MS)]
    begin = asyncio.get_running_loop().time()
    while len(found) <= MESSAGES:
        found.append(await consumer.receive(RECEIVE_MS))
    return [message.data() for message in found], asyncio.get_running_loop().time() - begin


def test_publish_rate_slows_down_who_publishes_faster_and_loses_nothing(broker, name) -> None:
    set_rate(broker, name, "publishRate", {"publishThrottlingRateInMsg": RATE, "publishThrottlingRateInByte": -1})

    async def main(client):
        # Apache's broker does not look at each message: what one read brought may be more than there are tokens.
        took = await publish_one_by_one(client, name)
        took += await publish_one_by_one(client, name)
        assert took >= SECONDS_MIN
        consumer = await client.subscribe(name, "sub", initial_position=gc.InitialPosition.Earliest)
        found = [(await consumer.receive(RECEIVE_MS)).data() for _ in range(2 * MESSAGES + 2)]
        assert found == 2 * [b"first", *[b"m%d" % n for n in range(MESSAGES)]]

    run(broker, main)


@pytest.mark.parametrize("path", ["dispatchRate", "subscriptionDispatchRate"])
def test_dispatch_rates_slow_down_what_consumers_are_sent(broker, judge_is_apache, name, path) -> None:
    rate = {"dispatchThrottlingRateInMsg": RATE, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}

    async def main(client):
        await publish_one_by_one(client, name)
        set_rate(broker, name, path, rate)
        if judge_is_apache:
            # A topic that is loaded hears of it some time after the answer, and does not tell when: load it anew.
            unload = await asyncio.to_thread(Rest(broker.web_service_url).put, f"{name.replace('://', '/')}/unload")
            assert unload.status == 204
        found, took = await receive_all(client, name)
        assert found == [b"first", *[b"m%d" % n for n in range(MESSAGES)]]
        assert took >= SECONDS_MIN

    run(broker, main)


def subscribed(connection: RawConnection, name: str, consumer_id: int) -> pb.BaseCommand:
    """The answer to SUBSCRIBE; a consumer that was made is closed again."""
    command = pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE)
    command.subscribe.topic = name
    command.subscribe.subscription = "sub"
    command.subscribe.subType = pb.CommandSubscribe.Shared
    command.subscribe.consumer_id = consumer_id
    command.subscribe.request_id = 1
    command.subscribe.consumer_name = "c"
    connection.send(frame(command))
    answer = connection.receive()
    assert answer is not None
    if answer.type == pb.BaseCommand.SUCCESS:
        close = pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER)
        close.close_consumer.consumer_id, close.close_consumer.request_id = consumer_id, 2
        connection.send(frame(close))
        connection.expect(pb.BaseCommand.SUCCESS)
    return answer


def test_subscribe_rate_refuses_a_consumer_that_comes_too_often(broker, name) -> None:
    set_rate(broker, name, "subscribeRate", {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 60})

    async def main(client):
        async with await client.create_producer(name):
            pass

    run(broker, main)
    port = int(broker.service_url.rpartition(":")[2])
    with RawConnection(port) as connection, RawConnection(port) as other:
        answers = [subscribed(connection, name, 1), subscribed(other, name, 1)]
        assert [answer.type for answer in answers] == [pb.BaseCommand.SUCCESS] * 2
        refused = subscribed(connection, name, 1)
        assert refused.type == pb.BaseCommand.ERROR
        assert refused.error.error == pb.NotAllowedError
        assert "Subscribe limited by subscribe rate limit per consumer." in refused.error.message
        # Another id is another consumer.
        assert subscribed(connection, name, 2).type == pb.BaseCommand.SUCCESS
