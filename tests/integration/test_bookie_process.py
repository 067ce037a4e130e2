"""``geminga bookie`` as an operator runs it: start, signals, refusals, strangers at its port."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from struct import pack

import pytest

from geminga.bookkeeper.remote import RemoteBookie
from geminga.runtime import real_runtime
from support.house.exposition import samples
from support.house.real_runtimes import close_runtime
from support.processes.bookie_process import BookieProcess
from support.worlds.bookies import Calls, entries_of

pytestmark = pytest.mark.integration


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    process = BookieProcess(tmp_path / "b")
    yield process
    if process.is_running:
        process.kill()


def talk(port: int, main: Callable[[Calls], Awaitable[None]]) -> None:
    """Run ``main`` as a client of the bookie on ``port``."""

    async def scenario() -> None:
        runtime = real_runtime(lambda part, error: os._exit(9))
        remote = RemoteBookie(runtime, "b", "127.0.0.1", port)
        try:
            await main(Calls(remote))
        finally:
            await remote.close()
            await close_runtime(runtime)

    asyncio.run(scenario())


def test_keeps_what_it_answered_through_kill_9_and_stops_cleanly(bookie: BookieProcess) -> None:
    async def write(calls: Calls) -> None:
        assert await calls.add(3, 0, entries_of(3, 0, 50)) is None

    async def read(calls: Calls) -> None:
        assert await calls.read(3, *range(50)) == entries_of(3, 0, 50)

    bookie.start()
    assert bookie.ready["bookieId"] == f"127.0.0.1:{bookie.port}"
    assert bookie.ready["journalDirectories"] == [str(bookie.data / "journal")]
    assert bookie.process is not None and bookie.ready["pid"] == bookie.process.pid
    talk(bookie.port, write)
    bookie.kill()
    bookie.start()
    talk(bookie.port, read)
    assert bookie.stop() == 0
    bookie.start()
    talk(bookie.port, read)
    bookie._end(signal.SIGINT)
    assert bookie.process.returncode == 0
    assert "Traceback" not in bookie.errors()
    assert "ERROR" not in bookie.errors()


def test_refusals_are_one_paragraph_and_lose_nothing(bookie: BookieProcess, tmp_path: Path) -> None:
    async def write(calls: Calls) -> None:
        assert await calls.add(3, 0, entries_of(3, 0, 1)) is None

    bookie.start()
    talk(bookie.port, write)
    # Its port, and its directories from another one.
    assert f"bookiePort: can not listen on 127.0.0.1:{bookie.port}: " in BookieProcess(tmp_path / "c").refused(
        "--port", str(bookie.port)
    )
    assert not (tmp_path / "c").exists()
    assert "in use by another bookie" in bookie.refused("--port", "0")
    bookie.kill()
    # On another port it would be another bookie.
    assert f"journal belongs to bookie 127.0.0.1:{bookie.port}" in bookie.refused("--port", "0")
    version = bookie.data / "ledgers" / "VERSION"
    whole = version.read_bytes()
    version.write_bytes(whole[:30])
    assert f"{version} is no whole bookie's cookie" in bookie.refused("--port", str(bookie.port))
    version.write_bytes(whole)

    async def read(calls: Calls) -> None:
        assert await calls.read(3, 0) == entries_of(3, 0, 1)

    bookie.start()
    talk(bookie.port, read)


def test_data_directory_of_a_standalone_is_refused(bookie: BookieProcess) -> None:
    bookie.data.mkdir()
    (bookie.data / "geminga.json").write_text('{"format": 1}')
    assert "is the data directory of a standalone" in bookie.refused("--port", "0")
    assert [path.name for path in bookie.data.iterdir()] == ["geminga.json"]


def test_strangers_do_not_keep_it_from_serving(tmp_path: Path) -> None:
    bookie = BookieProcess(tmp_path / "b", "--set", "nettyMaxFrameSizeBytes=65536")
    with ExitStack() as stack:
        stack.callback(lambda: bookie.is_running and bookie.kill())
        bookie.start()

        def connected() -> socket.socket:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", bookie.port)))
            connection.settimeout(30)
            return connection

        silent = [connected() for _ in range(50)]
        silent[1].sendall(pack(">i", 60_000) + b"half a frame")
        for size in (65_537, -1, 1 << 30):
            huge = connected()
            huge.sendall(pack(">i", size))
            assert is_closed(huge)

        async def main(calls: Calls) -> None:
            assert await calls.add(3, 0, entries_of(3, 0, 3)) is None
            assert await calls.read(3, 0, 1, 2) == entries_of(3, 0, 3)

        talk(bookie.port, main)
        # The silent ones are still there, and do not hold up its end.
        assert bookie.stop() == 0
        assert all(is_closed(connection) for connection in silent)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_outside_of_loopback_it_warns_once_who_may_do_what(tmp_path: Path) -> None:
    bookie = BookieProcess(
        tmp_path / "b", "--address", "0.0.0.0", "--set", "bookieId=bookie-7", "--set", "gemingaAllowOpen=true"
    )
    try:
        bookie.start()
        assert bookie.ready["bookieId"] == "bookie-7"
        assert bookie.ready["host"] == socket.gethostname()
        assert bookie.stop() == 0
        warnings = [line for line in bookie.errors().splitlines() if " WARNING " in line]
        assert len(warnings) == 1
        assert "listening on 0.0.0.0 without authentication: whoever reaches this machine can read" in warnings[0]
        # With an id of its own it may change its port.
        bookie.port = 0
        bookie.start()
    finally:
        if bookie.is_running:
            bookie.kill()


HTTP = ("--set", "httpServerEnabled=true", "--set", "httpServerPort=0")


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_one_that_is_started_read_only_serves_what_it_has_and_takes_nothing(tmp_path: Path) -> None:
    async def write(calls: Calls) -> None:
        assert await calls.add(3, 0, entries_of(3, 0, 5)) is None

    async def look(calls: Calls) -> None:
        assert await calls.read(3, *range(5)) == entries_of(3, 0, 5)
        assert await calls.add(3, 5, entries_of(3, 5, 1)) is not None
        assert await calls.add(4, 0, entries_of(4, 0, 1)) is not None

    bookie = BookieProcess(tmp_path / "b")
    bookie.start()
    talk(bookie.port, write)
    assert bookie.stop() == 0
    again = BookieProcess(tmp_path / "b", *HTTP, "--set", "forceReadOnlyBookie=true", port=bookie.port)
    again.start()
    try:
        talk(again.port, look)
        assert json.loads(get(again.ready["httpPort"], "/api/v1/bookie/state")[1])["readOnly"] is True
    finally:
        again.kill()


def test_answers_http_where_it_is_asked_to(tmp_path: Path) -> None:
    async def write(calls: Calls) -> None:
        assert await calls.add(3, 0, entries_of(3, 0, 50)) is None

    bookie = BookieProcess(tmp_path / "b", *HTTP)
    bookie.start()
    try:
        port = bookie.ready["httpPort"]
        talk(bookie.port, write)
        status, text = get(port, "/metrics")
        assert status == 200
        found = {(sample.name, *sample.labels.values()): sample.value for sample in samples(text)}
        assert found["bookie_SERVER_STATUS",] == 1
        assert found["bookkeeper_server_ADD_ENTRY_count", "true"] == 50
        assert "geminga_bookie_connections" in text
        assert get(port, "/heartbeat") == (200, "OK\n")
        assert get(port, "/api/v1/bookie/is_ready") == (200, "OK")
        assert get(port, "/api/v1/bookie/gc")[0] == 404
        # Who mixes up the ports: a frame of Pulsar's binary protocol is told so.
        with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
            stranger.sendall(pack(">II", 24, 20) + bytes(20))
            assert b"httpServerPort of a bookie" in stranger.recv(4096)
        # The port is taken: nothing starts, and the bookie's own is free again.
        other = BookieProcess(tmp_path / "c", "--set", "httpServerEnabled=true", "--set", f"httpServerPort={port}")
        assert f"httpServerPort: can not listen on 127.0.0.1:{port}: " in other.refused("--port", "0")
        assert bookie.stop() == 0
    finally:
        if bookie.is_running:
            bookie.kill()
    assert "Traceback" not in bookie.errors()
    with pytest.raises(ConnectionRefusedError):
        get(port, "/heartbeat")
