"""Data directories that an older tree wrote (``tools/directory_sample.py``) are opened and read whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.directory_sample import CLUSTER, SETTINGS, CommandCluster, Found, Running, promised, read_whole, unpack
from tools.standalone_process import StandaloneProcess

from support.house.source_tree import ROOT

pytestmark = pytest.mark.integration

SAMPLES = sorted((ROOT / "tests" / "samples").glob("directories-*.tar.xz"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name.removesuffix(".tar.xz"))
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("alone", ()),
        pytest.param("cluster", CLUSTER, marks=pytest.mark.long),
    ],
)
def test_what_was_promised_of_an_older_directory_is_read_whole(
    tmp_path: Path, sample: Path, name: str, arguments: tuple[str, ...]
) -> None:
    """One was killed while it ran, so that its journal is replayed; the other is a cluster's, with bundles and cursors
    of several owners. Opened a second time, by what this tree wrote of it, each has the same again."""
    kept = unpack(sample, name, tmp_path)
    log = tmp_path / "broker.log"
    broker = StandaloneProcess(tmp_path / "data", log=log, settings=SETTINGS, arguments=arguments)
    try:
        _read_twice(broker, kept)
    finally:
        broker.kill()
    assert " ERROR " not in log.read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_what_was_promised_of_an_older_cluster_with_a_zookeeper_is_read_whole(tmp_path: Path, sample: Path) -> None:
    """Metadata as ZooKeeper's own snapshot and log hold them, bookies that are known by their ids."""
    kept = unpack(sample, "zookeeper", tmp_path)
    cluster = CommandCluster(tmp_path / "data")
    try:
        _read_twice(cluster, kept)
    finally:
        cluster.stop()
    # ZooKeeper's own server calls it an error, too, that who asked how it is did not wait for the answer.
    assert [line for line in cluster.logs.splitlines() if " ERROR geminga." in line] == []


def _read_twice(broker: Running, kept: Found) -> None:
    assert {key: kept[key] for key in promised()} == promised(), "the sample is of another story than the tool's"
    for _ in range(2):
        broker.start()
        found = read_whole(broker)
        assert broker.stop() == 0
        assert {key: found[key] for key in kept} == kept
