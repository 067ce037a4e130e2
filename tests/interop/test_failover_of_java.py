"""The official Java client under load between two clusters of Geminga's, one of which is killed: nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.client import InitialPosition, blocking
from integration.test_geo_replication import clusters
from support.processes.failover_load import JavaLoad, told

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

INTERVAL_S: Final = 2.0
#: The automatic one goes with the second answer that fails; and a machine may be busy, where connecting takes its time.
ALSO_S: Final = INTERVAL_S + 2.0 + 5.0


def keep(broker: StandaloneProcess) -> None:
    """What is published stays until it is read."""
    with blocking.connect(broker.service_url) as client:
        client.subscribe("t", "all")


def has_all(broker: StandaloneProcess, missing: set[str]) -> None:
    with blocking.connect(broker.service_url) as client:
        consumer = client.subscribe("t", "all", initial_position=InitialPosition.Earliest)
        while missing:
            missing.discard(consumer.receive(30_000).data().decode())


@pytest.mark.parametrize("kind", ["auto", "controlled"])
def test_nothing_is_lost_when_its_cluster_is_killed(kind: str, tmp_path: Path, judge_is_apache: bool) -> None:
    if not judge_is_apache:
        pytest.skip("Apache's client")
    with clusters(tmp_path) as brokers:
        east, west = (brokers[name] for name in ("east", "west"))
        choice = {"serviceUrl": east.service_url}
        with told(choice) as url:
            for broker in (east, west):
                keep(broker)
            places = [east.service_url, west.service_url] if kind == "auto" else [url, east.service_url]
            load = JavaLoad(kind, "t", str(int(INTERVAL_S * 1000)), *places)
            load.until_receipts(50)
            east.kill()
            choice["serviceUrl"] = west.service_url
            assert load.until_receipts(50) < INTERVAL_S + ALSO_S
            east.start()
            choice["serviceUrl"] = east.service_url
            load.until_receipts(50)
            answered = load.end()
        for broker in (east, west):
            has_all(broker, set(answered))
