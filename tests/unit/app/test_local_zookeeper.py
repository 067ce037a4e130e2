"""The ZooKeeper of a cluster on one machine: what it needs, and who is taken for it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from geminga.app.local.local_zookeeper import (
    HEAP_MIB_MAX,
    HEAP_MIB_MIN,
    HEAP_OF_SNAPSHOT,
    answers,
    classpath,
    command,
    write_config,
)
from geminga.model.errors import UnavailableError


def test_the_jars_are_those_of_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "/zookeeper-3." in classpath()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UnavailableError, match=r"not installed: pip install 'geminga\[spark\]'"):
        classpath()


def test_the_server_is_on_loopback_alone(tmp_path: Path) -> None:
    lines = write_config(tmp_path, 2181).read_text().splitlines()
    assert {"clientPort=2181", "clientPortAddress=127.0.0.1", f"dataDir={tmp_path}/data"} <= set(lines)


def test_where_nobody_listens_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert not answers(port)
    assert not answers(0)


@pytest.mark.parametrize(
    ("snapshot_mib", "heap_mib"),
    [(None, HEAP_MIB_MIN), (1, HEAP_MIB_MIN), (85, 85 * HEAP_OF_SNAPSHOT), (10_000, HEAP_MIB_MAX)],
)
def test_a_server_whose_data_grew_has_a_heap_for_them(tmp_path: Path, snapshot_mib: int | None, heap_mib: int) -> None:
    """A million nodes were too many for a fixed 256 MiB: the server died, and no later start came through."""
    (tmp_path / "data" / "version-2").mkdir(parents=True)
    if snapshot_mib is not None:
        for name, size in (("snapshot.1", 1), ("snapshot.2f", snapshot_mib << 20), ("log.2f", 1 << 40)):
            with (tmp_path / "data" / "version-2" / name).open("wb") as file:
                file.truncate(size)
    words = command("java", "jars", write_config(tmp_path, 2181))
    assert f"-Xmx{heap_mib}m" in words
    assert "-XX:+ExitOnOutOfMemoryError" in words
