"""ZooKeeper, bookies and brokers, each a process of its own on this machine, that fail when told to."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from geminga.app.configuration.core.log_options import TEXT
from tools.chaos.plan import (
    ZOOKEEPER,
    ZOOKEEPER_LEADER,
    ZOOKEEPER_QUORUM,
    Fault,
    bookie_name,
    broker_name,
    zookeeper_name,
)
from tools.free_ports import free_ports
from tools.standalone_process import StandaloneProcess
from tools.zookeeper_quorum import ZooKeeperQuorum
from tools.zookeeper_server import ZooKeeperServer

if TYPE_CHECKING:
    from tools.chaos.secured import Security

START_S: Final = 120.0


class BookieProcess(StandaloneProcess):
    """``geminga bookie`` in a ZooKeeper's cluster."""

    zookeeper = ""
    port = 0
    #: Of its log; "text": as every program has it.
    log_format = TEXT

    def command(self) -> list[str]:
        """The command line."""
        program = [sys.executable, "-m", "geminga", "bookie", "--json", "--data", str(self.data)]
        settings = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        return [
            *program,
            *("--port", str(self.port), "--metadata", self.zookeeper, "--log-format", self.log_format),
            *settings,
        ]

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Wait for the ready line; the port stays what it was."""
        super().wait_ready(timeout_s)
        self.port = int(str(self.ready["port"]))


class BrokerProcess(StandaloneProcess):
    """``geminga broker`` in a ZooKeeper's cluster."""

    zookeeper = ""
    log_format = TEXT

    def command(self) -> list[str]:
        """The command line."""
        ports = ["--broker-port", str(self.broker_port), "--web-port", str(self.web_port)]
        if self.settings.get("brokerServicePort") == "":
            ports = []
        program = [sys.executable, "-m", "geminga", "broker", "--json", "--metadata", self.zookeeper]
        return [
            *program,
            *ports,
            *("--log-format", self.log_format),
            *(part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")),
        ]


class AutoRecoveryProcess(StandaloneProcess):
    """``geminga autorecovery`` in a ZooKeeper's cluster."""

    zookeeper = ""

    def command(self) -> list[str]:
        """The command line."""
        program = [sys.executable, "-m", "geminga", "autorecovery", "--json", "--metadata", self.zookeeper]
        return [*program, *(part for key, value in self.settings.items() for part in ("--set", f"{key}={value}"))]


class Cluster:
    """Made by its caller's directory; :meth:`start`, then :meth:`fail` and :meth:`repair` as often as wanted."""

    def __init__(
        self,
        directory: Path,
        *,
        bookies: int,
        session_ms: int,
        broker_settings: Mapping[str, object],
        brokers: int = 1,
        zookeepers: int = 1,
        bookie_settings: Mapping[str, object] | None = None,
        sync: bool = False,
        security: Security | None = None,
        log_format: str = TEXT,
    ) -> None:
        """``sync``: ZooKeeper's log reaches the disk as well, as in earnest. ``security``: TLS on every link.

        ``log_format``: of brokers and bookies.
        """
        self._log_format = log_format
        self.directory = directory
        self.security = security
        tls = None if security is None else security.zookeeper
        self.zookeeper = ZooKeeperQuorum(directory / "zookeeper", zookeepers, sync=sync, tls=tls)
        self._zookeepers = {zookeeper_name(number): server for number, server in enumerate(self.zookeeper.servers)}
        #: Of a fault of ZooKeeper's that lasts, whom it met.
        self._away: list[ZooKeeperServer] = []
        self._session_ms = session_ms
        self._bookie_settings = dict(bookie_settings or {})
        self._broker_settings = {"metadataStoreSessionTimeoutMillis": session_ms, **broker_settings}
        self.brokers = {broker_name(number): self._broker(broker_name(number)) for number in range(brokers)}
        #: The first of them.
        self.broker = self.brokers[broker_name(0)]
        self.bookies = {bookie_name(number): self._bookie(bookie_name(number)) for number in range(bookies)}
        #: Where somebody asked for it.
        self.autorecovery: AutoRecoveryProcess | None = None

    @property
    def metadata_uri(self) -> str:
        """As every process of the cluster is told it."""
        return f"zk:{self.zookeeper.hosts if self.security is None else self.zookeeper.secure_hosts}"

    @property
    def logs(self) -> list[Path]:
        """Of brokers and bookies."""
        return [process.log for process in (*self.brokers.values(), *self.bookies.values())]

    @property
    def service_url(self) -> str:
        """Of all brokers, for clients."""
        brokers = self.brokers.values()
        if self.security is not None:
            return "pulsar+ssl://" + ",".join(broker.tls_url.removeprefix("pulsar+ssl://") for broker in brokers)
        return "pulsar://" + ",".join(f"127.0.0.1:{broker.broker_port}" for broker in brokers)

    def _broker(self, name: str) -> BrokerProcess:
        settings = dict(self._broker_settings)
        if self.security is not None:
            web, binary = free_ports(2)
            settings |= {
                **self.security.broker_settings(name),
                "webServicePortTls": web,
                "brokerServicePortTls": binary,
            }
        process = BrokerProcess(self.directory, log=self.directory / f"{name}.log", settings=settings)
        process.log_format = self._log_format
        return process

    def _bookie(self, name: str) -> BookieProcess:
        secured = {} if self.security is None else self.security.bookie_settings(name)
        settings = {"zkTimeout": self._session_ms, **self._bookie_settings, **secured}
        process = BookieProcess(self.directory / name, log=self.directory / f"{name}.log", settings=settings)
        process.log_format = self._log_format
        return process

    def start(self, *, is_whole: bool = True) -> None:
        """All of them, or one broker for now; raises StartError."""
        self.zookeeper.start()
        # One broker makes what the cluster begins with, the others find it.
        self._start([*self.bookies.values(), self.broker])
        if self.security is not None:
            self.security.grant(self.broker.web_tls_url)
        if is_whole:
            self.start_rest()

    def start_rest(self) -> None:
        """The brokers but the first."""
        self._start([*self.brokers.values()][1:])

    def _start(self, group: Sequence[BookieProcess | BrokerProcess]) -> None:
        for process in group:
            process.zookeeper = self.metadata_uri
            process.launch()
        for process in group:
            process.wait_ready(START_S)

    def join(self) -> BookieProcess:
        """One more bookie, with an empty directory."""
        name = bookie_name(len(self.bookies))
        process = self.bookies[name] = self._bookie(name)
        process.zookeeper = self.metadata_uri
        process.start(START_S)
        return process

    def start_autorecovery(self, settings: Mapping[str, object]) -> AutoRecoveryProcess:
        """Beside the bookies, as a process of its own."""
        self.autorecovery = AutoRecoveryProcess(
            self.directory,
            log=self.directory / "autorecovery.log",
            settings={"zkTimeout": self._session_ms, **settings},
        )
        self.autorecovery.zookeeper = self.metadata_uri
        self.autorecovery.start(START_S)
        return self.autorecovery

    def fail(self, fault: Fault) -> None:
        """Kill or pause it."""
        if fault.who.startswith(ZOOKEEPER):
            self._away = self._servers(fault.who)
            for server in self._away:
                server.pause() if fault.kind == "pause" else server.kill()
        elif fault.kind == "pause":
            os.kill(self._process(fault.who).pid, signal.SIGSTOP)
        else:
            self._process(fault.who).kill()

    def repair(self, fault: Fault) -> None:
        """Start it again, or let it go on. One that ended meanwhile, as who lost its session may, is started again."""
        if fault.who.startswith(ZOOKEEPER):
            self._repair_zookeeper(fault)
        elif fault.kind == "pause":
            os.kill(self._process(fault.who).pid, signal.SIGCONT)
        else:
            process = self._process(fault.who)
            process.launch()
            process.wait_ready(START_S)
        self.start_gone()

    def start_gone(self) -> None:
        """Bookies and brokers that are not there."""
        for process in (*self.bookies.values(), *self.brokers.values()):
            if not process.is_running:
                process.launch()
                process.wait_ready(START_S)

    def _repair_zookeeper(self, fault: Fault) -> None:
        for server in self._away:
            if fault.kind == "pause":
                server.resume()
            else:
                server.launch()
        self._away = []
        self.zookeeper.wait_served()

    def _servers(self, who: str) -> list[ZooKeeperServer]:
        """Whom a fault of ZooKeeper's means now."""
        if who not in (ZOOKEEPER_LEADER, ZOOKEEPER_QUORUM):
            return [self._zookeepers[who]]
        leader = self.zookeeper.leader()
        # Without one for a moment, as after an election that goes on, anybody will do.
        first = leader or self.zookeeper.servers[0]
        count = 1 if who == ZOOKEEPER_LEADER else self.zookeeper.majority
        return [first, *(server for server in self.zookeeper.servers if server is not first)][:count]

    def close(self) -> None:
        """kill -9 for everybody."""
        beside = () if self.autorecovery is None else (self.autorecovery,)
        for process in (*self.brokers.values(), *beside, *self.bookies.values()):
            if process.is_running:
                os.kill(process.pid, signal.SIGCONT)
            process.kill()
        self.zookeeper.kill()

    def _process(self, who: str) -> StandaloneProcess:
        return self.brokers[who] if who in self.brokers else self.bookies[who]
