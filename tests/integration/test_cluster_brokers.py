"""Two brokers that share a cluster, as processes under the official client: who serves what, and what a loss costs."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from tools.chaos.__main__ import SETTINGS
from tools.chaos.cluster import BrokerProcess, Cluster
from tools.chaos.plan import ZOOKEEPER, Fault

import geminga.client as gc
from support.processes.cluster_brokers import (
    NAMESPACE,
    STRAIGHT_PROGRAM,
    ask,
    bundle_of,
    is_busy,
    name_of,
    other,
    owned_by,
    owner_of,
    refusal,
    spread,
    started,
    topics,
)
from support.processes.official import check_each_reaches_the_next, quiet_client, read_to_the_end

pytestmark = pytest.mark.integration
SESSION_MS = 4000
#: One bookie may be away, and a new ledger finds its ensemble.
TWO_OF_THREE = {**SETTINGS, "managedLedgerDefaultEnsembleSize": 2}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests, which leave it whole: its processes take their time to start."""
    made = Cluster(
        tmp_path_factory.mktemp("brokers"),
        bookies=3,
        brokers=2,
        session_ms=SESSION_MS,
        broker_settings={**TWO_OF_THREE, "transactionCoordinatorEnabled": "true"},
    )
    with started(made):
        yield made


def test_both_brokers_serve_and_each_sends_clients_to_the_other(cluster: Cluster, tmp_path: Path) -> None:
    names = topics("both", 8)
    first, second = cluster.brokers.values()
    owners = {name: owner_of(first, name) for name in names}
    assert set(owners.values()) == {first.service_url, second.service_url}
    assert {name: owner_of(second, name) for name in names} == owners
    clients = [quiet_client(broker.service_url, tmp_path) for broker in (first, second)]
    check_each_reaches_the_next(clients, names)
    for client in clients:
        client.close()


def test_topics_of_a_killed_broker_answer_again_from_the_other_in_time(cluster: Cluster, tmp_path: Path) -> None:
    names = topics("killed", 4)
    client = quiet_client(cluster.service_url, tmp_path)
    producers = [client.create_producer(name, send_timeout_millis=0) for name in names]
    for producer in producers:
        producer.send(b"before")
    victim = next(broker for broker in cluster.brokers.values() if owned_by(cluster, broker, names))
    fault = Fault("kill", name_of(cluster, victim), 0, 0)
    survivor = other(cluster, victim)
    since = time.monotonic()
    cluster.fail(fault)
    while len(owned_by(cluster, survivor, names)) < len(names):
        threading.Event().wait(0.05)
    # Clients that were there wait for the answer to their question, not for the end of pauses that double.
    for producer in producers:
        producer.send(b"after")
    fresh = quiet_client(survivor.service_url, tmp_path)
    for name in names:
        fresh.create_producer(name).send(b"at once")
    took_s = time.monotonic() - since
    fresh.close()
    cluster.repair(fault)
    # A session's time-out, rounded up by the server's own steps, and 2 s.
    assert took_s < SESSION_MS / 1000 * 1.5 + 2, f"{took_s:.1f} s"
    for name in names:
        assert read_to_the_end(client, name) == [b"before", b"after", b"at once"]
    client.close()


@pytest.mark.long
def test_a_paused_broker_wakes_up_fenced_and_joins_again(cluster: Cluster, tmp_path: Path) -> None:
    names = topics("paused", 4)
    client = quiet_client(cluster.service_url, tmp_path)
    producers = {name: client.create_producer(name, send_timeout_millis=0, batching_enabled=False) for name in names}
    sent: dict[str, list[bytes]] = {name: [] for name in names}

    def send(count: int) -> None:
        for _ in range(count):
            for name, producer in producers.items():
                payload = b"%d" % len(sent[name])
                producer.send(payload)
                sent[name].append(payload)

    send(5)
    victim = next(broker for broker in cluster.brokers.values() if owned_by(cluster, broker, names))
    fault = Fault("pause", name_of(cluster, victim), 0, 0)
    cluster.fail(fault)
    threading.Event().wait(SESSION_MS / 1000 * 1.5)
    # Others serve what was its; clients that hold a connection to it are still waiting for an answer.
    late = quiet_client(other(cluster, victim).service_url, tmp_path)
    for name in names:
        late.create_producer(name).send(b"meanwhile")
    cluster.repair(fault)
    send(5)
    assert victim.is_running
    for name in names:
        found = read_to_the_end(client, name)
        assert [payload for payload in found if payload != b"meanwhile"] == sent[name]
        assert found.count(b"meanwhile") == 1
    late.close()
    client.close()
    members = ask(victim, "GET", "/admin/v2/brokers/c")
    assert sorted(members) == sorted(broker.web_url.removeprefix("http://") for broker in cluster.brokers.values())


