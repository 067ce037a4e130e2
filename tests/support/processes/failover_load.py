"""The official Java client as a process that publishes, and who tells it which cluster to use."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final

from tools.interop.apache_standalone import die_with_parent
from tools.interop.artifacts import HERE, class_path, java, pinned_version

from support.house.waiting import until
from support.processes.web_answers import Answering, Served

SOURCE: Final = Path(__file__).parents[2] / "interop" / "java" / "FailoverLoad.java"
LIMIT_S: Final = 60.0


class JavaLoad:
    """One client, as a process."""

    def __init__(self, *arguments: str) -> None:
        program = [java(), "-Xmx256m", f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"]
        program += ["-cp", class_path(pinned_version()), str(SOURCE), *arguments]
        self.receipts: list[tuple[int, float]] = []
        self.process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("A "):
                self.receipts.append((int(line[2:]), time.monotonic()))

    def until_receipts(self, count: int) -> float:
        """Without a receipt, until so many more have come."""
        before = len(self.receipts)
        until(lambda: len(self.receipts) >= before + count, "receipts", LIMIT_S)
        times = [at_s for _, at_s in self.receipts[max(0, before - 1) :]]
        return max(after_s - at_s for at_s, after_s in itertools.pairwise(times))

    def end(self) -> set[str]:
        """What was answered."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return {str(number) for number, _ in self.receipts}


@contextmanager
def told(choice: dict[str, str]) -> Iterator[str]:
    """The URL at which the controlled provider asks which cluster is to be used."""

    class Answers(Answering):
        def do_GET(self) -> None:
            self.answer(json.dumps(choice).encode())

    with Served(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as server:
        yield server.url
