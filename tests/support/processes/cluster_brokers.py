"""Brokers of a cluster of processes over REST and the official client: who serves what, and what they answer."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pulsar
import pytest
from tools.chaos.cluster import BrokerProcess, Cluster

NAMESPACE = "public/default"


@contextmanager
def started(cluster: Cluster) -> Iterator[Cluster]:
    """Up, and down in the end."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{broker.web_url}{path}", data=data, method=method)
    request.add_header("Content-Type", "application/json")
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
            return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            if error.code != 307:
                raise
            # Followed for GET alone by the library.
            request.full_url = error.headers["Location"]


def owner_of(broker: BrokerProcess, topic: str) -> str:
    found = ask(broker, "GET", f"/lookup/v2/topic/{topic.replace('://', '/')}")
    return str(found["brokerUrl"])


def topics(name: str, count: int) -> list[str]:
    return [f"persistent://{NAMESPACE}/{name}-{number}" for number in range(count)]


def spread(cluster: Cluster) -> None:
    """Every other bundle of the namespace to each broker, whatever happened before."""
    brokers = list(cluster.brokers.values())
    boundaries = ask(brokers[0], "GET", f"/admin/v2/namespaces/{NAMESPACE}/bundles")["boundaries"]
    for number, (lower, upper) in enumerate(itertools.pairwise(boundaries)):
        there = brokers[number % 2].web_url.removeprefix("http://")
        path = f"/admin/v2/namespaces/{NAMESPACE}/{lower}_{upper}/unload"
        ask(brokers[0], "PUT", f"{path}?destinationBroker={there}")


def owned_by(cluster: Cluster, broker: BrokerProcess, names: list[str]) -> list[str]:
    return [name for name in names if owner_of(broker, name) == broker.service_url]


def other(cluster: Cluster, broker: BrokerProcess) -> BrokerProcess:
    (found,) = [one for one in cluster.brokers.values() if one is not broker]
    return found


def name_of(cluster: Cluster, broker: BrokerProcess) -> str:
    return next(name for name, one in cluster.brokers.items() if one is broker)


def is_busy(client: pulsar.Client, name: str) -> bool:
    """Whether the topic takes no producer more."""
    try:
        client.create_producer(name).close()
    except pulsar.PulsarException as error:
        assert "ProducerBusy" in str(error)
        return True
    return False


def refusal(broker: BrokerProcess, method: str, path: str, body: object = None) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as raised:
        ask(broker, method, path, body)
    with raised.value as error:
        return error.code, str(json.loads(error.read())["reason"])


def bundle_of(broker: BrokerProcess, topic: str) -> str:
    request = f"{broker.web_url}/lookup/v2/topic/{topic.replace('://', '/')}/bundle"
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


#: A process of its own: the official client has one log for all clients of a process.
STRAIGHT_PROGRAM = """
import sys, pulsar
url, topic, log = sys.argv[1:]
logger = pulsar.FileLogger(pulsar.LoggerLevel.Info, log)
client = pulsar.Client(url, logger=logger, operation_timeout_seconds=20)
producer = client.create_producer(topic, send_timeout_millis=0, batching_enabled=False)
consumer = client.subscribe(topic, "sub")
for line in sys.stdin:
    payload = line.strip().encode()
    producer.send(payload)
    received = None
    while received != payload:
        # What was acknowledged as the topic moved may come again.
        message = consumer.receive(timeout_millis=20_000)
        consumer.acknowledge(message)
        received = message.data()
    print(line.strip(), flush=True)
"""