def test_partitions_of_both_brokers_are_one_topic_to_the_administration(cluster: Cluster, tmp_path: Path) -> None:
    first, second = cluster.brokers.values()
    topic = f"persistent://{NAMESPACE}/parted"
    path = f"/admin/v2/{topic.replace('://', '/')}"
    spread(cluster)
    ask(first, "PUT", f"{path}/partitions", 8)
    partitions = [f"{topic}-partition-{index}" for index in range(8)]
    assert {owner_of(second, name) for name in partitions} == {first.service_url, second.service_url}
    ask(second, "PUT", f"{path}/subscription/sub", "earliest")
    client = quiet_client(second.service_url, tmp_path)
    producer = client.create_producer(topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution)
    for number in range(40):
        producer.send(b"%d" % number)
    for broker in (first, second):
        stats = ask(broker, "GET", f"{path}/partitioned-stats")
        assert (stats["msgInCounter"], stats["metadata"]["partitions"], len(stats["partitions"])) == (40, 8, 8)
        assert stats["subscriptions"]["sub"]["msgBacklog"] == 40
        assert len(ask(broker, "GET", f"{path}/partitioned-internalStats")["partitions"]) == 8
        assert len(ask(broker, "GET", f"{path}/internal-info")["partitions"]) == 8
        assert ask(broker, "GET", f"{path}/subscriptions") == ["sub"]
        assert sorted(ask(broker, "GET", f"/admin/v2/persistent/{NAMESPACE}/partitioned")) == [topic]
    ask(first, "POST", f"{path}/subscription/sub/skip_all")
    assert ask(second, "GET", f"{path}/partitioned-stats")["subscriptions"]["sub"]["msgBacklog"] == 0
    for number in range(8):
        producer.send(b"%d" % number)
    ask(second, "POST", f"{path}/trim")
    assert ask(second, "GET", f"{path}/partitioned-stats")["subscriptions"]["sub"]["msgBacklog"] == 8
    ask(second, "DELETE", f"{path}/truncate")
    for broker in (first, second):
        stats = ask(broker, "GET", f"{path}/partitioned-stats")
        assert (stats["storageSize"], stats["subscriptions"]["sub"]["msgBacklog"]) == (0, 0)
    ask(second, "POST", f"{path}/partitions", 10)
    stats = ask(first, "GET", f"{path}/partitioned-stats")
    assert {name: list(one["subscriptions"]) for name, one in stats["partitions"].items()} == {
        f"{topic}-partition-{index}": ["sub"] for index in range(10)
    }
    assert refusal(first, "DELETE", f"{path}/partitions") == (412, "Topic has active producers/subscriptions")
    ended = ask(second, "POST", f"{path}/terminate/partitions")
    assert sorted(ended, key=int) == [str(index) for index in range(10)]
    client.close()
    ask(first, "DELETE", f"{path}/partitions?force=true")
    assert refusal(second, "GET", f"{path}/partitioned-stats")[0] == 404
    for name in partitions:
        assert refusal(second, "GET", f"/admin/v2/{name.replace('://', '/')}/stats")[0] == 404


