"""Apache Pulsar's standalone as a process: broker, RocksDB metadata and one bookie in one Java process.

The same handle as that of ``geminga standalone``, so that one test is judged by both. Ports are the kernel's choice at
the first start and stay the same afterwards. The process dies with the one that started it, whatever happens to that.
"""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import time
import urllib.error
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tools.free_ports import free_ports
from tools.interop.artifacts import HERE, class_path, java, judge_version
from tools.standalone_process import StandaloneProcess, StartError

#: A start takes some ten seconds on two idle cores.
START_LIMIT_S: Final = 120.0
#: Seconds between two questions whether it is ready.
ASK_AGAIN_S: Final = 0.2
#: Old space and direct memory: small, as tests are.
MEMORY: Final = ["-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m"]
#: Packages that Netty and BookKeeper open by reflection.
OPENS: Final = [
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/sun.net",
    "java.management/sun.management",
]
_DRIVERS: Final = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
_SYSTEM_PROPERTIES: Final = {
    "log4j2.configurationFile": str(HERE / "log4j2.xml"),
    "io.netty.tryReflectionSetAccessible": "true",
    "java.net.preferIPv4Stack": "true",
    "bookkeeper.metadata.bookie.drivers": f"{_DRIVERS}BookieDriver",
    "bookkeeper.metadata.client.drivers": f"{_DRIVERS}ClientDriver",
}
_PR_SET_PDEATHSIG: Final = 1
#: The kernel ends a child with the thread that made it: one thread makes them all, and lives until the end.
_LAUNCHER: Final = ThreadPoolExecutor(1, "apache-standalone")


def die_with_parent() -> None:
    """To be called in a child before it executes: the kernel kills it when the thread that made it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ApacheStandalone(StandaloneProcess):
    """Apache's standalone on one data directory, started as often as wanted."""

    def __init__(
        self,
        data: Path,
        *,
        log: Path,
        version: str = "",
        settings: Mapping[str, object] | None = None,
        memory: Sequence[str] = MEMORY,
    ) -> None:
        super().__init__(data, log=log, before_exec=die_with_parent, settings=settings)
        self.version = version or judge_version()
        self.memory = list(memory)
        self._bookie_port = 0

    def program(self) -> list[str]:
        """Java with what Pulsar needs, and the class that it runs."""
        opens = [part for name in OPENS for part in ("--add-opens", f"{name}=ALL-UNNAMED")]
        properties = [f"-D{name}={value}" for name, value in _SYSTEM_PROPERTIES.items()]
        program = [java(), *self.memory, *opens, *properties, "-cp", self.class_path()]
        return [*program, "org.apache.pulsar.PulsarStandaloneStarter"]

    def class_path(self) -> str:
        """Of its version."""
        return class_path(self.version)

    def command(self) -> list[str]:
        """The command line."""
        directories = ["--metadata-dir", str(self.data / "metadata"), "--bookkeeper-dir", str(self.data / "bookie")]
        parts = ["--no-functions-worker", "--no-stream-storage", "--bookkeeper-port", str(self._bookie_port)]
        config = ["--config", str(self.data / "standalone.conf")]
        return [*self.program(), *config, *directories, *parts]

    def launch(self) -> None:
        """Start, and do not wait."""
        assert not self.is_running
        if not self.broker_port:
            self.broker_port, self.web_port, self._bookie_port = free_ports(3)
        self.data.mkdir(parents=True, exist_ok=True)
        lines = [(HERE / "standalone.conf").read_text(encoding="utf-8")]
        lines += [f"brokerServicePort={self.broker_port}\n", f"webServicePort={self.web_port}\n"]
        lines += [f"{key}={value}\n" for key, value in self.settings.items()]
        (self.data / "standalone.conf").write_text("".join(lines), encoding="utf-8")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = self.command()
        self.started_at = time.perf_counter()
        self.process = _LAUNCHER.submit(self._spawn, command).result()

    def _spawn(self, command: list[str]) -> subprocess.Popen[str]:
        with self.log.open("a", encoding="utf-8") as log:
            return subprocess.Popen(
                command, cwd=self.data, stdout=log, stderr=log, text=True, preexec_fn=self.before_exec
            )

    def start(self, timeout_s: float = START_LIMIT_S) -> None:
        """Start and wait until it is healthy."""
        super().start(timeout_s)

    def _await_ready(self, timeout_s: float) -> None:
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while not self._is_healthy():
            if time.monotonic() > deadline:
                raise StartError(f"not healthy within {timeout_s} s\n{self.log_tail()}")
            try:
                code = self.process.wait(ASK_AGAIN_S)
            except subprocess.TimeoutExpired:
                continue
            raise StartError(f"the broker ended with exit code {code}\n{self.log_tail()}")

    def _is_healthy(self) -> bool:
        """Its health check (a message through a topic) passes, and the namespace that tests use is there."""
        try:
            healthy = self.request("GET", "/admin/v2/brokers/health") == b"ok"
            return healthy and "public/default" in json.loads(self.request("GET", "/admin/v2/namespaces/public"))
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def told_version(self) -> str:
        """What the broker itself says it is."""
        return self.request("GET", "/admin/v2/brokers/version").decode()
