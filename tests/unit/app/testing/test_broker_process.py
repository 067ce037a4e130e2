"""A broker that a test kills and starts again: docs/pytest.md shows it, this is what can go wrong."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import geminga.client.blocking
from geminga.app.testing import broker_process
from geminga.app.testing.broker_process import BrokerProcess
from geminga.model.errors import ConfigurationError, LocalError


def test_process_keeps_its_ports_and_what_was_acknowledged_and_stops_cleanly(tmp_path) -> None:
    process = BrokerProcess(tmp_path / "data", {"brokerDeduplicationEnabled": True})
    for ask in (lambda: process.service_url, lambda: process.web_service_url, lambda: process.pid):
        with pytest.raises(LocalError, match=r"call start\(\)"):
            ask()
    process.kill()
    process.stop()
    with process:
        urls = process.service_url, process.web_service_url
        with pytest.raises(LocalError, match="runs already"):
            process.start()
        with geminga.client.blocking.connect(process.service_url) as client:
            client.subscribe("t", "s").close()
            producer = client.create_producer("t")
            producer.send(b"before")
            first = process.pid
            process.restart()
            assert process.pid != first
            producer.send(b"after")
            consumer = client.subscribe("t", "s")
            assert [consumer.receive(10_000).data() for _ in range(2)] == [b"before", b"after"]
        assert (process.service_url, process.web_service_url) == urls
        process.stop()
        assert not process.is_running
        with pytest.raises(LocalError, match="not running"):
            process.fill_disk()
        process.start().kill()
        process.stop()


def test_process_that_does_not_start_says_why(tmp_path) -> None:
    with pytest.raises(LocalError, match="maxMessageSize"):
        BrokerProcess(tmp_path / "data", {"maxMessageSize": "large"}).start()
    for numbers in ({"bookies": 0}, {"brokers": -1}):
        with pytest.raises(ConfigurationError, match="expected 1 or more, and 0 or more"):
            BrokerProcess(tmp_path / "data", **numbers)


def test_process_without_its_guard_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no shell is, as in some images, a broker ran on that nobody had been given."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(broker_process, "GUARD", (str(tmp_path / "no-shell"),))
    process = BrokerProcess(tmp_path / "data")
    with pytest.raises(FileNotFoundError):
        process.start()
    assert not process.is_running


def test_process_that_ends_by_itself_says_so_when_it_is_stopped_and_ends_with_its_owner(tmp_path) -> None:
    """The end of the owner is the end of a pipe that only it holds."""
    with BrokerProcess(tmp_path / "data") as process:
        assert process._process is not None
        assert process._guard is not None
        assert process._guard.stdin is not None
        process._guard.stdin.close()
        assert process._process.wait(60) == -signal.SIGKILL
        assert not process.is_running
        with pytest.raises(LocalError, match="exit code -9"):
            process.stop()
