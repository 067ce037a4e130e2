"""``BrokerProcess``: ``geminga standalone`` as a process that a test kills, starts again, and gives a full disk."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import IO, Final, Self

from geminga.model.errors import ConfigurationError, LocalError

#: Small files of the journal, so that a disk which is full is seen after a few hundred kilobytes; and a look each
#: second (1000 ms) whether there is room again.
SETTINGS: Final[Mapping[str, object]] = {
    "journalPreAllocSizeMB": 1,
    "journalMaxSizeMB": 4,
    "diskCheckInterval": 1000,
}
#: No file may become longer while the disk is "full": less than one of the journal, more than others need.
FULL_BYTES: Final = 700_000
START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 30.0
#: Waits for the end of its input, which is that of the test's process as well, then ends the broker. A process that is
#: killed can not end its children, and the kernel's signal at a parent's death comes at that of a mere thread.
GUARD: Final = ("sh", "-c", 'read -r _; kill -9 "$0"')
#: Of the log, in the text of an error.
LOG_LINES: Final = 20


class BrokerProcess:
    """One broker on one directory, with the same ports whenever it starts. ``with`` starts it and kills it at the end.

    It ends with the process that started it, however that ends.

    ``data_dir``: where it keeps everything, made if need be; its log is ``data_dir`` with ``.log`` behind. ``config``:
    Pulsar's keys. ``bookies``: bookies in its process (1). ``brokers``: broker processes beside it (0: it is the
    broker itself); they end with it. Raises ConfigurationError for a number that can not be.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        config: Mapping[str, object] | None = None,
        *,
        bookies: int = 1,
        brokers: int = 0,
    ) -> None:
        if bookies < 1 or brokers < 0:
            raise ConfigurationError(f"bookies={bookies}, brokers={brokers}: expected 1 or more, and 0 or more")
        self.data_dir: Final = Path(data_dir)
        #: What the process logs, over all its starts.
        self.log: Final = self.data_dir.with_name(f"{self.data_dir.name}.log")
        self._settings = {**SETTINGS, **(config or {})}
        self._arguments = ["--bookies", f"{bookies}"] if bookies > 1 else []
        self._arguments += ["--brokers", f"{brokers}"] if brokers else []
        self._broker_port = 0
        self._web_port = 0
        self._process: subprocess.Popen[str] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def service_url(self) -> str:
        """``pulsar://127.0.0.1:port`` for clients; the same after every start."""
        return f"pulsar://127.0.0.1:{self._port_of(self._broker_port)}"

    @property
    def web_service_url(self) -> str:
        """``http://127.0.0.1:port`` of the admin REST; the same after every start."""
        return f"http://127.0.0.1:{self._port_of(self._web_port)}"

    @property
    def pid(self) -> int:
        """Of the running process; raises LocalError if none runs."""
        if self._process is None or not self.is_running:
            raise LocalError("the broker is not running: call start()")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        if self._process is not None and self._process.poll() is None:
            return True
        self._dismiss_guard()
        return False

    def start(self) -> Self:
        """Start, wait until it is ready, return self. Raises LocalError if it runs, or ends, or takes over 60 seconds;
        the text has the last lines of its log."""
        if self.is_running:
            raise LocalError("the broker runs already")
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                self._command(), stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True
            )
        lines: SimpleQueue[str] = SimpleQueue()
        assert self._process.stdout is not None
        output = self._process.stdout
        try:
            threading.Thread(target=_read, args=(output, lines), daemon=True, name="geminga-output").start()
            self._guard = subprocess.Popen([*GUARD, f"{self._process.pid}"], stdin=subprocess.PIPE)
            self._take_ports(lines)
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone: nothing is written or said any more. Harmless when it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None  # an end that was asked for is no failure of a later stop()
        self._dismiss_guard()

    def restart(self) -> Self:
        """:meth:`kill`, then :meth:`start` on the same directory and the same ports; raises what that raises."""
        self.kill()
        return self.start()

    def stop(self) -> None:
        """SIGTERM, and wait: a clean stop; nothing behind :meth:`kill`. Raises LocalError if it fails, if the broker
        has ended by itself, and if it takes longer than 30 seconds and is killed."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise LocalError(f"the broker did not stop within {STOP_S_MAX} s\n{self.log_tail()}") from None
        self._dismiss_guard()
        if code:
            raise LocalError(f"the broker ended with exit code {code}\n{self.log_tail()}")

    def fill_disk(self) -> None:
        """From now on its disk is full, as soon as 700,000 bytes more are written at most: what is sent has no receipt,
        and is stored once there is room again, unless its send timeout is over before.

        No file of the process may become longer (``RLIMIT_FSIZE``), so nobody needs to be root and nothing else of the
        machine is touched. Linux only. Raises LocalError if it does not run; what runs beside it (``brokers``) has no
        files.
        """
        self._limit_files(FULL_BYTES)

    def free_disk(self) -> None:
        """There is room again. Raises LocalError if it does not run."""
        self._limit_files(resource.RLIM_INFINITY)

    def log_tail(self, lines: int = LOG_LINES) -> str:
        """The last ``lines`` of its log."""
        if not self.log.exists():
            return ""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-lines:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def _command(self) -> list[str]:
        ports = ["--broker-port", f"{self._broker_port}", "--web-port", f"{self._web_port}"]
        settings = [part for key, value in self._settings.items() for part in ("--set", f"{key}={_text(value)}")]
        program = [sys.executable, "-m", "geminga", "standalone", "--json", "--data", str(self.data_dir)]
        return [*program, *ports, *settings, *self._arguments]

    def _dismiss_guard(self) -> None:
        """The broker is gone; its number may be another process's soon."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def _take_ports(self, lines: SimpleQueue[str]) -> None:
        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise LocalError(f"the broker was not ready within {START_S_MAX} s\n{self.log_tail()}") from None
            if not line:
                raise LocalError(f"the broker ended while it started\n{self.log_tail()}")
            if "brokerServiceUrl" in line:
                break
        ready = json.loads(line)
        self._broker_port = _port(ready["brokerServiceUrl"])
        self._web_port = _port(ready["webServiceUrl"])

    def _limit_files(self, size_bytes: int) -> None:
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))

    @staticmethod
    def _port_of(port: int) -> int:
        if not port:
            raise LocalError("the broker was never started: call start()")
        return port


def _read(stdout: IO[str], lines: SimpleQueue[str]) -> None:
    """All lines, to the end: what is printed later must find somebody who reads."""
    with stdout:
        for line in stdout:
            lines.put(line)
    lines.put("")


def _port(url: str) -> int:
    return int(url.rpartition(":")[2].rstrip("/"))


def _text(value: object) -> str:
    """As in a file of settings."""
    return str(value).lower() if isinstance(value, bool) else str(value)
