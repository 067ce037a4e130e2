"""ZooKeeper, bookies and a broker, each a process of its own on this machine, that fail when told to."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.chaos.plan import BROKER, ZOOKEEPER, Fault, bookie_name
from tools.standalone_process import StandaloneProcess
from tools.zookeeper_server import ZooKeeperServer

START_S: Final = 120.0


class BookieProcess(StandaloneProcess):
    """``geminga bookie`` in a ZooKeeper's cluster."""

    zookeeper = ""
    port = 0

    def command(self) -> list[str]:
        """The command line."""
        program = [sys.executable, "-m", "geminga", "bookie", "--json", "--data", str(self.data)]
        settings = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        return [*program, "--port", str(self.port), "--metadata", self.zookeeper, *settings]

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Wait for the ready line; the port stays what it was."""
        super().wait_ready(timeout_s)
        self.port = int(str(self.ready["port"]))


class BrokerProcess(StandaloneProcess):
    """``geminga broker`` in a ZooKeeper's cluster."""

    zookeeper = ""

    def command(self) -> list[str]:
        """The command line."""
        ports = ["--broker-port", str(self.broker_port), "--web-port", str(self.web_port)]
        program = [sys.executable, "-m", "geminga", "broker", "--json", "--metadata", self.zookeeper]
        return [
            *program,
            *ports,
            *(part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")),
        ]


class Cluster:
    """Made by its caller's directory; :meth:`start`, then :meth:`fail` and :meth:`repair` as often as wanted."""

    def __init__(
        self, directory: Path, *, bookies: int, session_ms: int, broker_settings: Mapping[str, object]
    ) -> None:
        self.directory = directory
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        self._session_ms = session_ms
        self.broker = BrokerProcess(
            directory,
            log=directory / "broker.log",
            settings={"metadataStoreSessionTimeoutMillis": session_ms, **broker_settings},
        )
        self.bookies = {
            bookie_name(number): BookieProcess(
                directory / bookie_name(number),
                log=directory / f"{bookie_name(number)}.log",
                settings={"zkTimeout": session_ms},
            )
            for number in range(bookies)
        }

    def start(self) -> None:
        """All of them; raises StartError."""
        self.zookeeper.start()
        for process in (*self.bookies.values(), self.broker):
            process.zookeeper = f"zk:{self.zookeeper.hosts}"
            process.launch()
        for process in (*self.bookies.values(), self.broker):
            process.wait_ready(START_S)

    def fail(self, fault: Fault) -> None:
        """Kill or pause it."""
        if fault.kind == "pause":
            os.kill(self._pid(fault.who), signal.SIGSTOP)
        elif fault.who == ZOOKEEPER:
            self.zookeeper.kill()
        else:
            self._process(fault.who).kill()

    def repair(self, fault: Fault) -> None:
        """Start it again, or let it go on. One that ended meanwhile, as who lost its session may, is started again."""
        if fault.kind == "pause":
            os.kill(self._pid(fault.who), signal.SIGCONT)
        elif fault.who == ZOOKEEPER:
            self.zookeeper.start()
        else:
            process = self._process(fault.who)
            process.launch()
            process.wait_ready(START_S)
        for process in (*self.bookies.values(), self.broker):
            if not process.is_running:
                process.launch()
                process.wait_ready(START_S)

    def close(self) -> None:
        """kill -9 for everybody."""
        for process in (self.broker, *self.bookies.values()):
            if process.is_running:
                os.kill(process.pid, signal.SIGCONT)
            process.kill()
        self.zookeeper.kill()

    def _process(self, who: str) -> StandaloneProcess:
        return self.broker if who == BROKER else self.bookies[who]

    def _pid(self, who: str) -> int:
        if who == ZOOKEEPER:
            assert self.zookeeper.process is not None
            return self.zookeeper.process.pid
        return self._process(who).pid
