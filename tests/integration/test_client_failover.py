"""Clients between two real clusters: one is killed and comes back; a namespace that lives in the other."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from geminga.client import InitialPosition, blocking
from geminga.client.failover import AutoClusterFailover
from integration.test_geo_replication import NAMESPACE, ask, clusters, received

pytestmark = [pytest.mark.integration, pytest.mark.long]
#: Of the provider.
INTERVAL_S = 2.0


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
