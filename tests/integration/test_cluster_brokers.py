"""Two brokers that share a cluster, as processes under the official client: who serves what, and what a loss costs."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.chaos.__main__ import SETTINGS
from tools.chaos.cluster import BrokerProcess, Cluster

from support.official import quiet_client

pytestmark = pytest.mark.integration

SESSION_MS = 4000
#: One bookie may be away, and a new ledger finds its ensemble.
TWO_OF_THREE = {**SETTINGS, "managedLedgerDefaultEnsembleSize": 2}
NAMESPACE = "public/default"


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
    try:
        made.start()
        yield made
    finally:
        made.close()


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{broker.web_url}{path}", data=data, method=method)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def owner_of(broker: BrokerProcess, topic: str) -> str:
    found = ask(broker, "GET", f"/lookup/v2/topic/{topic.replace('://', '/')}")
    return str(found["brokerUrl"])


def topics(name: str, count: int) -> list[str]:
    return [f"persistent://{NAMESPACE}/{name}-{number}" for number in range(count)]


def test_both_brokers_serve_and_each_sends_clients_to_the_other(cluster: Cluster, tmp_path: Path) -> None:
    names = topics("both", 8)
    first, second = cluster.brokers.values()
    owners = {name: owner_of(first, name) for name in names}
    assert set(owners.values()) == {first.service_url, second.service_url}
    assert {name: owner_of(second, name) for name in names} == owners
    clients = [quiet_client(broker.service_url, tmp_path) for broker in (first, second)]
    for number, name in enumerate(names):
        here, there = clients[number % 2], clients[(number + 1) % 2]
        consumer = there.subscribe(name, "sub")
        here.create_producer(name).send(name.encode())
        message = consumer.receive(timeout_millis=20_000)
        assert message.data() == name.encode()
        consumer.acknowledge(message)
    for client in clients:
        client.close()
