"""``python -m bench peers``: the servers take turns under the same load, row by row; who waits is stopped meanwhile."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from tools.interop.apache_standalone import die_with_parent
from tools.standalone_process import StandaloneProcess, StartError

from bench.load import LoadError
from bench.measure import first_receipt
from bench.peers.rows import PULSAR, PeerRow, selected
from bench.peers.servers import GEMINGA, START_LIMIT_S, Kind, build_load, find_kinds, machine, sampling
from bench.peers.verdict import failed_line, lines
from bench.servers import Bench, BenchError

Answer = dict[str, Any]
#: Every server gets the rows once unmeasured, and again until it was under load for so long: the JVM compiles by then.
WARM_S: Final = 40.0
#: The unmeasured rows are shorter by this.
WARM_SHARE: Final = 0.4
#: Seconds of a measured window, and before it.
WINDOW_S: Final = 2.5
LEAD_S: Final = 0.7
#: A server is quiet when it takes less than this share of a core; it is waited for so long.
QUIET: Final = 0.08
QUIET_LIMIT_S: Final = 3.0
QUIET_STEP_S: Final = 0.25
IDLE_S: Final = 4.0
LOAD_LIMIT_S: Final = 90.0


class Contest:
    """The servers of one run, and what they answered."""

    def __init__(self, bench: Bench, options: argparse.Namespace, rows: list[PeerRow]) -> None:
        self.bench = bench
        self.turns: int = options.turns
        self.console = Console(stderr=True, soft_wrap=True)
        self.rows = rows
        if not self.rows:
            raise BenchError(f"no row's name contains {options.k!r}")
        self.load = build_load()
        self.kinds = find_kinds()
        self.servers: dict[str, StandaloneProcess] = {}
        self.answers: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        self.problems: dict[tuple[str, str], str] = {}
        self._number = 0
        self.profile: bool = options.profile

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)

    def names(self) -> list[str]:
        """Of the servers that the rows want and that are here."""
        wanted = {peer for row in self.rows for peer in row.peers}
        for name in sorted(wanted):
            if self.kinds[name].missing:
                self.say(f"without {self.kinds[name].title}: {self.kinds[name].missing}")
        return [GEMINGA, *(name for name in self.kinds if name in wanted and not self.kinds[name].missing)]

    @contextmanager
    def started(self, kind: Kind) -> Iterator[StandaloneProcess]:
        """A server that is ready, on a directory that goes with it."""
        with self.bench.directory(kind.name) as directory:
            samples = directory / "samples"
            environment = sampling(self.bench, samples) if self.profile else None
            server = self.made(kind, directory / "server", environment)
            try:
                server.start(START_LIMIT_S)
                self.prepare(kind, server)
                yield server
                if self.profile and kind.name == GEMINGA:
                    os.kill(server.pid, signal.SIGCONT)
                    server.stop()
                    self.say(samples.read_text(encoding="utf-8"))
            except StartError as error:
                raise BenchError(f"{kind.title}: {error}") from None
            finally:
                server.kill()

    def made(self, kind: Kind, directory: Path, environment: Mapping[str, str] | None = None) -> StandaloneProcess:
        """A server of that kind, not started."""
        return kind.make(self.bench, directory, environment)

    def prepare(self, kind: Kind, server: StandaloneProcess) -> None:
        """What one that is ready is told before any load."""

    def way(self, row: PeerRow, server: StandaloneProcess) -> dict[str, Any]:
        """How the load's program reaches a server for a row: its URLs, and what it shows."""
        return {"url": server.service_url, "web": server.web_url}

    def run(self) -> list[dict[str, Any]]:
        """All turns; the table."""
        with ExitStack() as stack:
            names = self.names()
            self.rows = [row for row in self.rows if any(peer in names for peer in row.peers)]
            if not self.rows:
                raise BenchError("no server to compare with is here")
            for name in names:
                self.servers[name] = stack.enter_context(self.started(self.kinds[name]))
                self.say(f"{self.kinds[name].title} is ready after {self.servers[name].start_seconds[-1]:.1f} s")
            for name in names:
                self.warm_up(name)
            for turn in range(self.turns):
                for number, row in enumerate(self.rows):
                    order = [name for name in names if name == GEMINGA or name in row.peers]
                    shift = (turn + number) % len(order)
                    for name in order[shift:] + order[:shift]:
                        self.measure(turn, row, name)
        return self.table(names)

    def warm_up(self, name: str) -> None:
        """The rows, shortened, until the server was under load for ``WARM_S``."""
        rows = [row for row in self.rows if row.load["mode"] not in ("start", "idle")]
        rows = [row for row in rows if name in (GEMINGA, *row.peers)]
        started = time.monotonic()
        self.give_way(name)
        while rows and time.monotonic() - started < WARM_S:
            for row in rows:
                try:
                    self.put_load(row, name, WARM_SHARE)
                except BenchError as error:
                    self.say(f"warm-up, {self.kinds[name].title}, {row.name}: {error}")
            if name != PULSAR and time.monotonic() - started > WARM_S / 4:
                break
        self.say(f"{self.kinds[name].title} was warmed up for {time.monotonic() - started:.0f} s")

    def measure(self, turn: int, row: PeerRow, name: str) -> None:
        """One turn of one row by one server."""
        key = (row.name, name)
        if key in self.problems:
            return
        prefix = f"turn {turn + 1} of {self.turns}  {row.name:42} {self.kinds[name].title:14}"
        try:
            self.give_way(name)
            answer = self.answer(row, name)
        except (BenchError, LoadError, OSError, subprocess.TimeoutExpired) as error:
            self.problems[key] = str(error)
            self.say(f"{prefix} FAILED: {error}")
            return
        self.answers[key].append(answer)
        figures = [f"{figure.title} {answer[figure.key]:,.2f}" for figure in row.figures]
        if "cpu_us" in answer:
            figures.append(f"CPU us {answer['cpu_us']:.2f}")
        self.say(f"{prefix} {', '.join(figures)}")

    def answer(self, row: PeerRow, name: str) -> Answer:
        """The numbers of one measurement."""
        match row.load["mode"]:
            case "start":
                return self.start_again(name)
            case "idle":
                return self.idle(name)
        return self.put_load(row, name, 1.0)

    def start_again(self, name: str) -> Answer:
        """Another one of its kind on an empty directory: from exec until a message is durable."""
        with self.bench.directory("start") as directory:
            server = self.made(self.kinds[name], directory / "server")
            try:
                server.launch()
                deadline = time.monotonic() + START_LIMIT_S
                while True:
                    try:
                        if not server.broker_port:
                            server.wait_ready(START_LIMIT_S)
                        return {"seconds": first_receipt(server)}
                    except (OSError, LoadError) as error:
                        if time.monotonic() > deadline:
                            raise BenchError(f"no receipt within {START_LIMIT_S} s: {error}") from None
                        time.sleep(0.02)
            finally:
                server.kill()

    def idle(self, name: str) -> Answer:
        """Memory and CPU after everything before."""
        server = self.servers[name]
        before, started = server.cpu_seconds(), time.perf_counter()
        time.sleep(IDLE_S)
        percent = (server.cpu_seconds() - before) / (time.perf_counter() - started) * 100
        return {"rss_mb": server.rss_bytes() / 1e6, "cpu_percent": percent}

    def put_load(self, row: PeerRow, name: str, share: float) -> Answer:
        """Run the load's program to its end; ``share`` shortens it."""
        server = self.servers[name]
        spec = {"seconds": WINDOW_S, "warmup": LEAD_S, **row.load}
        for key in ("seconds", "warmup"):
            spec[key] *= share
        if "count" in spec:
            spec["count"] = max(1, int(spec["count"] * share))
        spec |= {"kind": PULSAR if name == GEMINGA else name, "pid": server.pid, **self.way(row, server)}
        spec |= {"topic": self.topic(row, spec["kind"]), "limit_s": LOAD_LIMIT_S}
        process = subprocess.run(
            [str(self.load), json.dumps(spec)],
            capture_output=True,
            text=True,
            preexec_fn=die_with_parent,
            timeout=2 * LOAD_LIMIT_S,
        )
        output = process.stdout.strip().splitlines()
        answer: Answer = json.loads(output[-1]) if output else {"error": process.stderr.strip()[-500:]}
        if "error" in answer:
            raise BenchError(str(answer["error"]))
        return answer

    def topic(self, row: PeerRow, kind: str) -> str:
        """A name of its own for each measurement."""
        self._number += 1
        number = 0 if row.keeps_topics else self._number
        name = "".join(c if c.isalnum() else "-" for c in row.name) + f"-{number}"
        if kind != PULSAR:
            return name
        domain = "non-persistent" if row.load.get("volatile") else "persistent"
        return f"{domain}://public/default/{name}"

    def give_way(self, name: str) -> None:
        """The other servers are stopped; the one whose turn it is works off what was before."""
        for other, server in self.servers.items():
            os.kill(server.pid, signal.SIGCONT if other == name else signal.SIGSTOP)
        server = self.servers[name]
        deadline = time.monotonic() + QUIET_LIMIT_S
        busy = True
        while busy and time.monotonic() < deadline:
            before = server.cpu_seconds()
            time.sleep(QUIET_STEP_S)
            busy = server.cpu_seconds() - before > QUIET * QUIET_STEP_S

    def table(self, names: list[str]) -> list[dict[str, Any]]:
        """All rows against all peers."""
        out: list[dict[str, Any]] = []
        for row in self.rows:
            for peer in (peer for peer in row.peers if peer in names):
                title = self.kinds[peer].title
                ours, theirs = self.answers[row.name, GEMINGA], self.answers[row.name, peer]
                if {(row.name, GEMINGA), (row.name, peer)} & self.problems.keys() or not ours or not theirs:
                    out.append(failed_line(row.name, title))
                else:
                    out += lines(row.name, row.figures, title, ours, theirs)
        for (row_name, name), problem in self.problems.items():
            self.say(f"{row_name}, {self.kinds[name].title}: {problem}")
        return out


def peers(bench: Bench, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The table of the rows that ``-k`` names."""
    started = time.monotonic()
    contest = Contest(bench, options, selected(options.k))
    contest.say(machine())
    table = contest.run()
    seconds = time.monotonic() - started
    middle = statistics.median([line["times"] for line in table if line["times"]] or [0.0])
    contest.say(f"{len(contest.rows)} rows, {contest.turns} turns, {seconds:.0f} s; median of all ratios {middle:.2f}")
    return table
