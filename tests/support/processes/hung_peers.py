"""Loads that go on while a peer hangs, and what it costs in memory: for ``test_hung_peers.py``.

A process that is watched may have grown by so much, after the first sixth of the time, and not more: what is held for
a peer that takes nothing is bounded, and the bound is reached early.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Final, NamedTuple, Self

import pulsar

from support.processes.official import quiet_client

MIB: Final = 1 << 20
#: Of each message of a load, bytes.
MESSAGE_BYTES: Final = MIB
#: What a load asks for, and what must come of it, bytes a second; ``make test-long``, beside whatever the machine does
#: else, asks for less: there memory is judged, and that messages flow.
ASKED_BYTES_S: Final = 24_000_000
RATE_BYTES_S_MIN: Final = float(os.environ.get("HUNG_MB_S", "20")) * 1e6
GROWTH_BYTES_MAX: Final = 64 * MIB
#: This part of the time, each process may take what it needs.
WARM_PART: Final = 6
LOOK_S: Final = 0.25


class Load:
    """Threads that do the same again and again until they are told to stop; what fails is done again."""

    def __init__(self, work: Callable[[], None], threads: int = 1, *, pause_s: float = 0.01) -> None:
        self._work = work
        self._pause_s = pause_s
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]
        self.is_over = threading.Event()
        #: How often it was done, and how often it failed.
        self.done = 0
        self.failed = 0

    def _run(self) -> None:
        while not self.is_over.is_set():
            try:
                self._work()
                self.done += 1
                self.is_over.wait(self._pause_s)
            except (OSError, HTTPException, pulsar.PulsarException, AssertionError):
                self.failed += 1
                self.is_over.wait(self._pause_s)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join(30)

    @property
    def size_bytes(self) -> int:
        """What was stored for it."""
        return 0


class Publishing(Load):
    """The official client at :data:`ASKED_BYTES_S`, or as fast as it gets receipts."""

    def __init__(self, url: str, directory: Path, topics: Sequence[str], *, bytes_s: int = ASKED_BYTES_S) -> None:
        super().__init__(self._send, 1, pause_s=0)
        # Who sends to several brokers is not kept from one by the other.
        self._clients = [quiet_client(url, directory) for _ in topics]
        self._producers = [
            client.create_producer(
                topic, batching_enabled=False, block_if_queue_full=True, max_pending_messages=32, send_timeout_millis=0
            )
            for client, topic in zip(self._clients, topics, strict=True)
        ]
        self._payload = os.urandom(MESSAGE_BYTES)
        self._bytes_s = bytes_s
        self._began = 0.0
        self._sent = 0
        self._stored = 0

    def _send(self) -> None:
        self._began = self._began or time.monotonic()
        early_s = self._began + self._sent * MESSAGE_BYTES / self._bytes_s - time.monotonic()
        if early_s > 0:
            self.is_over.wait(early_s)
        elif early_s < -1:
            # What was missed in a stall is not made up for at once.
            self._began -= early_s
        self._producers[self._sent % len(self._producers)].send_async(self._payload, self._receipt)
        self._sent += 1

    def _receipt(self, result: pulsar.Result, _: object) -> None:
        if result == pulsar.Result.Ok:
            self._stored += MESSAGE_BYTES

    @property
    def size_bytes(self) -> int:
        """With receipts."""
        return self._stored

    def __exit__(self, *_: object) -> None:
        # A send that waits for a broker that hangs never ends: its thread goes with the process.
        self.is_over.set()


class Soaked(NamedTuple):
    """What was seen."""

    link: str
    seconds: float
    #: That got receipts, a second; 0: of a link without messages.
    bytes_s: float
    #: What other loads did, and how often it failed.
    done: int
    failed: int
    #: By process: at the end of the warm part, and how much it had grown at most since.
    before: dict[str, int]
    grown: dict[str, int]
    #: MiB at the end of each sixth.
    series: dict[str, list[int]]
    #: Processes that ended by themselves.
    ended: list[str]

    def check(self, *, flows: bool) -> None:
        """AssertionError if a process grew too much, or too little went through."""
        assert all(grown <= GROWTH_BYTES_MAX for grown in self.grown.values()), str(self)
        assert not self.ended, str(self)
        if flows:
            assert self.bytes_s >= RATE_BYTES_S_MIN, str(self)

    def __str__(self) -> str:
        memory = ", ".join(
            f"{name} {self.before[name] >> 20} MiB {grown / MIB:+.1f} {self.series[name]}"
            for name, grown in self.grown.items()
        )
        rate = f"{self.bytes_s / 1e6:.1f} MB/s, " if self.bytes_s else ""
        ended = f"; ended: {', '.join(self.ended)}" if self.ended else ""
        return f"{self.link}: {self.seconds:.0f} s, {rate}{self.done} done, {self.failed} failed; {memory}{ended}"


def rss_bytes(pid: int) -> int:
    """Resident memory; ProcessLookupError of one that is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def soak(
    link: str, watched: Mapping[str, int], seconds: float, *, messages: Load | None = None, others: Sequence[Load] = ()
) -> Soaked:
    """Look at processes, by name, for so long while loads go on, which have begun."""
    pause = threading.Event()
    began = time.monotonic()
    first_bytes = messages.size_bytes if messages is not None else 0
    before: dict[str, int] = {}
    grown: dict[str, int] = {}
    series: dict[str, list[int]] = {name: [] for name in watched}
    ended: list[str] = []
    while (now_s := time.monotonic() - began) < seconds:
        for name, pid in watched.items():
            if name in ended:
                continue
            try:
                rss = rss_bytes(pid)
            except ProcessLookupError:
                ended.append(name)
                continue
            if now_s < seconds / WARM_PART or name not in before:
                before[name] = max(before.get(name, 0), rss)
                grown[name] = 0
            else:
                grown[name] = max(grown[name], rss - before[name])
            if now_s >= (len(series[name]) + 1) * seconds / WARM_PART:
                series[name].append(rss >> 20)
        pause.wait(LOOK_S)
    took_s = time.monotonic() - began
    stored = messages.size_bytes - first_bytes if messages is not None else 0
    done, failed = sum(load.done for load in others), sum(load.failed for load in others)
    found = Soaked(link, took_s, stored / took_s, done, failed, before, grown, series, ended)
    report = os.environ.get("HUNG_REPORT")
    if report:
        with Path(report).open("a", encoding="utf-8") as out:
            out.write(json.dumps(found._asdict()) + "\n")
    print(found, flush=True)
    return found


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """They hang: SIGSTOP, and SIGCONT in the end."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class Program(Load):
    """A program of ``support/processes/hung_client.py``, which says on each line what it has done and what failed."""

    def __init__(self, log: Path, kind: str, hung_url: str, healthy_url: str) -> None:
        super().__init__(self._line, 1, pause_s=0)
        tests = Path(__file__).resolve().parents[2]
        command = [sys.executable, "-m", "support.processes.hung_client", kind, hung_url, healthy_url]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(tests), str(tests.parent), str(tests.parent / "src"))),
        }
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        assert self.process.stdout is not None
        self._lines = self.process.stdout
        self._stored = 0
        #: What was done, and what failed, at the broker that hangs.
        self.done_there = self.failed_there = 0
        if self._lines.readline() != "ready\n":
            raise AssertionError(log.read_text(encoding="utf-8")[-4000:])

    def begin(self) -> None:
        """The broker hangs now."""
        assert self.process.stdin is not None
        self.process.stdin.write("begin\n")
        self.process.stdin.flush()

    def _line(self) -> None:
        line = self._lines.readline()
        # Half a line is its last, when it is killed.
        if not line.endswith("\n"):
            self.is_over.set()
            return
        self._stored, self.done_there, self.failed_there = map(int, line.split())

    @property
    def size_bytes(self) -> int:
        """What the healthy broker stored."""
        return self._stored

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        super().__exit__()
        self.process.communicate()
