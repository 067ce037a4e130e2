"""Transactions in whole clusters: each counts whole or not at all, whatever dies, moves or is cut off."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest

import geminga.client as gc
from geminga.broker.ownership.ports import Here
from geminga.broker.peers.standings import QUESTIONS_MAX, PeerStandings
from geminga.broker.peers.topics import PeerTopics
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import Standing, TxnId
from geminga.sim import SimNode, SimWorld, run
from support.clusters.cluster_peers import SimPeerHttp
from support.clusters.cluster_transactions import COORDINATORS, LABELS, cluster_transactions
from support.clusters.cluster_world import BROKERS, PLAIN, ClusterWorld
from support.house.weekly_sample import run_share, run_week
from support.worlds.client_world import CLIENT

#: Some, and those that failed once. 8, 100: a topic held something for a transaction that its coordinator, at another
#: broker, had lost, and believed that it would be told.
SHORT_SEEDS = (2, 4, 7, 8, 100)
LONG_SEEDS = 300
#: Names of subscriptions are decoded twice in paths.
SUBSCRIPTION = "my sub/1"
#: What happens in every run of a few seeds.
OFTEN = tuple(f"cluster.transaction {what}" for what in ("begun", "committed", "aborted", "left open", "failed"))


def test_transactions_of_a_cluster_count_whole_or_not_at_all() -> None:
    run_week(cluster_transactions, range(LONG_SEEDS), least=2, most=40, labels=OFTEN)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_transactions_of_a_cluster_count_whole_or_not_at_all_over_many_seeds() -> None:
    run_share(cluster_transactions, range(LONG_SEEDS), hits_min=20, labels=LABELS)


@pytest.mark.timeout(120)
def test_a_seed_tells_the_same_story_whatever_ran_before_it() -> None:
    """It did not: connections that ended together ended in the order of their addresses in memory."""
    stories: list[str] = []

    async def story(world: SimWorld) -> None:
        await cluster_transactions(world)
        stories.append(world.trace.digest())

    run(story, seed=8)
    kept = [bytearray(number) for number in range(1000)]
    run(story, seed=8)
    assert stories[0] == stories[1]
    assert len(kept) == 1000


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_transaction_is_over_when_its_client_and_the_broker_of_its_coordinator_are_gone(is_taken_over: bool) -> None:
    """Nobody asked for the coordinator any more: the topic, at another broker, believed that it would be told."""

    async def scenario(world: SimWorld) -> None:
        cluster = ClusterWorld(world, has_peers=True, coordinators=COORDINATORS)
        await cluster.start()
        name = TopicName.parse(PLAIN[0])
        client = world.node("client")
        client.start()
        txn_id = await client.run(partial(_leave_open, cluster))
        lost = await _broker_of(cluster, COORDINATORS_TOPIC.with_partition(txn_id.coordinator))
        there = await _broker_of(cluster, name)
        if there == lost:
            # The topic goes elsewhere.
            there = next(one for one in BROKERS if one != lost)
            await world.node(lost).run(
                lambda _: cluster.members[lost].ownership.release(
                    [one for one in cluster.members[lost].ownership.owned if one.has(name)]
                )
            )
            await world.node(there).run(
                lambda _: cluster.members[there].ownership.owner_of(name, is_authoritative=True)
            )
        ledger = await world.node(there).run(lambda _: _ledger(cluster, there, name))
        assert ledger.extent.readable_position < ledger.extent.last_confirmed_position
        world.crash(client)
        cluster.crash(lost)
        if is_taken_over:
            other = next(one for one in BROKERS if one not in (lost, there))
            await world.sleep(10)
            await world.node(other).run(
                lambda _: cluster.members[other].ownership.owner_of(
                    COORDINATORS_TOPIC.with_partition(txn_id.coordinator), is_authoritative=True
                )
            )
        await world.sleep(60)
        ledger = await world.node(there).run(lambda _: _ledger(cluster, there, name))
        assert ledger.extent.readable_position == ledger.extent.last_confirmed_position

    run(scenario, seed=3)


def test_statistics_of_transactions_are_of_all_brokers_whichever_is_asked() -> None:
    """Each answered 503 where a coordinator, or a topic of the transaction, was another broker's."""

    async def scenario(world: SimWorld) -> None:
        cluster, begun = await _with_several_open(world)
        coordinators = {
            f"{number}": await _broker_of(cluster, COORDINATORS_TOPIC.with_partition(number))
            for number in range(COORDINATORS)
        }
        topics = {await _broker_of(cluster, TopicName.parse(name)) for name in PLAIN}
        assert min(len(set(coordinators.values())), len(topics)) > 1, "of several brokers"

        async def get(broker: str, path: str) -> Any:
            peers = SimPeerHttp(world.node(broker).runtime, world, cluster.applications)
            url = f"http://{broker}:8080/admin/v3/transactions/{path}"
            answer = await world.node(broker).run(lambda _: peers.request("GET", url))
            assert answer.status == 200, answer
            return answer.json()

        for broker in BROKERS:
            stats = await get(broker, "coordinatorStats")
            assert {number for number, one in stats.items() if one["state"] == "Ready"} <= set(coordinators)
            assert sum(one["ongoingTxnSize"] for one in stats.values()) == len(begun)
            slow = await get(broker, "slowTransactions/1")
            assert slow.keys() == {str(txn_id) for txn_id in begun}
            for txn_id in begun:
                told = await get(broker, f"transactionMetadata/{txn_id.coordinator}/{txn_id.number}")
                assert told == slow[str(txn_id)]
                assert told["producedPartitions"].keys() == {*PLAIN}
                assert all("startPosition" in one for one in told["producedPartitions"].values())
                held = told["ackedPartitions"].get(PLAIN[0], {})
                assert ("cumulativeAckPosition" in held.get(SUBSCRIPTION, {})) is (txn_id == begun[0])

    run(scenario, seed=3)


