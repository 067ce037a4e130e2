"""The servers that are compared, each a process on a directory of its own that dies with this one; all durable."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.interop.apache_standalone import ApacheStandalone, die_with_parent, free_ports
from tools.interop.artifacts import ToolError, class_path, pinned_version
from tools.standalone_process import ROOT, StandaloneProcess, StartError

from bench.peers.rows import NATS, PULSAR, REDIS
from bench.servers import Bench, BenchError

GEMINGA: Final = "geminga"
#: How long a server may take until it is ready.
START_LIMIT_S: Final = 120.0
#: What both brokers are told; everything else is each one's default.
BOTH: Final = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "delayedDeliveryTickTimeMillis": "100",
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    "activeConsumerFailoverDelayTimeMillis": "100",
}
#: Apache's storage as its own standalone.conf has it, but for the sync, which that file leaves out.
APACHE_STORAGE: Final = {
    "journalSyncData": "true",
    "journalWriteData": "true",
    "journalMaxGroupWaitMSec": "1",
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "flushInterval": "60000",
}
#: As its own start script gives it.
APACHE_MEMORY: Final = ["-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g"]
ASK_AGAIN_S: Final = 0.01


class OtherServer(StandaloneProcess):
    """Redis or NATS: a program with a port, ready once it takes connections."""

    def __init__(self, kind: str, program: str, data: Path, log: Path) -> None:
        super().__init__(data, log=log, before_exec=die_with_parent)
        self.kind = kind
        self.program = program

    @property
    def service_url(self) -> str:
        """Where its client connects to."""
        address = f"127.0.0.1:{self.broker_port}"
        return address if self.kind == REDIS else f"nats://{address}"

    def command(self) -> list[str]:
        """The command line; each message is synced before its answer."""
        if self.kind == REDIS:
            durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
            address = ["--bind", "127.0.0.1", "--port", str(self.broker_port)]
            return [self.program, *address, "--dir", str(self.data), *durable]
        config = self.data / "nats.conf"
        store = f'jetstream {{ store_dir: "{self.data}", sync_interval: always }}\n'
        config.write_text(f"listen: 127.0.0.1:{self.broker_port}\n{store}", encoding="utf-8")
        return [self.program, "-c", str(config)]

    def launch(self) -> None:
        """Start, and do not wait."""
        (self.broker_port,) = free_ports(1)
        self.data.mkdir(parents=True, exist_ok=True)
        super().launch()

    def _await_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.broker_port), timeout=1.0).close()
                return
            except OSError:
                if time.monotonic() > deadline or not self.is_running:
                    raise BenchError(f"{self.kind} does not start:\n{self.log_tail()}") from None
                time.sleep(ASK_AGAIN_S)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A server that can be started: its title for the table, and how to make one."""

    name: str
    title: str
    #: Reasons why it cannot be measured here; empty if it can.
    missing: str = ""
    program: str = ""

    def make(
        self,
        bench: Bench,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        *,
        also: Mapping[str, str] | None = None,
    ) -> StandaloneProcess:
        """One on ``directory``, not started; ``also``: settings of a broker, beside those that all of them have."""
        directory.mkdir(parents=True)
        data, log = directory / "data", directory / "log"
        if self.name == PULSAR:
            settings = {**BOTH, **APACHE_STORAGE, **(also or {})}
            return ApacheStandalone(data, log=log, settings=settings, memory=APACHE_MEMORY)
        if self.name == GEMINGA:
            settings = {"gemingaEventLoop": bench.loop, **BOTH, **(also or {}), **bench.settings}
            told = {"PYTHONPATH": str(bench.source), **(environment or {})}
            return StandaloneProcess(data, log=log, settings=settings, before_exec=die_with_parent, environment=told)
        return OtherServer(self.name, self.program, data, log)

    @contextmanager
    def started(
        self, bench: Bench, *, also: Mapping[str, str] | None = None, limit_s: float = START_LIMIT_S
    ) -> Iterator[StandaloneProcess]:
        """One that is ready, on a directory that goes with it; ``also``: as for :meth:`make`. Raises BenchError."""
        with bench.directory(self.name) as directory:
            server = self.make(bench, directory / "server", also=also)
            try:
                server.start(limit_s)
                yield server
            except StartError as error:
                raise BenchError(f"{self.title}: {error}") from None
            finally:
                server.kill()


def find_kinds() -> dict[str, Kind]:
    """All servers, with what is missing of those that are not here."""
    try:
        class_path(pinned_version())
        apache = Kind(PULSAR, f"Pulsar {pinned_version()}")
    except ToolError as error:
        apache = Kind(PULSAR, "Pulsar", missing=str(error))
    return {
        GEMINGA: Kind(GEMINGA, "Geminga"),
        PULSAR: apache,
        REDIS: _program(REDIS, "Redis", "redis-server", "install Redis"),
        NATS: _program(
            NATS, "NATS", "nats-server", "go install github.com/nats-io/nats-server/v2@v2.15.2", Path.home() / "go/bin"
        ),
    }


def _program(name: str, title: str, program: str, remedy: str, also: Path | None = None) -> Kind:
    found = shutil.which(program) or (shutil.which(program, path=also) if also else None)
    if found is None:
        return Kind(name, title, missing=f"{program} is not here: {remedy}")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v=?(\d+\.\d+\.\d+)", told)
    return Kind(name, f"{title} {version[1]}" if version else title, program=found)


def build_load() -> Path:
    """The load's program; raises BenchError."""
    go = shutil.which("go")
    if go is None:
        raise BenchError("go is not here: the load is a program on the official Go client; install Go 1.26 or newer")
    program = ROOT / "build" / "peers-load"
    program.parent.mkdir(exist_ok=True)
    folder = Path(__file__).resolve().parent / "load"
    done = subprocess.run([go, "build", "-o", str(program), "."], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"the load does not build:\n{(done.stdout + done.stderr)[-2000:]}")
    return program


def sampling(bench: Bench, file: Path) -> dict[str, str]:
    """The environment in which Geminga writes to ``file`` where its processor time went."""
    folder = Path(__file__).resolve().parent / "sampled"
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(bench.source)]), "BENCH_SAMPLES": str(file)}


def machine() -> str:
    """What the figures were seen on."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace"))
    return f"{os.cpu_count()} x {model[1] if model else 'CPU'}, Python {sys.version.split()[0]}"
