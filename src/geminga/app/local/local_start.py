"""The start of a cluster on one machine: ZooKeeper, its metadata, bookies, brokers; who runs is left alone."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from geminga.app.configuration.config_sources import ENVIRONMENT_PREFIX
from geminga.app.local import local_processes, local_zookeeper
from geminga.app.local.core.local_cluster import ClusterState, LocalMember, MemberKind, member_names
from geminga.app.local.local_zookeeper import QuorumPeer
from geminga.metadata.core.zookeeper_address import parse_zookeeper_address
from geminga.model.errors import UnavailableError
from geminga.model.secret import names_secret

#: Ports that the kernel picked and somebody took before ZooKeeper did.
PORT_ATTEMPTS: Final = 5
#: What is asked whether it is ready.
READY_PATHS: Final = {
    MemberKind.BOOKIE: ("http", "/api/v1/bookie/is_ready"),
    MemberKind.BROKER: ("web", "/admin/v2/brokers/ready"),
}
_READY_STATUSES: Final = {
    MemberKind.BOOKIE: (HTTPStatus.OK,),
    MemberKind.BROKER: (HTTPStatus.OK, HTTPStatus.UNAUTHORIZED),
}
_ANSWER_S: Final = 2.0
#: For servers of ZooKeeper whose ports were taken.
END_S: Final = 10.0
_HOST: Final = "127.0.0.1"


def is_ready(member: LocalMember) -> bool:
    """Whether it says so. A broker that asks who wants to know (401) is up, and tells a stranger no more."""
    if member.kind is MemberKind.ZOOKEEPER:
        return local_zookeeper.answers(member.ports.get("client", 0))
    port, path = READY_PATHS[member.kind]
    if port not in member.ports:
        return False
    # Without the proxies that the environment names.
    connection = http.client.HTTPConnection(_HOST, member.ports[port], timeout=_ANSWER_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status in _READY_STATUSES[member.kind]
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class _Command(NamedTuple):
    """What a member is started with."""

    name: str
    #: Of ``geminga``.
    words: list[str]
    #: Settings that nobody else is to see, by variable of its environment.
    secrets: Mapping[str, str]


class LocalStart:
    """One start. ``save`` makes what is known of the processes durable; ``started`` are those that this one made."""

    def __init__(
        self, directory: Path, deadline: float, say: Callable[[str], None], save: Callable[[ClusterState], None]
    ) -> None:
        self._directory = directory
        self._deadline = deadline
        self._say = say
        self._save = save
        self.started: list[LocalMember] = []
        self._state: ClusterState
        #: How far their logs went before.
        self._log_ends: dict[str, int] = {}

    def check(self, state: ClusterState) -> None:
        """Raise UnavailableError for what can be known beforehand: no Java, no jars, a port that is taken."""
        names = member_names(MemberKind.ZOOKEEPER, state.plan.zookeepers)
        missing = [name for name in names if not self._runs(state, name)]
        if missing:
            local_zookeeper.java()
            local_zookeeper.classpath()
            fixed = self._fixed_ports(state)
            for port in (port for name in missing for port in fixed.get(name, {}).values()):
                _refuse_taken("--zookeeper-port", port)
        if not self._runs(state, "broker-1"):
            _refuse_taken("--broker-port", state.plan.broker_port)
            _refuse_taken("--web-port", state.plan.web_port)

    def run(self, state: ClusterState) -> ClusterState:
        """Start what is not there, and wait until all of it is ready. Raises GemingaError, OSError."""
        self._state = state
        self._start_zookeeper()
        first = self._plan_first_broker()
        self._prepare(first)
        self._start_kind(MemberKind.BOOKIE, [self._bookie(name) for name in self._missing(MemberKind.BOOKIE)])
        self._start_kind(MemberKind.BROKER, [self._broker(name, first) for name in self._missing(MemberKind.BROKER)])
        return self._state

    @property
    def metadata_url(self) -> str:
        """As every process of the cluster is told it."""
        return self._state.metadata_url

    # ---- ZooKeeper

    def _fixed_ports(self, state: ClusterState) -> dict[str, Mapping[str, int]]:
        """Ports that its servers must have, by name; those of others that run know them."""
        names = member_names(MemberKind.ZOOKEEPER, state.plan.zookeepers)
        former = {member.name: member.ports for member in state.zookeepers}
        if any(local_processes.is_there(member) for member in state.members) and len(former) == len(names):
            return former
        return {names[0]: {"client": state.plan.zookeeper_port}} if state.plan.zookeeper_port else {}

    def _start_zookeeper(self) -> None:
        names = member_names(MemberKind.ZOOKEEPER, self._state.plan.zookeepers)
        missing = [name for name in names if not self._runs(self._state, name)]
        fixed = self._fixed_ports(self._state)
        former = {member.name: member.ports for member in self._state.zookeepers}
        program, jars = local_zookeeper.java(), local_zookeeper.classpath()
        for attempt in range(PORT_ATTEMPTS if missing else 0):
            ports = _server_ports(names, fixed, former if attempt == 0 else {})
            peers = [QuorumPeer(one["follow"], one["elect"]) for one in ports.values()] if len(names) > 1 else []
            processes = {}
            for name in missing:
                config = local_zookeeper.write_config(
                    self._directory / name, ports[name]["client"], number=names.index(name) + 1, peers=peers
                )
                command = local_zookeeper.command(program, jars, config)
                processes[name] = self._launch(name, MemberKind.ZOOKEEPER, command, ports[name])
            ended = [name for name in missing if not self._await_server(name, processes[name])]
            if not ended:
                break
            said = self._why_ended(ended[0])
            if len(fixed) == len(names) or self._state.plan.zookeeper_port or "ddress already in use" not in said:
                raise UnavailableError(f"{ended[0]} did not start: {said}; all it said is in {self._log(ended[0])}")
            local_processes.end([one for one in self.started if one.name in missing], within_s=END_S)
        else:
            if missing:
                raise UnavailableError(
                    f"{names[0]} did not start: {PORT_ATTEMPTS} free ports were taken by others before it did"
                )
        for member in self._state.zookeepers:
            if member.name not in missing:
                self._await(f"{member.name} answers", lambda: is_ready(member))  # noqa: B023

    def _await_server(self, name: str, process: subprocess.Popen[bytes]) -> bool:
        member = self._state.member(name)
        assert member is not None
        if not self._await(name, lambda: is_ready(member), process):
            return False
        self._say(f"{name} is ready on {_HOST}:{member.ports['client']}")
        return True

    def _prepare(self, ports: tuple[int, int]) -> None:
        from geminga.app.storage.cluster_metadata import initialize, point_to
        from geminga.app.storage.core.cluster_options import ClusterOptions

        cluster = self._state.plan.cluster
        broker_url, web_url = f"pulsar://{_HOST}:{ports[0]}", f"http://{_HOST}:{ports[1]}"
        made = initialize(ClusterOptions(cluster, web_url, self.metadata_url, broker_service_url=broker_url))
        if made:
            self._say(f"metadata of cluster {cluster} are set up")
        else:
            asyncio.run(point_to(parse_zookeeper_address(self.metadata_url), cluster, web_url, broker_url))

    # ---- bookies and brokers

    def _bookie(self, name: str) -> _Command:
        data = str(self._directory / name)
        own = {"bookieId": name, "httpServerEnabled": "true", "httpServerPort": "0"}
        # A cluster that is started here heals itself, unless it is told not to.
        settings = {"autoRecoveryDaemonEnabled": "true", **self._state.plan.bookie_settings, **own}
        return self._command(name, ["bookie", "--data", data, "--port", "0"], settings)

    def _broker(self, name: str, first: tuple[int, int]) -> _Command:
        plan = self._state.plan
        ports = first if name == "broker-1" else self._former_ports(name)
        settings = {**plan.quorums(), **plan.broker_settings, "clusterName": plan.cluster}
        given = ["--broker-port", str(ports[0]), "--web-port", str(ports[1])]
        return self._command(name, ["broker", *given], settings)

    def _command(self, name: str, words: list[str], settings: Mapping[str, str]) -> _Command:
        # A command line is read by whoever has an account here, an environment by its owner alone.
        secrets = {ENVIRONMENT_PREFIX + key: value for key, value in settings.items() if names_secret(key)}
        shown = ((key, value) for key, value in settings.items() if not names_secret(key))
        assigned = [part for key, value in shown for part in ("--set", f"{key}={value}")]
        return _Command(name, [*words, "--json", "--metadata", self.metadata_url, *assigned], secrets)

    def _plan_first_broker(self) -> tuple[int, int]:
        """Its ports have to be known before it starts: they are the cluster's URLs."""
        former = self._state.member("broker-1")
        if former is not None and local_processes.is_there(former) and {"broker", "web"} <= former.ports.keys():
            return former.ports["broker"], former.ports["web"]
        plan, recorded = self._state.plan, self._former_ports("broker-1")
        return plan.broker_port or recorded[0] or _free_port(), plan.web_port or recorded[1] or _free_port()

    def _former_ports(self, name: str) -> tuple[int, int]:
        """Those of its last start that are free, else 0."""
        former = self._state.member(name)
        ports = [former.ports.get(key, 0) if former is not None else 0 for key in ("broker", "web")]
        broker, web = (port if port and _is_free(port) else 0 for port in ports)
        return broker, web

    def _missing(self, kind: MemberKind) -> list[str]:
        plan = self._state.plan
        names = member_names(kind, plan.bookies if kind is MemberKind.BOOKIE else plan.brokers)
        return [name for name in names if not self._runs(self._state, name)]

    def _start_kind(self, kind: MemberKind, commands: Sequence[_Command]) -> None:
        """Start them side by side; then wait for those that ran already, too."""
        program = [sys.executable, "-m", "geminga"]
        processes = {
            name: self._launch(name, kind, [*program, *arguments], {}, secrets) for name, arguments, secrets in commands
        }
        for name, process in processes.items():
            if not self._await(name, lambda: self._ready_line(name) is not None, process):  # noqa: B023
                raise UnavailableError(
                    f"{name} did not start: {self._why_ended(name)}; all it said is in {self._log(name)}"
                )
            member = self._state.member(name)
            assert member is not None
            ready = replace(member, ports=_ports(kind, self._ready_line(name) or {}))
            self._record(ready)
            shown = ", ".join(f"{key} {port}" for key, port in ready.ports.items())
            self._say(f"{name} is ready: {shown}")
        for member in self._state.members:
            if member.kind is kind and member.name not in processes:
                self._await(f"{member.name}, which runs already,", lambda: is_ready(member))  # noqa: B023

    def _ready_line(self, name: str) -> dict[str, object] | None:
        try:
            text = self._ready(name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        lines = [line for line in text.splitlines(keepends=True) if line.startswith("{") and line.endswith("\n")]
        found: dict[str, object] | None = json.loads(lines[-1]) if lines else None
        return found

    # ---- processes

    def _runs(self, state: ClusterState, name: str) -> bool:
        member = state.member(name)
        return member is not None and local_processes.is_there(member)

    def _log(self, name: str) -> Path:
        return self._directory / "logs" / f"{name}.log"

    def _ready(self, name: str) -> Path:
        return self._directory / "run" / f"{name}.ready"

    def _launch(
        self,
        name: str,
        kind: MemberKind,
        command: Sequence[str],
        ports: dict[str, int],
        secrets: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        log = self._log(name)
        self._log_ends[name] = log.stat().st_size if log.exists() else 0
        is_ours = kind is not MemberKind.ZOOKEEPER
        ready = self._ready(name) if is_ours else None
        environment = {**os.environ, **secrets} if secrets else None
        launched = local_processes.launch(command, log=log, ready=ready, environment=environment)
        member = LocalMember(name, kind, launched.process.pid, launched.started, ports)
        self.started = [other for other in self.started if other.name != name] + [member]
        self._record(member)
        launched.go()
        return launched.process

    def _record(self, member: LocalMember) -> None:
        self._state = self._state.with_member(member)
        self._save(self._state)

    def _why_ended(self, name: str) -> str:
        said = local_processes.last_paragraph(self._log(name), self._log_ends[name])
        return said.rstrip(".") or "it ended without a word"

    def _await(self, what: str, is_done: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> bool:
        """Wait until ``is_done``; False if ``process`` ended. Raises UnavailableError at the deadline."""
        while True:
            has_ended = process is not None and process.poll() is not None
            if not has_ended and is_done():
                return True
            if has_ended:
                return False
            if time.monotonic() > self._deadline:
                raise UnavailableError(
                    f"{what} did not get ready in time (--timeout); what it said is in {self._directory / 'logs'}"
                )
            time.sleep(local_processes.LOOK_S)


def _server_ports(
    names: Sequence[str], fixed: Mapping[str, Mapping[str, int]], former: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Of each server of ZooKeeper: those that it must have, those that it had and are free, or any; no two the same."""
    kinds = ("client",) if len(names) == 1 else ("client", "follow", "elect")
    given = {(name, kind): fixed.get(name, {}).get(kind, 0) for name in names for kind in kinds}
    taken = set(given.values())
    found: dict[str, dict[str, int]] = {name: {} for name in names}
    for (name, kind), port in given.items():
        had = former.get(name, {}).get(kind, 0)
        port = port or (had if had and had not in taken and _is_free(had) else 0)
        while not port or (port in taken and port != given[name, kind]):
            port = _free_port()
        taken.add(port)
        found[name][kind] = port
    return found


def _ports(kind: MemberKind, ready: dict[str, object]) -> dict[str, int]:
    """From a ready line."""
    if kind is MemberKind.BOOKIE:
        return {"bookie": _number(ready["port"]), "http": _number(ready["httpPort"])}
    urls = {"broker": str(ready["brokerServiceUrl"]), "web": str(ready["webServiceUrl"])}
    return {key: urlsplit(url).port or 0 for key, url in urls.items()}


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def _is_free(port: int) -> bool:
    try:
        with socket.create_server((_HOST, port)):
            return True
    except OSError:
        return False


def _refuse_taken(option: str, port: int) -> None:
    if port and not _is_free(port):
        raise UnavailableError(
            f"{option} {port}: {_HOST}:{port} is in use by another process; expected a free port, or {option} 0 for any"
        )
