"""``geminga cluster`` where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from geminga.app.local.core.local_cluster import ClusterState, Plan, encode_state
from geminga.app.local.core.local_mesh import Mesh, encode_mesh


@pytest.mark.parametrize("word", ["status", "down"])
def test_where_there_is_no_cluster_the_command_says_so_and_makes_nothing(word: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "geminga", "cluster", word, "--dir", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == f"geminga: there is no cluster in {tmp_path}/none: geminga cluster up --dir makes one\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_json", [False, True])
def test_status_of_several_clusters_tells_each_that_was_made(is_json: bool, tmp_path: Path) -> None:
    """Of the third the command was cut off before it was made; nothing of the two runs."""
    (tmp_path / "clusters.json").write_text(encode_mesh(Mesh(("a", "b", "c"))))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cluster.json").write_text(encode_state(ClusterState(Plan(name, bookies=1, brokers=1))))
    command = [sys.executable, "-m", "geminga", "cluster", "status", "--dir", str(tmp_path)]
    done = subprocess.run([*command, *["--json"] * is_json], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done
    if is_json:
        told = json.loads(done.stdout)
        assert (told["isReady"], [one["clusterName"] for one in told["clusters"]]) == (False, ["a", "b"])
    else:
        assert [line for line in done.stdout.splitlines() if line.startswith("cluster ")] == [
            "cluster a: no broker",
            "cluster b: no broker",
        ]