def test_messages_over_http_reach_partitions_of_both_brokers(cluster: Cluster) -> None:
    first, second = cluster.brokers.values()
    topic = f"persistent://{NAMESPACE}/web"
    path = f"/topics/persistent/{NAMESPACE}/web"
    spread(cluster)
    ask(first, "PUT", f"/admin/v2/{topic.replace('://', '/')}/partitions", 8)
    owners = {index: owner_of(first, f"{topic}-partition-{index}") for index in range(8)}
    assert set(owners.values()) == {first.service_url, second.service_url}

    def published(broker: BrokerProcess, *messages: dict[str, str]) -> list[str]:
        answer = ask(broker, "POST", path, {"messages": messages})
        assert {one["errorCode"] for one in answer["messagePublishResults"]} == {0}, answer
        assert answer["schemaVersion"] == 0
        return [one["messageId"].split(":")[2] for one in answer["messagePublishResults"]]

    for broker in (first, second):
        found = published(broker, *({"payload": str(number)} for number in range(24)))
        assert {index: found.count(str(index)) for index in range(8)} == dict.fromkeys(range(8), 3)
    keys = [
        published(broker, *({"payload": "x", "key": f"k{number}"} for number in range(16)))
        for broker in (first, second)
    ]
    assert keys[0] == keys[1]
    there = next(index for index, owner in owners.items() if owner == second.service_url)
    published_there = ask(first, "POST", f"{path}/partitions/{there}", {"messages": [{"payload": "last"}]})
    last = published_there["messagePublishResults"][0]["messageId"]
    status, reason = refusal(first, "POST", f"{path}/subscriptions/s/consumers", {})
    assert (status, "are other brokers'" in reason) == (412, True)
    consumers = f"{path}-partition-{there}/subscriptions/s/consumers"
    made = ask(first, "POST", consumers, {"initialPosition": "earliest"})
    consumer = f"{consumers}/{made['consumer']}"
    messages = ask(first, "POST", f"{consumer}/receive?waitMs=20000")["messages"]
    assert (messages[-1]["messageId"], messages[-1]["payload"]) == (last, "last")
    ids = [one["messageId"] for one in messages]
    assert ask(second, "POST", f"{consumer}/acknowledge", {"messageIds": ids})["acknowledged"] == len(ids)
    assert ask(first, "DELETE", consumer) is None
    ask(first, "DELETE", f"/admin/v2/{topic.replace('://', '/')}/partitions?force=true")


def test_policies_of_topics_are_set_followed_and_deleted_at_either_broker(cluster: Cluster) -> None:
    first, second = cluster.brokers.values()
    for number, name in enumerate(topics("ruled", 4)):
        here, there = ((first, second), (second, first))[number % 2]
        path = f"/admin/v2/{name.replace('://', '/')}"
        ask(here, "PUT", path)
        ask(there, "POST", f"{path}/maxProducers", 3)
        assert ask(here, "GET", f"{path}/maxProducers?applied=true") == 3
        ask(there, "DELETE", path)
        ask(here, "PUT", path)
        assert ask(there, "GET", f"{path}/maxProducers") is None
        ask(here, "DELETE", path)


def test_a_namespace_of_topics_of_both_brokers_is_deleted(cluster: Cluster, tmp_path: Path) -> None:
    first, second = cluster.brokers.values()
    ask(first, "PUT", "/admin/v2/namespaces/public/going", {"bundles": {"numBundles": 8}})
    names = [f"persistent://public/going/{number}" for number in range(8)]
    client = quiet_client(first.service_url, tmp_path)
    for name in names:
        client.create_producer(name).send(b"x")
    assert {owner_of(second, name) for name in names} == {first.service_url, second.service_url}
    client.close()
    assert sorted(ask(second, "GET", "/admin/v2/persistent/public/going")) == names
    for name in names:
        ask(second, "DELETE", f"/admin/v2/{name.replace('://', '/')}")
    ask(second, "DELETE", "/admin/v2/namespaces/public/going")
    assert "public/going" not in ask(first, "GET", "/admin/v2/namespaces/public")


