"""``initialize-cluster-metadata`` on a ZooKeeper, ``bookie initnewcluster`` and ``metaformat``, as they are run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tools.chaos.cluster import BookieProcess
from tools.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.integration

OF_PULSAR = ("initialize-cluster-metadata", "-c", "c1", "-uw", "http://h:8080", "--json")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "geminga", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_cluster_is_set_up_used_and_removed(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    target = f"zk:{zookeeper.hosts}/commands/{tmp_path.name}"
    made = run("bookie", "initnewcluster", "--metadata", target, "--json")
    assert made.returncode == 0, made.stderr
    instance_id = json.loads(made.stdout)["instanceId"]
    again = run("bookie", "initnewcluster", "--metadata", target)
    assert again.returncode == 1
    assert "/ledgers is there already" in again.stderr
    # Pulsar's tool makes what is missing, and no second identity.
    changed = json.loads(run(*OF_PULSAR, "-md", target, "-cms", target).stdout)["changed"]
    assert "/admin/clusters/c1" in changed
    assert not any(path.startswith("/ledgers") for path in changed)
    assert json.loads(run(*OF_PULSAR, "-md", target).stdout)["changed"] == []

    bookie = BookieProcess(tmp_path / "bookie", log=tmp_path / "bookie.log", settings={"zkTimeout": 4000})
    bookie.zookeeper = target
    bookie.start()
    assert instance_id in (tmp_path / "bookie/journal/VERSION").read_text()
    refused = run("bookie", "metaformat", "--metadata", target, "--force")
    assert refused.returncode == 1
    assert "bookies are up" in refused.stderr
    assert bookie.stop() == 0
    asked = run("bookie", "metaformat", "--metadata", target)
    assert asked.returncode == 1
    assert "has 0 ledgers and the cookies of 1 bookies" in asked.stderr
    assert "Add --force" in asked.stderr
    done = json.loads(run("bookie", "metaformat", "--metadata", target, "--force", "--json").stdout)
    assert (done["removedLedgers"], done["removedCookies"]) == (0, 1)
    assert done["instanceId"] != instance_id
    # What the bookie has is of the cluster that was.
    bookie.launch()
    assert bookie.process is not None
    assert bookie.process.wait(60) == 1
    assert f"belongs to a bookie of cluster {instance_id}" in bookie.log_tail()


def test_a_new_zookeeper_gets_both_parts(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    target = f"zk:{zookeeper.hosts}/commands/{tmp_path.name}-new"
    changed = json.loads(run(*OF_PULSAR, "-md", target).stdout)["changed"]
    assert changed[:2] == ["/ledgers/LAYOUT", "/ledgers/INSTANCEID"]
    assert run("bookie", "metaformat", "--set", "zkTimeout=4000").returncode == 1