async def _leave_several_open(cluster: ClusterWorld, node: SimNode) -> list[TxnId]:
    client = gc.connect(f"pulsar://{cluster.url}", runtime=node.runtime, **CLIENT)
    producers = [await client.create_producer(name) for name in PLAIN]
    await producers[0].send(b"held")
    consumer = await client.subscribe(PLAIN[0], SUBSCRIPTION, initial_position=gc.InitialPosition.Earliest)
    message = await consumer.receive(10_000)
    begun = []
    for _ in range(COORDINATORS):
        txn = await client.transaction(600.0)
        for producer in producers:
            await producer.send(b"open", txn=txn)
        if not begun:
            await consumer.acknowledge_cumulative(message, txn=txn)
        begun.append(txn.id)
    return begun


async def _leave_open(cluster: ClusterWorld, node: SimNode) -> object:
    client = gc.connect(f"pulsar://{cluster.url}", runtime=node.runtime, **CLIENT)
    producer = await client.create_producer(PLAIN[0])
    txn = await client.transaction(8.0)
    await producer.send(b"never seen", txn=txn)
    return txn.id


async def _broker_of(cluster: ClusterWorld, name: TopicName) -> str:
    for broker, member in cluster.members.items():
        owner = await cluster.world.node(broker).run(lambda _, member=member: member.ownership.owner_of(name))
        if isinstance(owner, Here):
            return broker
    raise AssertionError(f"nobody has {name}")


async def _with_several_open(world: SimWorld) -> tuple[ClusterWorld, list[TxnId]]:
    """A cluster, and the transactions of a client of it."""
    cluster = ClusterWorld(world, has_peers=True, coordinators=COORDINATORS)
    await cluster.start()
    client = world.node("client")
    client.start()
    return cluster, await client.run(partial(_leave_several_open, cluster))


async def _ledger(cluster: ClusterWorld, broker: str, name: TopicName) -> object:
    return (await cluster.brokers[broker].registry.get(name, create=False)).ledger


def test_many_transactions_ask_a_coordinator_elsewhere_with_few_requests() -> None:
    """One request for each first message of a transaction in a topic would cost more than the message."""

    async def scenario(world: SimWorld) -> None:
        # Before that nobody need have it: who is asked names who is to.
        cluster, txn_ids = await _with_several_open(world)
        coordinator = await _broker_of(cluster, COORDINATORS_TOPIC.with_partition(0))
        broker = next(one for one in BROKERS if one != coordinator)
        txn_id = next(one for one in txn_ids if one.coordinator == 0)
        asked = []

        class Counted(SimPeerHttp):
            async def _once(self, method: str, url: str, body: bytes) -> tuple[int, str, bytes]:
                asked.append(len(json.loads(body)))
                return await super()._once(method, url, body)

        http = Counted(world.node(broker).runtime, world, cluster.applications)
        member = cluster.members[broker]
        peers = PeerTopics(http, lambda: pytest.fail("by REST"), lambda _: False, member.ownership, lambda: ())

        async def ask(_: SimNode) -> list[Standing | None]:
            standings = PeerStandings(peers)
            first = await asyncio.gather(*(standings.ask(txn_id, name) for name in PLAIN), standings.ask(txn_id, "no"))
            gone = TxnId(0, 1 << 40)
            more = await asyncio.gather(*(standings.ask(gone, PLAIN[0]) for _ in range(QUESTIONS_MAX + 5)))
            assert set(more) == {Standing.OVER}
            return first

        found = await world.node(broker).run(ask)
        assert found == [Standing.TAKING] * len(PLAIN) + [Standing.UNTOLD]
        assert sum(asked) == len(PLAIN) + 1 + QUESTIONS_MAX + 5
        assert len(asked) <= 5

    run(scenario, seed=3)
