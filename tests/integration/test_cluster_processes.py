"""A cluster of processes: ZooKeeper, bookies and a broker; the official client while they are killed and paused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pulsar
import pytest
from rich.console import Console
from tools.chaos.__main__ import JSON, PROMISED, SETTINGS, Sizes, broken_lines, run
from tools.chaos.cluster import Cluster
from tools.chaos.plan import BROKER, ZOOKEEPER, Fault

from support.processes.cluster_brokers import started
from support.processes.official import quiet_client, read_to_the_end

pytestmark = pytest.mark.integration

SESSION_MS = 4000
#: One bookie may be away, and a new ledger finds its ensemble.
TWO_OF_THREE = {**SETTINGS, "managedLedgerDefaultEnsembleSize": 2}
SLEPT, OUTLIVED = (f"persistent://public/default/{name}" for name in ("slept", "outlived"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests, which leave it whole: its processes take their time to start."""
    told = {"gemingaLogLevels": "geminga.bookie.serving=debug,geminga.broker.rest=debug"}
    made = Cluster(
        tmp_path_factory.mktemp("cluster"),
        bookies=3,
        session_ms=SESSION_MS,
        broker_settings={**TWO_OF_THREE, **told},
        bookie_settings=told,
        log_format=JSON,
    )
    with started(made):
        yield made


def test_a_broker_that_slept_through_its_session_registers_again(cluster: Cluster, tmp_path: Path) -> None:
    client = quiet_client(cluster.broker.service_url, tmp_path)
    producer = client.create_producer(SLEPT, producer_name="p", send_timeout_millis=0)
    producer.send(b"before")
    fault = Fault("pause", BROKER, 0, 0)
    cluster.fail(fault)
    threading.Event().wait(SESSION_MS / 1000 * 1.5)
    cluster.repair(fault)
    producer.send(b"after")
    assert cluster.broker.is_running
    assert read_to_the_end(client, SLEPT) == [b"before", b"after"]
    client.close()


def test_what_was_acknowledged_outlives_every_process_of_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    sent: list[bytes] = []

    def send(producer: pulsar.Producer, count: int) -> None:
        for _ in range(count):
            payload = b"%d" % len(sent)
            producer.send(payload)
            sent.append(payload)

    client = quiet_client(cluster.broker.service_url, tmp_path)
    producer = client.create_producer(OUTLIVED, producer_name="p", initial_sequence_id=1, send_timeout_millis=0)
    send(producer, 20)
    for who in ("bookie-1", BROKER, ZOOKEEPER):
        fault = Fault("kill", who, 0, 0)
        cluster.fail(fault)
        if who == "bookie-1":
            send(producer, 20)  # another bookie takes its place
        cluster.repair(fault)
        send(producer, 20)
    producer.close()
    assert read_to_the_end(client, OUTLIVED) == sent
    client.close()
    # Stopped in order and started again, everything is there.
    assert cluster.broker.stop() == 0
    for bookie in cluster.bookies.values():
        assert bookie.stop() == 0
        bookie.start(60)
    cluster.broker.start(60)
    client = quiet_client(cluster.broker.service_url, tmp_path)
    assert read_to_the_end(client, OUTLIVED) == sent
    client.close()


def test_a_trace_id_is_followed_from_rest_to_the_bookies_and_every_line_is_json(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = "persistent://public/default/traced"
    client = quiet_client(cluster.broker.service_url, tmp_path)
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic)
    producer.send(b"1")
    producer.send(b"2")
    client.close()
    trace = "0af7651916cd43dd8448eb211c80319c"
    path = "/admin/v2/persistent/public/default/traced/subscription/s/skip/1"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    with urlopen(Request(f"{cluster.broker.web_url}{path}", method="POST", headers=headers)) as answer:
        assert answer.headers["x-trace-id"] == trace
    assert not broken_lines(cluster.logs)
    told: dict[str, list[str]] = {}
    for log in cluster.logs:
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        told[log.stem] = [line["message"] for line in lines if line.get("trace") == trace]
    assert told[cluster.broker.log.stem][0] == f"POST {path}"
    assert sum("bookie: AddRequest of ledger" in text for name in cluster.bookies for text in told[name]) >= 2


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("sizes", [Sizes(), Sizes(brokers=3, zookeepers=3)], ids=["one of each", "three of each"])
def test_fifty_rounds_of_chaos_lose_nothing(tmp_path: Path, sizes: Sizes) -> None:
    found = run(50, 1, sizes, tmp_path, Console(stderr=True), log_format=JSON)
    assert {name: found[name] for name in PROMISED} == dict.fromkeys(PROMISED, 0)
    # However slow the machine is: in every round something came through, and much in all.
    assert found["acknowledged"] > 50 * 20
