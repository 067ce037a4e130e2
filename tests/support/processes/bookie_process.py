"""``geminga bookie`` as a process of its own: start, ready line, kill -9, clean stop; and clients of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.standalone_process import Process, started


class BookieProcess:
    """One bookie on one data directory, started as often as wanted, on the same port."""

    def __init__(self, data: Path, *arguments: str, port: int = 0) -> None:
        self.data = data
        self.arguments = arguments
        self.port = port
        self.ready: dict[str, Any] = {}
        self.process: Process | None = None
        self.log = data.parent / f"{data.name}.log"

    @property
    def bookie_id(self) -> str:
        return str(self.ready["bookieId"])

    def start(self) -> None:
        """Start, and wait for the ready line."""
        with self.log.open("a", encoding="utf-8") as log:
            self.process = started(self.command(["--json", "--port", str(self.port)]), log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.communicate()
            raise AssertionError(self.errors())
        self.ready = json.loads(line)
        self.port = self.ready["port"]

    def command(self, more: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "geminga", "bookie", "--data", str(self.data), *more, *self.arguments]

    def refused(self, *more: str) -> str:
        """What a start says that ends by itself, with exit code 1 and one line without a traceback."""
        ended = subprocess.run(self.command(more), capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 1, ended.stderr
        assert "Traceback" not in ended.stderr
        (line,) = [line for line in ended.stderr.splitlines() if line.startswith("geminga: ")]
        return line

    def errors(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None
