"""What systemd hears of a server."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from geminga.app.lifecycle.process_life import Supervisor, supervisor
from geminga.app.lifecycle.systemd import SystemdSupervisor, systemd_supervisor
from geminga.model.errors import ConfigurationError


def listening(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(path))
    sock.setblocking(False)
    return sock


def test_ready_watched_and_stopping(tmp_path: Path) -> None:
    async def story(sock: socket.socket) -> list[bytes]:
        environ = {"NOTIFY_SOCKET": str(tmp_path / "s"), "WATCHDOG_USEC": "2000", "OTHER": "stays"}
        told = systemd_supervisor(environ)
        assert environ == {"OTHER": "stays"}
        assert told.is_there
        told.ready("Geminga is ready")
        loop = asyncio.get_running_loop()
        heard = [await loop.sock_recv(sock, 1000) for _ in range(4)]
        told.stopping()
        while (last := await loop.sock_recv(sock, 1000)) == b"WATCHDOG=1":
            pass
        told.close()
        return [*heard, last]

    with listening(tmp_path / "s") as sock:
        assert asyncio.run(story(sock)) == [
            b"READY=1\nSTATUS=Geminga is ready",
            *[b"WATCHDOG=1"] * 3,
            b"STOPPING=1\nSTATUS=stopping",
        ]


def test_no_watchdog_without_one_or_for_another_process(tmp_path: Path) -> None:
    async def story(environ: dict[str, str]) -> None:
        told = systemd_supervisor(environ)
        told.ready("")
        told.close()

    for more in ({}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}):
        with listening(tmp_path / "s") as sock:
            asyncio.run(story({"NOTIFY_SOCKET": str(tmp_path / "s"), **more}))
            assert sock.recv(1000) == b"READY=1\nSTATUS="
            with pytest.raises(BlockingIOError):
                sock.recv(1000)
        (tmp_path / "s").unlink()


def test_an_abstract_name(tmp_path: Path) -> None:
    name = f"geminga-test-{os.getpid()}-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        told = SystemdSupervisor(f"@{name}", 0.0)
        told.stopping()
        told.close()
        assert sock.recv(1000).startswith(b"STOPPING=1")


def test_a_manager_that_is_gone_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = SystemdSupervisor(str(tmp_path / "gone"), 0.0)
    told.ready("")
    told.stopping()
    told.close()
    assert [record.getMessage() for record in caplog.records] == [
        "the service manager can not be told (NOTIFY_SOCKET): No such file or directory"
    ]


def test_nobody_supervises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    nobody = supervisor()
    assert type(nobody) is Supervisor
    assert not nobody.is_there
    nobody.ready("")
    nobody.stopping()
    nobody.close()


def test_a_watchdog_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    monkeypatch.setenv("WATCHDOG_USEC", "soon")
    with pytest.raises(ConfigurationError, match="WATCHDOG_USEC=soon: expected microseconds"):
        supervisor()
