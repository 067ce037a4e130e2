"""The ZooKeeper of a cluster on one machine: what it needs, and who is taken for it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from geminga.app.local_zookeeper import answers, classpath, write_config
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
