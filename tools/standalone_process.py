"""``geminga standalone`` as a process of its own: start, ready line, kill -9, clean stop, memory and CPU.

Shared by demo, bench, conformance and integration tests. Ports are the kernel's choice at the first start and stay
the same afterwards, so that a client finds a restarted broker again.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import IO, TYPE_CHECKING, ClassVar, Protocol, Self

if TYPE_CHECKING:
    from tools.warm_process import WarmStarts

ROOT = Path(__file__).resolve().parents[1]
_TICKS = os.sysconf("SC_CLK_TCK")


class StartError(Exception):
    """The process ended, or did not say in time that it is ready; the text ends with its last log lines."""


class Process(Protocol):
    """What is used of a ``subprocess.Popen``, for a process that was started in another way too."""

    stdout: IO[str] | None

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def communicate(self, *, timeout: float | None = None) -> tuple[str, str]: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int) -> None: ...
    def kill(self) -> None: ...


class StandaloneProcess:
    """One standalone on one data directory, started as often as wanted."""

    #: Of the tests (:mod:`tools.warm_process`); None: programs are started as users start them.
    warm_starts: ClassVar[WarmStarts | None] = None

    def __init__(
        self,
        data: Path,
        *,
        log: Path,
        settings: Mapping[str, object] | None = None,
        arguments: Sequence[str] = (),
        broker_port: int = 0,
        web_port: int = 0,
        before_exec: Callable[[], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.log = log
        self.settings = dict(settings or {})
        self.arguments = list(arguments)
        self.broker_port = broker_port
        self.web_port = web_port
        self.before_exec = before_exec
        self.environment = dict(environment or {})
        #: What each request to the web service says besides: a token, where somebody asks.
        self.headers: dict[str, str] = {}
        #: How it is asked; None: without TLS.
        self.web_tls: ssl.SSLContext | None = None
        self.process: Process | None = None
        #: The last ready line.
        self.ready: dict[str, object] = {}
        #: From exec to the ready line, as seen from here, for every start.
        self.start_seconds: list[float] = []
        self.started_at = 0.0
        self._lines: SimpleQueue[str] = SimpleQueue()

    @property
    def service_url(self) -> str:
        """``pulsar://...`` for clients."""
        return f"pulsar://127.0.0.1:{self.reached(self.broker_port)}"

    @property
    def web_url(self) -> str:
        """``http://...`` for administration."""
        return f"http://127.0.0.1:{self.reached(self.web_port)}"

    def reached(self, port: int) -> int:
        """By which port of this machine one of the process's is reached."""
        return port

    @property
    def tls_url(self) -> str:
        """For clients, where its port with TLS is a fixed one."""
        return f"pulsar+ssl://127.0.0.1:{self.settings['brokerServicePortTls']}"

    @property
    def web_tls_url(self) -> str:
        """The same of administration."""
        return f"https://127.0.0.1:{self.settings['webServicePortTls']}"

    @property
    def web_service_url(self) -> str:
        """The same, as an embedded ``geminga.Standalone`` calls it."""
        return self.web_url

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self.process is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def command(self) -> list[str]:
        """The command line."""
        ports = ["--broker-port", str(self.broker_port), "--web-port", str(self.web_port)]
        settings = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        program = [sys.executable, "-m", "geminga", "standalone", "--json", "--data", str(self.data)]
        return [*program, *ports, *settings, *self.arguments]

    def start(self, timeout_s: float = 60.0) -> None:
        """Start and wait for the ready line."""
        self.launch()
        self.wait_ready(timeout_s)

    def launch(self) -> None:
        """Start, and do not wait."""
        assert not self.is_running
        log = self.log.open("a", encoding="utf-8")
        self._lines = SimpleQueue()
        source = str(ROOT / "src")
        inherited = os.environ.get("PYTHONPATH")
        environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{inherited}" if inherited else source}
        environment |= self.environment
        self.started_at = time.perf_counter()
        self.process = started(self.command(), log, environment, self.before_exec)
        log.close()
        threading.Thread(target=self._read, args=(self.process, self._lines), daemon=True).start()

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait for the ready line of a launched process; one that does not come up is killed."""
        try:
            self._await_ready(timeout_s)
        except StartError:
            self.kill()
            raise
        self.start_seconds.append(time.perf_counter() - self.started_at)

    @staticmethod
    def _read(process: Process, lines: SimpleQueue[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines.put(line)
        lines.put("")

    def _await_ready(self, timeout_s: float) -> None:
        lines = self._lines
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise StartError(f"no ready line within {timeout_s} s\n{self.log_tail()}") from None
            if not line:
                code = self.process.wait() if self.process is not None else None
                raise StartError(f"the broker ended with exit code {code}\n{self.log_tail()}")
            if line.lstrip().startswith("{"):
                self.ready = json.loads(line)
                break
        for value in self.ready.values():
            if isinstance(value, str) and value.startswith("pulsar://"):
                self.broker_port = int(value.rsplit(":", 1)[1].rstrip("/"))
            elif isinstance(value, str) and value.startswith("http://"):
                self.web_port = int(value.rsplit(":", 1)[1].rstrip("/"))

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, and wait; the exit code. Killed if it takes longer (and then -9)."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def rss_bytes(self) -> int:
        """Resident memory now."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ProcessLookupError(self.pid)

    def cpu_seconds(self) -> float:
        """CPU time used so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def request(self, method: str, path: str, body: object = None, timeout_s: float = 30.0) -> bytes:
        """One HTTP request to the web service; raises ``urllib.error.HTTPError``."""
        data = None if body is None else json.dumps(body).encode()
        base = self.web_url if self.web_tls is None else self.web_tls_url
        request = urllib.request.Request(base + path, data=data, method=method)
        for name, value in {"Content-Type": "application/json", **self.headers}.items():
            request.add_header(name, value)
        with urllib.request.urlopen(request, timeout=timeout_s, context=self.web_tls) as answer:
            content: bytes = answer.read()
            return content

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def started(
    command: Sequence[str],
    log: IO[str],
    environment: Mapping[str, str] | None = None,
    before_exec: Callable[[], None] | None = None,
) -> Process:
    """A process whose standard output is a pipe and whose errors go to ``log``; warm where it can be."""
    given = os.environ if environment is None else environment
    if StandaloneProcess.warm_starts is not None and before_exec is None:
        process = StandaloneProcess.warm_starts.start(command, stderr=log, env=given)
        if process is not None:
            return process
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=given, preexec_fn=before_exec)
