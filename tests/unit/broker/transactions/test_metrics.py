"""Transactions in ``/metrics``."""

from __future__ import annotations

from geminga.broker.composition.metrics import Metrics
from geminga.broker.statistics.topics import TopicStatistics
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import producing
from support.house.exposition import samples
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker

#: As Pulsar 4.2.4 exposes them with the label ``coordinator_id``.
OF_COORDINATORS = {
    *(f"pulsar_txn_{name}" for name in ("active_count", "created_total", "committed_total", "aborted_total")),
    *(f"pulsar_txn_{name}" for name in ("timeout_total", "append_log_total")),
    *(
        f"pulsar_txn_execution_latency_le_{bound}"
        for bound in (10, 20, 50, 100, 500, 1000, 5000, 15000, 30000, 60000, 300000, 1500000, 3000000, "overflow")
    ),
}


def page_of(world: BrokerWorld) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    statistics = TopicStatistics(world.broker.runtime.clock, world.broker)
    text = Metrics(world.broker, statistics, cluster="standalone").text()
    return {(each.name, frozenset(each.labels.items())): each.value for each in samples(text)}


def test_transactions_are_counted_by_pulsars_names() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await producing(world)
        await client.client.subscribe(subType=pb.CommandSubscribe.Shared)
        assert not [name for name, _ in page_of(world) if name in OF_COORDINATORS]
        await client.publish(b"x")
        await client.publish(b"y")
        await wait_ms(50)
        taken = [each for each, _ in client.messages()]
        for index, commit in enumerate((True, False)):
            txn_id = await client.begin(coordinator=1)
            await client.add_partition(txn_id)
            await client.add_subscription(txn_id)
            await client.publish(b"a", txn_id)
            await client.acknowledge([taken[index]], txn_id)
            await wait_ms(30)
            await client.end(txn_id, commit=commit)
        await client.begin(150, coordinator=1)
        await wait_ms(500)
        last = await client.begin(600_000, coordinator=1)
        await client.add_partition(last)
        await client.publish(b"a", last)
        await wait_ms(200_000)
        page = page_of(world)
        mine = frozenset({("cluster", "standalone"), ("coordinator_id", "1")})
        found = {name: value for (name, labels), value in page.items() if labels == mine}
        older = {name.replace("_total", "_count") for name in OF_COORDINATORS if name.endswith("_total")}
        assert set(found) == {*OF_COORDINATORS, *older, "geminga_txn_ending_count"}
        assert all(found[name] == found[name.replace("_count", "_total")] for name in older)
        counted = {name.removeprefix("pulsar_txn_"): found[name] for name in OF_COORDINATORS if "latency" not in name}
        assert counted == {
            "active_count": 1,
            "created_total": 4,
            "committed_total": 1,
            "aborted_total": 2,
            "timeout_total": 1,
            "append_log_total": 4 + 5 + 2 * 3,
        }
        latencies = {name.rpartition("_")[2]: found[name] for name in OF_COORDINATORS if "latency" in name}
        assert {bound: count for bound, count in latencies.items() if count} == {"50": 2, "500": 1}
        acks = {("namespace", "public/default"), ("topic", TOPIC), ("subscription", "sub"), ("status", "succeed")}
        labels = frozenset({("cluster", "standalone"), *acks})
        assert page["pulsar_txn_tp_committed_count_total", labels] == 1
        assert page["pulsar_txn_tp_aborted_count_total", labels] == 1
        of_topic = frozenset({("cluster", "standalone"), ("namespace", "public/default"), ("topic", TOPIC)})
        buffers = {name: value for (name, labels), value in page.items() if labels == of_topic and "_txn_tb_" in name}
        assert buffers == {
            "pulsar_txn_tb_active_total": 1,
            "pulsar_txn_tb_aborted_total": 1,
            "pulsar_txn_tb_committed_total": 1,
        }
        whole = frozenset({("cluster", "standalone")})
        assert page["geminga_txn_alarms_total", whole] == 1
        assert page["geminga_txn_held_back_topics", whole] == 1
        assert page["geminga_txn_held_back_subscriptions", whole] == 0
        assert 200 <= page["geminga_txn_held_back_longest_seconds", whole] < 202

    run_with_broker(scenario, transaction_coordinator_enabled=True)


def test_broker_without_transactions_tells_none() -> None:
    async def scenario(world: BrokerWorld) -> None:
        assert not [name for name, _ in page_of(world) if "_txn_" in name]

    run_with_broker(scenario)
