"""Subscriptions go from a broker of one make to one of the other and back, with what was acknowledged as it was.

One broker at a time, on the same ZooKeeper and on three of Apache's bookies. Beyond the limits that Pulsar sets itself
(``managedLedgerMaxUnackedRangesToPersist``) what comes again is counted: docs/compatibility.md has it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pulsar
import pytest
from tools.chaos.cluster import BrokerProcess
from tools.standalone_process import StandaloneProcess
from tools.zookeeper_server import ZooKeeperServer

import geminga.client as gc
from support.processes.apache_broker import CLUSTER, ApacheBroker
from support.processes.apache_cluster import LIMIT_S, apaches_bookies
from support.worlds.acknowledging_client import RECEIVE_MS, Client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

HOLES: Final = 9_000
BATCHES: Final = 400
BATCH_SIZE: Final = 10
#: Of the topic with more than Pulsar keeps.
MANY_HOLES: Final = 20_000
LEDGER_ENTRIES: Final = 5_000
SETTINGS: Final = {
    "managedLedgerMaxEntriesPerLedger": LEDGER_ENTRIES,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerDefaultEnsembleSize": 2,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
}


@pytest.fixture
def makes(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[dict[str, StandaloneProcess]]:
    """A broker of each make, neither of them started, and all that they need."""
    with apaches_bookies(zookeeper, tmp_path, range(3)):
        initialize = [sys.executable, "-m", "geminga", "initialize-cluster-metadata", "-c", CLUSTER]
        urls = ["-uw", "http://127.0.0.1:8080", "-ub", "pulsar://127.0.0.1:6650", "-md", f"zk:{zookeeper.hosts}"]
        subprocess.run([*initialize, *urls], check=True, timeout=LIMIT_S)
        theirs = ApacheBroker(tmp_path, settings=SETTINGS)
        theirs.zookeeper = zookeeper.hosts
        ours = BrokerProcess(
            tmp_path,
            log=tmp_path / "geminga-broker.log",
            settings={"clusterName": CLUSTER, "metadataStoreSessionTimeoutMillis": 4000, **SETTINGS},
        )
        ours.zookeeper = f"zk:{zookeeper.hosts}"
        try:
            yield {"apache": theirs, "geminga": ours}
        finally:
            theirs.kill()
            ours.kill()


SHARED: Final = pulsar.ConsumerType.Shared


def each_make_goes_on_where_the_other_was(
    first: StandaloneProcess, second: StandaloneProcess, directory: Path, *, is_killed: bool
) -> None:
    left: dict[str, set[int]] = {
        "whole": set(range(1_000)),
        "holes": set(range(2 * HOLES + 2)),
        "batches": set(range(BATCHES * BATCH_SIZE)),
    }

    def start(broker: StandaloneProcess) -> Client:
        broker.start(LIMIT_S)
        return Client(broker.service_url, directory)

    def stop(broker: StandaloneProcess, client: Client) -> None:
        client.close()
        if is_killed:
            # Answered, whatever was acknowledged before is stored, too.
            for topic in ("holes", "batches"):
                left[topic].discard(asyncio.run(acknowledged_with_an_answer(broker, topic)))
            broker.kill()
        else:
            broker.stop()

    client = start(first)
    client.subscribe("whole", pulsar.ConsumerType.Exclusive).close()
    client.subscribe("holes", SHARED).close()
    client.subscribe("batches", SHARED).close()
    client.publish("whole", len(left["whole"]), batching_enabled=False)
    client.publish("holes", len(left["holes"]), batching_enabled=False)
    client.publish(
        "batches",
        len(left["batches"]),
        batching_enabled=True,
        batching_max_messages=BATCH_SIZE,
        batching_max_publish_delay_ms=1000,
    )
    consumer = client.subscribe("whole", pulsar.ConsumerType.Exclusive)
    for number in range(300):
        message = consumer.receive(RECEIVE_MS)
        assert message.data() == b"%d" % number
    consumer.acknowledge_cumulative(message)
    consumer.close()
    left["whole"] -= set(range(300))
    # The first stays, so that mark-delete does.
    left["holes"] = client.acknowledge("holes", SHARED, left["holes"], set(range(1, 2 * HOLES, 2)))
    odd = {number for number in left["batches"] if number % BATCH_SIZE in (1, 4, 5)}
    left["batches"] = client.acknowledge("batches", SHARED, left["batches"], odd)
    stop(first, client)

    is_killed = False
    for broker in (second, first):
        client = start(broker)
        kinds = {"whole": pulsar.ConsumerType.Exclusive, "holes": SHARED, "batches": SHARED}
        for topic, kind in kinds.items():
            assert client.received(topic, kind, len(left[topic])) == Counter(left[topic]), topic
        more = {2, 2 * HOLES} if broker is second else {4, 6}
        left["holes"] = client.acknowledge("holes", SHARED, left["holes"], more)
        more = {number for number in left["batches"] if number % BATCH_SIZE == (7 if broker is second else 8)}
        left["batches"] = client.acknowledge("batches", SHARED, left["batches"], more)
        stop(broker, client)


async def acknowledged_with_an_answer(broker: StandaloneProcess, topic: str) -> int:
    """One more, not the first: mark-delete stays; which."""
    async with gc.connect(broker.service_url) as client:
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=gc.ConsumerType.Shared,
            initial_position=gc.InitialPosition.Earliest,
            ack_receipt_enabled=True,
            batch_index_ack_enabled=True,
        )
        while True:
            message = await consumer.receive(RECEIVE_MS)
            if int(message.data()) == 2 * BATCH_SIZE:
                await consumer.acknowledge(message)
                return 2 * BATCH_SIZE


@pytest.mark.parametrize(("first", "is_killed"), [("apache", False), ("geminga", False), ("geminga", True)])
def test_each_make_goes_on_where_the_other_was(
    first: str, is_killed: bool, makes: dict[str, StandaloneProcess], tmp_path: Path
) -> None:
    second = "geminga" if first == "apache" else "apache"
    each_make_goes_on_where_the_other_was(makes[first], makes[second], tmp_path, is_killed=is_killed)


@pytest.mark.parametrize("first", ["apache", "geminga"])
def test_beyond_pulsars_limits_what_comes_again_is_of_the_youngest(
    first: str, makes: dict[str, StandaloneProcess], tmp_path: Path
) -> None:
    second = "geminga" if first == "apache" else "apache"
    count = 2 * MANY_HOLES + 2
    makes[first].start(LIMIT_S)
    client = Client(makes[first].service_url, tmp_path)
    client.subscribe("many", SHARED).close()
    client.publish("many", count, batching_enabled=False)
    left = client.acknowledge("many", SHARED, set(range(count)), set(range(1, 2 * MANY_HOLES, 2)))
    client.close()
    makes[first].stop()
    makes[second].start(LIMIT_S)
    client = Client(makes[second].service_url, tmp_path)
    found = client.received("many", SHARED, len(left))
    client.close()
    again = sorted(found.keys() - left)
    print(f"\n{first} to {second}: of {MANY_HOLES} holes {len(again)} came again, from {again[:1]} on")
    assert left <= found.keys()
    assert set(found.values()) == {1}
    assert again == [number for number in range(again[0], 2 * MANY_HOLES) if number % 2]
    # Whole ledgers at Apache's, as its bit sets have it: those that begin within the first 10,000.
    assert len(again) == {"apache": 7_500, "geminga": 10_000}[first]