def test_topics_that_are_not_persistent_are_listed_and_deleted_wherever_they_are(
    cluster: Cluster, tmp_path: Path
) -> None:
    first, second = cluster.brokers.values()
    ask(first, "PUT", "/admin/v2/namespaces/public/passing", {"bundles": {"numBundles": 8}})
    names = [f"non-persistent://public/passing/{number}" for number in range(8)]
    client = quiet_client(first.service_url, tmp_path)
    producers = [client.create_producer(name) for name in names]
    assert {owner_of(second, name) for name in names} == {first.service_url, second.service_url}
    for broker in (first, second):
        # Their policies are those of the cluster, whoever is asked and wherever they are.
        name = next(name for name in names if owner_of(broker, name) == broker.service_url)
        path = f"/admin/v2/{name.replace('://', '/')}/maxProducers"
        for asked in (first, second):
            # The broker that has the topic hears of it a moment later.
            ask(asked, "POST", path, 1)
            while not is_busy(client, name):
                pass
            ask(asked, "DELETE", path)
            while is_busy(client, name):
                pass
        assert refusal(second, "GET", "/admin/v2/non-persistent/public/passing/nowhere/maxProducers")[0] == 404
        assert sorted(ask(broker, "GET", "/admin/v2/non-persistent/public/passing")) == names
        assert sorted(ask(broker, "GET", "/admin/v2/namespaces/public/passing/topics?mode=ALL")) == names
        there = quiet_client(broker.service_url, tmp_path)
        consumer = there.subscribe(
            re.compile("non-persistent://public/passing/.*"),
            f"from {broker.web_url}",
            regex_subscription_mode=pulsar.RegexSubscriptionMode.NonPersistentOnly,
        )
        for name, producer in zip(names, producers, strict=True):
            producer.send(name.encode())
        assert sorted(consumer.receive(timeout_millis=20_000).data().decode() for _ in names) == names
        there.close()
        assert refusal(broker, "DELETE", "/admin/v2/namespaces/public/passing")[0] == 409
    client.close()
    for name in names:
        ask(second, "DELETE", f"/admin/v2/{name.replace('://', '/')}")
    ask(second, "DELETE", "/admin/v2/namespaces/public/passing")
    assert "public/passing" not in ask(first, "GET", "/admin/v2/namespaces/public")


