"""Clients between two real clusters: one is killed and comes back; a namespace that lives in the other."""

from __future__ import annotations

import itertools
import json
import threading
import time
from pathlib import Path

import pulsar
import pytest
from tools.standalone_process import StandaloneProcess

from geminga.client import InitialPosition, blocking
from geminga.client.failover import AutoClusterFailover
from integration.test_geo_replication import NAMESPACE, TOPICS, ask, clusters, received
from support.house.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.long]
#: Of the provider.
INTERVAL_S = 2.0
KILLS = 3


def test_a_producer_goes_on_in_the_other_cluster_and_comes_back(tmp_path: Path) -> None:
    with clusters(tmp_path) as brokers:
        east, west = (brokers[name].service_url for name in ("east", "west"))
        provider = AutoClusterFailover(east, [west], check_interval_s=INTERVAL_S, switch_back_delay_s=1)
        with blocking.connect(provider) as client, blocking.connect(west) as other:
            producer = client.create_producer("t", send_timeout_millis=0)
            consumer = other.subscribe("t", "s", initial_position=InitialPosition.Earliest)
            for number in range(10):
                producer.send(b"%d" % number)
            assert received(consumer, 10) == [f"{number}" for number in range(10)]
            brokers["east"].kill()
            killed_s = time.monotonic()
            for number in range(10, 20):
                producer.send(b"%d" % number)
            # Of a busy machine: connecting takes its time, too.
            assert time.monotonic() - killed_s < INTERVAL_S + 2 + 5
            assert received(consumer, 10) == [f"{number}" for number in range(10, 20)]
            brokers["east"].start()
            deadline_s = time.monotonic() + 60
            while provider.current is not provider.first and time.monotonic() < deadline_s:
                producer.send(b"more")
            assert provider.current is provider.first
            producer.send(b"last")
            with blocking.connect(east) as back:
                again = back.subscribe("t", "later", initial_position=InitialPosition.Earliest)
                found = [again.receive(30_000).data()]
                while found[-1] != b"last":
                    found.append(again.receive(30_000).data())


class Load:
    """The official client publishes one message after the other, by a provider that looks for a cluster."""

    def __init__(self, primary: str, other: str) -> None:
        services = [pulsar.ServiceInfo(primary), pulsar.ServiceInfo(other)]
        provider = pulsar.AutoClusterFailover(services[0], services[1:], check_interval_ms=int(INTERVAL_S * 1000))
        self.client = pulsar.Client(provider, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self.producer = self.client.create_producer("t", send_timeout_millis=0, batching_enabled=False)
        self.receipts: list[tuple[str, float]] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ends.is_set():
            self.producer.send(f"{number}".encode())
            self.receipts.append((f"{number}", time.monotonic()))
            number += 1

    def until_receipts(self, count: int) -> float:
        """The longest time without one until so many more have come."""
        before = len(self.receipts)
        until(lambda: len(self.receipts) >= before + count, "receipts", 60.0)
        # Those before, and after, what may have happened meanwhile.
        times = [at_s for _, at_s in self.receipts[max(0, before - 1) :]]
        return max(after_s - at_s for at_s, after_s in itertools.pairwise(times))

    def end(self) -> list[str]:
        """What was answered."""
        self._ends.set()
        self._thread.join()
        self.client.close()
        return [text for text, _ in self.receipts]


def publishes_here(broker: StandaloneProcess) -> bool:
    """Somebody else than the other cluster's replicator."""
    status, text = ask(broker, "GET", f"{TOPICS}/t/stats")
    names = [each["producerName"] for each in json.loads(text)["publishers"]] if status == 200 else []
    return any(not name.startswith("pulsar.repl") for name in names)


def test_the_official_client_loses_nothing_when_its_cluster_is_killed_under_load(tmp_path: Path) -> None:
    with clusters(tmp_path) as brokers:
        east, west = (brokers[name] for name in ("east", "west"))
        for broker in (east, west):
            with blocking.connect(broker.service_url) as client:
                # Without one what has been copied goes with its ledger.
                client.subscribe("t", "all")
        load = Load(east.service_url, west.service_url)
        load.until_receipts(50)
        for _ in range(KILLS):
            east.kill()
            # Of a busy machine: connecting takes its time, too.
            assert load.until_receipts(50) < INTERVAL_S + 2 + 5
            east.start()
            until(lambda: publishes_here(east), "it goes back by itself", 60.0)
            load.until_receipts(50)
        answered = load.end()
        for broker in (east, west):
            with blocking.connect(broker.service_url) as client:
                consumer = client.subscribe("t", "all", initial_position=InitialPosition.Earliest)
                missing = set(answered)
                while missing:
                    missing.discard(consumer.receive(30_000).data().decode())


def test_clients_are_sent_to_the_peer_where_the_namespace_lives(tmp_path: Path) -> None:
    with clusters(tmp_path) as brokers, blocking.connect(brokers["east"].service_url) as client:
        consumer = client.subscribe("moved", "s", initial_position=InitialPosition.Earliest)
        producer = client.create_producer("moved", send_timeout_millis=0)
        producer.send(b"here")
        assert received(consumer, 1) == ["here"]
        assert ask(brokers["east"], "POST", f"{NAMESPACE}/replication", ["east"])[0] in (200, 204)
        assert ask(brokers["east"], "POST", "/admin/v2/clusters/east/peers", ["west"])[0] == 204
        assert ask(brokers["east"], "POST", f"{NAMESPACE}/replication", ["west"])[0] in (200, 204)
        # Who was connected goes over, and so does who comes.
        producer.send(b"there")
        # What was copied before may be there as well.
        while consumer.receive(30_000).data() != b"there":
            pass
        with blocking.connect(brokers["west"].service_url) as other:
            at_west = other.subscribe("moved", "w", initial_position=InitialPosition.Earliest)
            assert at_west.receive(30_000).data() in (b"here", b"there")
        assert ask(brokers["east"], "PUT", "/admin/v2/persistent/public/default/new")[0] == 412
