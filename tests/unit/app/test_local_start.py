"""The start of a cluster on one machine: what is known beforehand, and who is believed to be ready."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import sys
from pathlib import Path

import pytest

from geminga.app.local.core.local_cluster import ClusterState, LocalMember, MemberKind, MemberState, Plan
from geminga.app.local.local_cluster import MemberStatus, await_all
from geminga.app.local.local_processes import end, started_at
from geminga.app.local.local_start import LocalStart, _server_ports, is_ready
from geminga.model.errors import UnavailableError


def start(directory: Path) -> LocalStart:
    return LocalStart(directory, 0.0, lambda _line: None, lambda _state: None)


@pytest.mark.parametrize("option", ["zookeeper_port", "broker_port", "web_port"])
def test_a_port_that_is_taken_is_told_before_anything_starts(option: str, tmp_path: Path) -> None:
    plan = {"zookeeper_port": 0, "broker_port": 0, "web_port": 0}
    start(tmp_path).check(ClusterState(Plan(**plan)))  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plan[option] = taken.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"--{option.replace('_', '-')} {plan[option]}: 127.0.0.1:"):
            start(tmp_path).check(ClusterState(Plan(**plan)))  # type: ignore[arg-type]


def test_the_port_of_who_runs_is_no_obstacle(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plan = Plan(broker_port=taken.getsockname()[1], web_port=0)
        own = LocalMember("broker-1", MemberKind.BROKER, os.getpid(), started_at(os.getpid()) or "")
        start(tmp_path).check(ClusterState(plan).with_member(own))


def test_who_hangs_up_or_has_told_no_port_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for kind, name in ((MemberKind.ZOOKEEPER, "client"), (MemberKind.BOOKIE, "http"), (MemberKind.BROKER, "web")):
        assert not is_ready(LocalMember("m", kind, 2, "s", {name: port}))
        assert not is_ready(LocalMember("m", kind, 2, "s"))


@pytest.mark.parametrize(
    ("kind", "name", "status", "expected"),
    [
        (MemberKind.BROKER, "web", 200, True),
        (MemberKind.BROKER, "web", 401, True),
        (MemberKind.BROKER, "web", 503, False),
        (MemberKind.BOOKIE, "http", 200, True),
        (MemberKind.BOOKIE, "http", 401, False),
        (MemberKind.BOOKIE, "http", 503, False),
    ],
)
def test_a_broker_that_asks_who_wants_to_know_is_ready(kind: MemberKind, name: str, status: int, expected: bool):
    """A cluster with authentication was ended after the whole timeout: each look was answered with 401."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async def main() -> bool:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await asyncio.to_thread(is_ready, LocalMember("m", kind, 2, "s", {name: port}))

    assert asyncio.run(main()) is expected


def statuses(*states: MemberState) -> list[MemberStatus]:
    return [MemberStatus(f"broker-{n}", MemberKind.BROKER, state, None) for n, state in enumerate(states, 1)]


def test_a_start_is_over_when_all_are_ready_at_the_same_time(tmp_path: Path) -> None:
    """The last look was the only one: `cluster up --json` ended with 0 and "isReady": false where it was too early."""
    ready, busy = MemberState.READY, MemberState.NOT_READY
    looks = [statuses(ready, busy), statuses(busy, ready), statuses(ready, ready), []]
    assert await_all(lambda: looks.pop(0), math.inf, tmp_path) == statuses(ready, ready)
    assert looks == [[]]
    with pytest.raises(UnavailableError, match=r"broker-2 did not stay ready in time \(--timeout\)"):
        await_all(lambda: statuses(ready, busy), 0.0, tmp_path)
    for gone in (MemberState.GONE, MemberState.REPLACED):
        with pytest.raises(UnavailableError, match="broker-1 ended right after it was ready"):
            await_all(lambda: statuses(gone, busy), math.inf, tmp_path)  # noqa: B023


def test_servers_of_zookeeper_have_the_ports_that_others_know_and_no_port_twice() -> None:
    names = ["zookeeper-1", "zookeeper-2", "zookeeper-3"]
    ports = _server_ports(names, {"zookeeper-1": {"client": 2181}}, {})
    assert ports["zookeeper-1"]["client"] == 2181
    numbers = [port for one in ports.values() for port in one.values()]
    assert (len(numbers), len(set(numbers)), 0 in numbers) == (9, 9, False)
    # As before, where that is free; as it is written in those that run, whatever is free.
    assert _server_ports(names, {}, ports)["zookeeper-3"] == ports["zookeeper-3"]
    with socket.create_server(("127.0.0.1", ports["zookeeper-3"]["elect"])):
        assert _server_ports(names, ports, {}) == ports
        assert _server_ports(names, {}, ports)["zookeeper-3"]["elect"] != ports["zookeeper-3"]["elect"]
    assert _server_ports(["zookeeper"], {}, {"zookeeper": {"client": 0}}).keys() == {"zookeeper"}


#: Keeps what it was started with, and says that it is ready.
_PROGRAM = """#!/bin/sh
printf '%s\\n' "$@" > "$0.words"
env > "$0.environment"
echo '{"port": 1, "httpPort": 2, "brokerServiceUrl": "pulsar://a:1", "webServiceUrl": "http://a:2"}'
exec tail -f /dev/null
"""


# They outlive who starts them, who waits for none.
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.parametrize("kind", [MemberKind.BROKER, MemberKind.BOOKIE])
def test_secrets_of_a_cluster_are_on_no_command_line(
    kind: MemberKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has an account on the machine can read those, for as long as the process lives."""
    secret, open_setting = "data:;base64,c2VjcmV0IG9mIGFsbCB0b2tlbnM=", ("superUserRoles", "admin")
    key = "tokenSecretKey" if kind is MemberKind.BROKER else "httpServerKeyStorePassword"
    program = tmp_path / "python"
    program.write_text(_PROGRAM)
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    # Who starts it may have another one in its environment: what the cluster was made with holds.
    monkeypatch.setenv(f"GEMINGA_{key}", "another")
    for name in ("logs", "run"):
        (tmp_path / name).mkdir()
    settings = dict([(key, secret), open_setting])
    starting = LocalStart(tmp_path, math.inf, lambda _line: None, lambda _state: None)
    starting._state = ClusterState(Plan(broker_settings=settings, bookie_settings=settings))
    command = starting._broker("broker-1", (1, 2)) if kind is MemberKind.BROKER else starting._bookie("bookie-1")
    starting._start_kind(kind, [command])
    end(starting.started, within_s=10.0)
    words = Path(f"{program}.words").read_text().splitlines()
    assert "superUserRoles=admin" in words
    assert not [word for word in words if secret in word]
    assert f"GEMINGA_{key}={secret}" in Path(f"{program}.environment").read_text().splitlines()
