"""Transactions are there, and cost nothing before there is one: what a broker looks at when it starts, and opens."""

from __future__ import annotations

import pytest

from geminga.broker.composition import late_transactions
from geminga.model.topic_name import TopicName
from geminga.runtime import wait_ms
from support.clusters.transacting import Transacting, producing, transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker

NAME = TopicName.parse(TOPIC)
LOGS = [f"pulsar/system/persistent/__transaction_log_{number}" for number in range(2)]


def run(scenario) -> None:
    run_with_broker(scenario, transaction_coordinator_enabled=True)


async def some_transactions(world: BrokerWorld) -> Transacting:
    client = await producing(world)
    await client.client.subscribe()
    for commit in (True, False):
        txn_id = await client.begin()
        await client.add_partition(txn_id)
        await client.publish(b"%d" % commit, txn_id)
        await client.finish(txn_id, commit=commit)
    return client


def test_who_uses_no_transaction_opens_nothing_of_them() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.subscribe()
        await client.publish(1)
        for again in (world.broker.registry.unload(NAME), world.restart()):
            await again
            topic = await world.broker.registry.get(NAME, create=False)
            assert "transactionBuffer" not in topic.parts.stats()
            assert topic.subscriptions["sub"].transactions.used is None
            assert world.broker.late_transactions.used is None
        assert await world.ledgers.encoded_names("pulsar/system/persistent") == []
        assert await world.broker.registry.list("public/default", has_system=True) == [TOPIC]

    run(scenario)


def test_after_an_orderly_stop_with_nothing_open_no_log_is_opened() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await some_transactions(world)
        await world.restart()
        await wait_ms(10_000)
        assert world.broker.late_transactions.used is None
        assert [world.ledgers.get(name) for name in LOGS] == [None, None]
        # The topic had transactions, and only its buffer is loaded with it.
        topic = await world.broker.registry.get(NAME, create=False)
        assert topic.parts.stats()["transactionBuffer"]["totalAbortedTransactions"] == 1
        assert [world.ledgers.get(name) for name in LOGS] == [None, None]
        client = await transacting(world)
        await client.client.subscribe()
        await wait_ms(100)
        assert client.payloads() == [b"1"]

    run(scenario)


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_left_open_times_out_though_nobody_comes(is_killed: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await some_transactions(world)
        txn_id = await client.begin(timeout_ms=20_000)
        await client.add_partition(txn_id)
        await client.publish(b"open", txn_id)
        if is_killed:
            old = world.broker
            world.broker = world._new_broker()
            await world.start()
        else:
            await world.restart()
        await wait_ms(19_000)
        assert list(world.broker.transactions.coordinators.open) == [0], "only the one that left something"
        await wait_ms(2_000)
        topic = await world.broker.registry.get(NAME, create=False)
        assert not topic.ledger.extent.is_limited
        assert world.broker.transactions.coordinators.open[0].stats.timed_out == 1
        if is_killed:
            old.is_closing = True

    run(scenario)


def test_what_was_left_is_looked_for_again_where_the_metadata_did_not_answer() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await some_transactions(world)
        await client.begin(timeout_ms=20_000)
        await world.stop()
        world.metadata.expire_session(outage_ms=5_000)
        world.broker = world._new_broker()
        world.broker.late_transactions.start()
        await wait_ms(4_000)
        assert world.broker.late_transactions.used is None
        await wait_ms(5_000)
        assert list(world.broker.transactions.coordinators.open) == [0]

    run(scenario)


def test_coordinators_that_are_not_there_leave_nothing_behind() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await transacting(world)
        for number in (2, 3, 1 << 40, (1 << 63) - 1, (1 << 64) - 1):
            assert (await client.connect(number)).HasField("error")
        assert world.broker.transactions.coordinators._opening == {}

    run(scenario)


def test_subscriptions_behind_those_that_are_asked_for_at_a_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_transactions, "NAMES_AT_ONCE", 2)

    async def scenario(world: BrokerWorld) -> None:
        for name in ("b", "e"):
            await world.ledgers.create(NAME.pending_ack_log(name).managed_ledger_name)
        assert await world.broker.late_transactions.with_logs(NAME, list("abcde")) == ["b", "e"]

    run(scenario)
