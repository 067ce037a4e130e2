"""A cluster on three ZooKeeper servers: its leader killed, its majority away for a while."""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest
from tools.chaos.__main__ import SETTINGS
from tools.chaos.cluster import Cluster
from tools.chaos.plan import ZOOKEEPER_LEADER, ZOOKEEPER_QUORUM, Fault

from support.processes.official import quiet_client

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SESSION_MS = 4000


def test_a_cluster_outlives_the_leader_of_its_zookeeper_and_waits_for_its_majority(tmp_path: Path) -> None:
    cluster = Cluster(
        tmp_path / "cluster",
        bookies=2,
        zookeepers=3,
        session_ms=SESSION_MS,
        broker_settings={**SETTINGS, "managedLedgerDefaultEnsembleSize": 2},
    )
    try:
        cluster.start()
        client = quiet_client(cluster.service_url, tmp_path)
        sent: list[bytes] = []

        def publish(producer: pulsar.Producer) -> None:
            sent.append(b"%d" % len(sent))
            producer.send(sent[-1])

        def new_producer(name: str) -> pulsar.Producer:
            return client.create_producer(f"persistent://public/default/{name}", send_timeout_millis=0)

        served = new_producer("served")
        publish(served)
        leader = cluster.zookeeper.leader()
        fault = Fault("kill", ZOOKEEPER_LEADER, 0, 0)
        cluster.fail(fault)
        assert leader is not None
        assert not leader.is_running
        publish(served)
        new_producer("with-two").send(b"x")  # those two have a leader among them, and write
        assert cluster.zookeeper.leader() not in (None, leader)
        cluster.repair(fault)

        lost = Fault("pause", ZOOKEEPER_QUORUM, 0, 0)
        cluster.fail(lost)
        for _ in range(20):
            publish(served)
        cluster.repair(lost)
        publish(served)
        new_producer("with-three").send(b"x")

        reader = client.create_reader("persistent://public/default/served", pulsar.MessageId.earliest)
        assert [reader.read_next(timeout_millis=30_000).data() for _ in sent] == sent
        assert not reader.has_message_available()
        client.close()
    finally:
        cluster.close()