def test_a_bundle_goes_where_it_is_sent_and_its_clients_follow(cluster: Cluster, tmp_path: Path) -> None:
    (name,) = topics("sent", 1)
    first, second = cluster.brokers.values()
    client = quiet_client(cluster.service_url, tmp_path)
    producer = client.create_producer(name, send_timeout_millis=0, batching_enabled=False)
    consumer = client.subscribe(name, "sub")
    path = f"/admin/v2/namespaces/{NAMESPACE}/{bundle_of(first, name)}"
    sent = []
    for number in range(6):
        there = (first, second)[number % 2]
        payload = b"%d" % number
        producer.send(payload)
        sent.append(payload)
        # Whichever is asked: it reaches the leader, and from there the owner.
        broker = (second, first)[number // 2 % 2]
        ask(broker, "PUT", f"{path}/unload?destinationBroker={there.web_url.removeprefix('http://')}")
        assert owner_of(broker, name) == there.service_url
    ask(first, "PUT", f"{path}/unload")
    ask(first, "PUT", f"/admin/v2/namespaces/{NAMESPACE}/unload")
    ask(second, "PUT", f"/admin/v2/{name.replace('://', '/')}/unload")
    producer.send(b"last")
    received: dict[bytes, None] = {}
    while len(received) < len(sent) + 1:
        # What was acknowledged as the topic moved may come again.
        message = consumer.receive(timeout_millis=30_000)
        consumer.acknowledge(message)
        received[message.data()] = None
    assert list(received) == [*sent, b"last"]
    assert refusal(first, "PUT", f"{path}/unload?destinationBroker=nobody:1")[0] == 409
    assert refusal(first, "PUT", f"/admin/v2/namespaces/{NAMESPACE}/0x00000000_0x00000007/unload")[0] == 412
    client.close()


def test_clients_of_a_bundle_that_moves_go_straight_to_its_new_owner(cluster: Cluster, tmp_path: Path) -> None:
    (name,) = topics("straight", 1)
    brokers = list(cluster.brokers.values())
    log = tmp_path / "straight.log"
    path = f"/admin/v2/namespaces/{NAMESPACE}/{bundle_of(brokers[0], name)}/unload"
    command = [sys.executable, "-c", STRAIGHT_PROGRAM, cluster.service_url, name, str(log)]

    def told() -> tuple[int, int]:
        """Lookups, and reconnections."""
        text = log.read_text()
        return text.count(f"Lookup response for {name}"), text.count("Schedule reconnection")

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None

        def send(text: str) -> None:
            program.stdin.write(f"{text}\n")
            program.stdin.flush()
            assert program.stdout.readline() == f"{text}\n"

        # A C++ client that reconnects before its first receipt numbers what it sends next from the beginning again.
        send("before")
        # Wherever it is: at the end of the first move it is at the first broker.
        ask(brokers[1], "PUT", f"{path}?destinationBroker={brokers[0].web_url.removeprefix('http://')}")
        send("first")
        lookups, reconnections = told()
        for number in range(1, 5):
            there = brokers[number % 2]
            ask(brokers[0], "PUT", f"{path}?destinationBroker={there.web_url.removeprefix('http://')}")
            send(str(number))
            assert owner_of(brokers[0], name) == there.service_url
        # The producer and the consumer, once each.
        assert told() == (lookups, reconnections + 2 * 4)
        program.kill()


def test_a_bundle_is_split_under_its_clients(cluster: Cluster, tmp_path: Path) -> None:
    first, second = cluster.brokers.values()
    ask(first, "PUT", "/admin/v2/namespaces/public/split", {"bundles": {"numBundles": 1}})
    names = [f"persistent://public/split/{number}" for number in range(4)]
    client = quiet_client(second.service_url, tmp_path)
    producers = [client.create_producer(name, send_timeout_millis=0) for name in names]
    path = "/admin/v2/namespaces/public/split"
    ask(second, "PUT", f"{path}/0x00000000_0xffffffff/split")
    for broker in (first, second):
        assert ask(broker, "GET", f"{path}/bundles")["boundaries"] == ["0x00000000", "0x7fffffff", "0xffffffff"]
    ask(first, "PUT", f"{path}/0x00000000_0x7fffffff/split?splitAlgorithmName=specified_positions_divide", [1 << 30])
    ask(first, "PUT", f"{path}/0x7fffffff_0xffffffff/split?splitAlgorithmName=topic_count_equally_divide&unload=true")
    assert ask(second, "GET", f"{path}/bundles")["numBundles"] == 4
    assert ask(first, "GET", path)["bundles"]["numBundles"] == 4
    assert "unknown" in refusal(first, "PUT", f"{path}/0x00000000_0x40000000/split?splitAlgorithmName=unknown")[1]
    for producer in producers:
        producer.send(b"after")
    for name in names:
        assert read_to_the_end(client, name) == [b"after"]
    client.close()


def test_a_broker_that_stops_hands_its_bundles_over_and_is_not_ready(cluster: Cluster, tmp_path: Path) -> None:
    spread(cluster)
    names = topics("handed", 6)
    first, second = cluster.brokers.values()
    client = quiet_client(second.service_url, tmp_path)
    producers = [client.create_producer(name, send_timeout_millis=0) for name in names]
    for producer in producers:
        producer.send(b"before")
    assert owned_by(cluster, second, names)
    since = time.monotonic()
    assert second.stop() == 0
    assert owned_by(cluster, first, names) == names
    # Nobody waited for a session to end.
    assert time.monotonic() - since < SESSION_MS / 1000
    assert ask(first, "GET", "/admin/v2/brokers") == [first.web_url.removeprefix("http://")]
    second.launch()
    second.wait_ready(60)
    assert len(ask(second, "GET", "/admin/v2/brokers")) == 2
    for producer in producers:
        producer.send(b"after")
    for name in names:
        assert read_to_the_end(client, name) == [b"before", b"after"]
    client.close()


def test_transactions_reach_topics_of_both_brokers(cluster: Cluster) -> None:
    first, second = cluster.brokers.values()
    spread(cluster)
    names = topics("transacted", 6)
    assert {owner_of(first, name) for name in names} == {first.service_url, second.service_url}

    async def main() -> list[list[bytes]]:
        async with gc.connect(second.service_url) as client:
            producers = [await client.create_producer(name) for name in names]
            consumers = [
                await client.subscribe(name, "sub", initial_position=gc.InitialPosition.Earliest) for name in names
            ]
            # Coordinators take turns: those of both brokers are used.
            for number in range(6):
                async with client.transaction() as transaction:
                    for producer in producers:
                        await producer.send(b"committed %d" % number, txn=transaction)
                transaction = await client.transaction()
                for producer in producers:
                    await producer.send(b"aborted", txn=transaction)
                await transaction.abort()
            found = []
            for consumer in consumers:
                found.append([(await consumer.receive(30_000)).data() for _ in range(6)])
            return found

    assert asyncio.run(main()) == [[b"committed %d" % number for number in range(6)]] * len(names)
    # Topics that were let go of are read from the snapshots and markers that are stored.
    ask(first, "PUT", f"/admin/v2/namespaces/{NAMESPACE}/unload")

    async def again() -> list[list[bytes]]:
        async with gc.connect(first.service_url) as client:
            found = []
            for name in names:
                reader = await client.create_reader(name, gc.MessageId.earliest)
                found.append([])
                while await reader.has_message_available():
                    found[-1].append((await reader.read_next(30_000)).data())
            return found

    assert asyncio.run(again()) == [[b"committed %d" % number for number in range(6)]] * len(names)


@pytest.mark.long
def test_what_is_served_goes_on_without_zookeeper_and_nothing_new_is_owned(cluster: Cluster, tmp_path: Path) -> None:
    spread(cluster)
    names = topics("alone", 6)
    first, second = cluster.brokers.values()
    owners = {name: owner_of(first, name) for name in names}
    assert set(owners.values()) == {first.service_url, second.service_url}
    client = quiet_client(cluster.service_url, tmp_path)
    producers = [client.create_producer(name, send_timeout_millis=0) for name in names]
    for producer in producers:
        producer.send(b"before")
    ask(first, "PUT", "/admin/v2/namespaces/public/unowned")
    fault = Fault("kill", ZOOKEEPER, 0, 0)
    cluster.fail(fault)
    try:
        until = time.monotonic() + SESSION_MS / 1000 * 1.5
        count = 0
        while time.monotonic() < until:
            for producer in producers:
                producer.send(b"meanwhile")
            count += 1
        for broker in (first, second):
            status, _ = refusal(broker, "GET", "/lookup/v2/topic/persistent/public/unowned/topic")
            assert status >= 500
    finally:
        cluster.repair(fault)
    for producer in producers:
        producer.send(b"after")
    for name in names:
        found = read_to_the_end(client, name)
        path = f"/admin/v2/{name.replace('://', '/')}/internalStats"
        assert found == [b"before", *[b"meanwhile"] * count, b"after"], ask(first, "GET", path)
    client.close()


def test_brokers_report_their_load(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        with urllib.request.urlopen(f"{broker.web_url}/metrics", timeout=30) as answer:
            page = answer.read().decode()
        assert "pulsar_lb_cpu_usage" in page
        assert "pulsar_lb_unload_bundle_total" in page
        assert "geminga_owned_bundles" in page


def test_subscriptions_of_a_namespace_are_cleared_and_deleted_over_both_brokers(
    cluster: Cluster, tmp_path: Path
) -> None:
    spread(cluster)
    names = topics("namespace-wide", 8)
    first, second = cluster.brokers.values()
    client = quiet_client(cluster.service_url, tmp_path)
    for name in names:
        for subscription in ("a b", "kept"):
            client.subscribe(name, subscription).close()
        producer = client.create_producer(name)
        for _ in range(3):
            producer.send(b"message")
        producer.close()
    assert {owner_of(first, name) for name in names} == {first.service_url, second.service_url}
    path = f"/admin/v2/namespaces/{NAMESPACE}"

    def backlogs(subscription: str) -> set[int]:
        every = (ask(second, "GET", f"/admin/v2/{name.replace('://', '/')}/stats")["subscriptions"] for name in names)
        return {stats[subscription]["msgBacklog"] if subscription in stats else -1 for stats in every}

    # Of topics that are loaded nowhere, too.
    ask(first, "PUT", f"{path}/unload")
    ask(first, "POST", f"{path}/clearBacklog/a%20b")
    assert (backlogs("a b"), backlogs("kept")) == ({0}, {3})
    consumer = client.subscribe(names[0], "a b")
    assert refusal(second, "POST", f"{path}/unsubscribe/a%20b") == (412, "Subscription has active connected consumers")
    assert backlogs("a b") == {0, -1}
    consumer.close()
    ask(first, "POST", f"{path}/unsubscribe/a%20b")
    assert (backlogs("a b"), backlogs("kept")) == ({-1}, {3})
    for broker in (first, second):
        ask(broker, "POST", f"{path}/{bundle_of(broker, names[0])}/clearBacklog")
    assert backlogs("kept") == {0, 3}
    ask(second, "POST", f"{path}/clearBacklog")
    assert backlogs("kept") == {0}
    client.close()
