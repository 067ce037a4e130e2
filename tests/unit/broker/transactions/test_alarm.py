"""The alarm of transactions that hold topics and subscriptions back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest

from geminga.broker.transactions.alarm import HeldNow
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import Transacting, producing
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker

OTHER = "persistent://public/default/other"
THRESHOLD_MS = 10_000


def run(scenario: Callable[[BrokerWorld, Transacting], Awaitable[None]], **settings) -> None:
    async def main(world: BrokerWorld) -> None:
        client = await producing(world)
        await client.client.create_producer(OTHER, 2)
        await client.client.subscribe(OTHER, 2, subType=pb.CommandSubscribe.Shared)
        await scenario(world, client)

    run_with_broker(main, **{"transaction_coordinator_enabled": True, "transaction_alarm_ms": THRESHOLD_MS, **settings})


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if " holds back " in record.getMessage()]


async def held(client: Transacting, *, timeout_ms: int = 3_600_000):
    txn_id = await client.begin(timeout_ms)
    await client.add_partition(txn_id)
    await client.publish(b"a", txn_id)
    return txn_id


def test_transaction_is_told_of_once_with_what_is_known_of_it(caplog) -> None:
    async def scenario(world: BrokerWorld, client: Transacting) -> None:
        alarm = world.broker.transactions.alarm
        assert not alarm.is_looking
        await client.publish(b"x", producer_id=2)
        await wait_ms(50)
        ((taken, _),) = client.messages()
        txn_id = await held(client)
        await wait_ms(1_000)
        await client.add_subscription(txn_id, OTHER)
        await client.acknowledge([taken], txn_id, consumer_id=2)
        await wait_ms(THRESHOLD_MS // 2)
        assert told(caplog) == []
        assert alarm.now()[:2] == (0, 0)
        await wait_ms(2 * THRESHOLD_MS)
        (line,) = told(caplog)
        assert line.startswith(f"transaction (0,0) holds back {TOPIC} (producer ")
        assert f", sub of {OTHER} for 1" in line
        assert "(gemingaTransactionAlarmMillis=10000): it is OPEN, it times out in 35" in line
        assert alarm.now() == HeldNow(1, 1, alarm.now().longest_ms)
        assert alarm.alarm_count == 1
        assert 2 * THRESHOLD_MS < alarm.now().longest_ms < 3 * THRESHOLD_MS
        await client.end(txn_id, commit=True)
        await wait_ms(THRESHOLD_MS)
        assert alarm.now() == (0, 0, 0)
        assert not alarm.is_looking

    with caplog.at_level(logging.WARNING):
        run(scenario)


def test_the_next_one_in_line_is_told_of_when_it_holds_the_topic(caplog) -> None:
    async def scenario(world: BrokerWorld, client: Transacting) -> None:
        first = await held(client)
        second = await held(client)
        await wait_ms(2 * THRESHOLD_MS)
        assert [line.split(" holds")[0] for line in told(caplog)] == ["transaction (0,0)"]
        await client.end(first, commit=False)
        await wait_ms(2 * THRESHOLD_MS)
        assert [line.split(" holds")[0] for line in told(caplog)] == ["transaction (0,0)", "transaction (0,1)"]
        await client.end(second, commit=True)

    with caplog.at_level(logging.WARNING):
        run(scenario)


def test_transaction_that_was_open_when_its_topic_was_loaded_is_told_of(caplog) -> None:
    async def scenario(world: BrokerWorld, client: Transacting) -> None:
        await client.publish(b"x", producer_id=2)
        await wait_ms(50)
        ((taken, _),) = client.messages()
        txn_id = await held(client)
        await client.add_subscription(txn_id, OTHER)
        await client.acknowledge([taken], txn_id, consumer_id=2)
        for topic in (TOPIC, OTHER):
            await world.broker.registry.unload(TopicName.parse(topic))
        await wait_ms(THRESHOLD_MS)
        alarm = world.broker.transactions.alarm
        assert alarm.now() == (0, 0, 0), "what is not loaded is held by nobody"
        assert not alarm.is_looking
        for topic in (TOPIC, OTHER):
            await world.broker.registry.get(TopicName.parse(topic), create=False)
        await wait_ms(2 * THRESHOLD_MS)
        (line,) = told(caplog)
        assert TOPIC in line
        assert f"sub of {OTHER}" in line
        # The client said 1970; no transaction is as old as that.
        assert alarm.now().longest_ms <= 86_400_000 + 10 * THRESHOLD_MS

    with caplog.at_level(logging.WARNING):
        run(scenario)


def test_many_are_told_of_a_few_at_a_time(caplog) -> None:
    async def scenario(world: BrokerWorld, client: Transacting) -> None:
        for number in range(15):
            topic = f"persistent://public/default/t{number}"
            await client.client.create_producer(topic, 10 + number)
            txn_id = await client.begin(3_600_000)
            await client.add_partition(txn_id, topic)
            await client.publish(b"a", txn_id, producer_id=10 + number)
        await wait_ms(2 * THRESHOLD_MS)
        assert len(told(caplog)) == 10
        assert "5 more transactions hold back" in caplog.text
        assert world.broker.transactions.alarm.now().topics == 15
        await wait_ms(60_000)
        assert len(told(caplog)) == 15

    with caplog.at_level(logging.WARNING):
        run(scenario)


def test_threshold_of_nothing_is_off(caplog) -> None:
    async def scenario(world: BrokerWorld, client: Transacting) -> None:
        await held(client)
        assert not world.broker.transactions.alarm.is_looking
        await wait_ms(100 * THRESHOLD_MS)
        assert world.broker.transactions.alarm.now() == (0, 0, 0)

    with caplog.at_level(logging.WARNING):
        run(scenario, transaction_alarm_ms=0)
    assert told(caplog) == []


def test_time_out_is_the_bound_of_what_is_held(caplog) -> None:
    """Nobody is told of a transaction whose time-out is shorter than the threshold, and nothing is left of it."""

    async def scenario(world: BrokerWorld, client: Transacting) -> None:
        await held(client, timeout_ms=THRESHOLD_MS // 2)
        await wait_ms(2 * THRESHOLD_MS)
        assert world.broker.transactions.alarm.now() == (0, 0, 0)
        assert not world.broker.transactions.alarm.is_looking

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert told(caplog) == []
