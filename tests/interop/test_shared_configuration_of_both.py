"""A cluster of Geminga's and one of Apache's with tenants, policies and numbers of partitions in one ZooKeeper."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tools.chaos.cluster import BrokerProcess
from tools.zookeeper_server import ZooKeeperServer

from geminga.client import blocking
from integration.test_clusters_share import NAMES, NAMESPACE, TOPICS, Instance
from support.processes.apache_broker import ApacheBroker
from support.processes.cluster_brokers import ask, refusal

pytestmark = pytest.mark.integration


class Mixed(Instance):
    """West is Apache's."""

    def broker(self, name: str, settings: Mapping[str, object]) -> BrokerProcess | ApacheBroker:  # type: ignore[override]
        if name == "east":
            return super().broker(name, settings)
        made = ApacheBroker(self.directory, settings=settings)
        made.zookeeper = f"{self.root}/{name}".removeprefix("zk:")
        return made


@pytest.fixture
def brokers(tmp_path: Path, zookeeper: ZooKeeperServer, judge_is_apache: bool) -> Iterator[dict[str, BrokerProcess]]:
    if not judge_is_apache:
        pytest.skip("one of the clusters is Apache's")
    instance = Mixed(tmp_path, zookeeper, "both")
    try:
        instance.start()
        yield instance.brokers
    finally:
        instance.stop()


def test_what_one_says_the_other_follows(brokers: dict[str, BrokerProcess]) -> None:
    east, west = (brokers[name] for name in NAMES)
    for one, other, ttl in ((east, west, 3600), (west, east, 7200)):
        assert sorted(ask(one, "GET", "/admin/v2/clusters")) == [*NAMES]
        assert sorted(ask(one, "GET", f"{NAMESPACE}/replication")) == [*NAMES]
        ask(one, "POST", f"{NAMESPACE}/messageTTL", ttl)
        assert ask(other, "GET", f"{NAMESPACE}/messageTTL") == ttl
        status, reason = refusal(one, "DELETE", NAMESPACE)
        assert (status, reason) == (
            412,
            "Cannot delete the global namespace public/default. There are still more than one replication clusters "
            "configured or replication clusters is empty.",
        )
    ask(east, "PUT", f"{TOPICS}/t/partitions", 1)
    with contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(blocking.connect(brokers[name].service_url)) for name in NAMES}
        consumers = {name: client.subscribe("t", f"of-{name}") for name, client in clients.items()}
        ask(east, "POST", f"{TOPICS}/t/partitions", 3)
        for name in NAMES:
            assert ask(brokers[name], "GET", f"{TOPICS}/t/partitions")["partitions"] == 3
            for number in range(3):
                found = ask(brokers[name], "GET", f"{TOPICS}/t-partition-{number}/subscriptions")
                assert f"of-{name}" in found, (name, number)
        sent = []
        for name, client in clients.items():
            producer = client.create_producer("t", batching_enabled=False)
            for number in range(60):
                sent.append(f"{name} {number}")
                producer.send(sent[-1].encode(), partition_key=str(number))
        for consumer in consumers.values():
            texts = []
            while len(texts) < len(sent):
                message = consumer.receive(60_000)
                texts.append(message.data().decode())
                consumer.acknowledge(message)
            assert sorted(texts) == sorted(sent)
            consumer.close()
    ask(east, "DELETE", f"{TOPICS}/t/partitions?force=true")
    assert ask(west, "GET", f"{TOPICS}/t/partitions")["partitions"] == 3
    ask(west, "DELETE", f"{TOPICS}/t/partitions?force=true")
    assert refusal(east, "GET", f"{TOPICS}/t/partitions?checkAllowAutoCreation=false")[0] == 404
