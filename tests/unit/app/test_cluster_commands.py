"""``geminga initialize-cluster-metadata`` as an operator runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from geminga import Standalone
from support.worlds.rest import Rest

GIVEN = ("-c", "c1", "-uw", "http://h:8080", "-ub", "pulsar://h:6650")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "geminga", "initialize-cluster-metadata", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_cluster_is_set_up_once_and_a_standalone_starts_in_it(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'data'}"
    first = run(*GIVEN, "-md", store, "-cms", store, "--json")
    assert (first.returncode, first.stderr) == (0, "")
    assert json.loads(first.stdout)["cluster"] == "c1"
    assert len(json.loads(first.stdout)["changed"]) == 6
    again = run(*GIVEN, "--metadata-store", store, "-uw", "http://other:1")
    assert (again.returncode, again.stdout) == (0, "Metadata of cluster c1 were there already\n")
    with Standalone(tmp_path / "data", {"clusterName": "c1"}) as broker:
        rest = Rest(broker.web_service_url)
        data = {"serviceUrl": "http://h:8080", "brokerServiceUrl": "pulsar://h:6650"}
        answer = rest.get("clusters/c1").json
        assert {key: answer[key] for key in data} == data
        assert rest.get("namespaces/public/default/bundles").json["numBundles"] == 16
        assert rest.get("persistent/pulsar/system/partitioned?includeSystemTopic=true").json == [
            "persistent://pulsar/system/transaction_coordinator_assign"
        ]
        # A directory in use is left alone.
        refused = run(*GIVEN, "-md", store)
        assert refused.returncode == 1
        assert "in use" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ((*GIVEN, "-md", "rocksdb:here"), 1, "sqlite:DIR"),
        ((*GIVEN, "-md", "sqlite:d", "-cms", "sqlite:e"), 1, "--configuration-metadata-store sqlite:e"),
        ((*GIVEN, "-md", "sqlite:d", "-te", "-pp", "TCP"), 1, "--proxy-protocol TCP"),
        (("-c", "c1", "-uw", "h", "-md", "sqlite:d"), 1, "--web-service-url h: expected http://host:port"),
        (("-c", "c1", "-md", "sqlite:d"), 2, "--web-service-url"),
        ((*GIVEN,), 2, "--metadata-store"),
    ],
)
def test_what_makes_no_sense_is_one_paragraph_and_writes_nothing(
    arguments: tuple[str, ...], code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert told in result.stderr
    assert "Traceback" not in result.stderr
    if code == 1:
        assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_operators_change_to_the_cluster_survives_a_restart(tmp_path: Path) -> None:
    with Standalone(tmp_path) as broker:
        changed = {"serviceUrl": "http://balancer:80", "brokerServiceUrl": "pulsar://balancer:6650"}
        assert Rest(broker.web_service_url).post("clusters/standalone", changed).status == 200
    with Standalone(tmp_path) as broker:
        found = Rest(broker.web_service_url).get("clusters/standalone").json
        assert {key: found.get(key) for key in changed} == changed
