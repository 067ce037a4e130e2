"""``python -m bench transactions``: publishing in transactions against publishing without, beside Apache Pulsar.

One client, ours, puts the load on both servers (:mod:`bench.transaction_load`); both sync their journal before each
answer. A row is done in and without transactions one right after the other, on each server in turn, and who begins
changes; ``x plain`` is the median of the ratios of such neighbours. Who is not measured is stopped meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console
from tools.interop.apache_standalone import die_with_parent
from tools.standalone_process import ROOT, StandaloneProcess

from bench.peers.rows import PULSAR
from bench.peers.servers import GEMINGA, find_kinds, machine
from bench.peers.verdict import FAILED, plain, spread, verdict
from bench.servers import Bench, BenchError, environment

Answer = dict[str, Any]
Row = dict[str, Any]
#: Transactions a lane of each is under way at a time, where they are many at once.
AT_ONCE: Final = 16
#: As many that neither side waits for the disk: what is compared is what a transaction costs, not how long it takes.
SATURATED: Final = 64
SIZES: Final = (1, 10, 100, 1000)
#: Seconds of a measured window, and before it.
WINDOW_S: Final = 2.5
LEAD_S: Final = 0.7
#: Each server is under all rows' load for so long first: the JVM compiles by then.
WARM_S: Final[Mapping[str, float]] = {GEMINGA: 5.0, PULSAR: 45.0}
LOAD_LIMIT_S: Final = 120.0
#: Both brokers; whether transactions are on by default is no matter here.
SETTINGS: Final = {"transactionCoordinatorEnabled": "true"}
#: Ours may be behind plain publishing by so much, in the row that says so.
SHARE_WANTED: Final = 0.7


@dataclass(frozen=True, slots=True)
class Case:
    """One row: a load in transactions, and what it is compared with."""

    name: str
    load: Mapping[str, Any] = field(default_factory=dict)
    #: What is different in the load it is compared with; None: there is none.
    against: Mapping[str, Any] | None = field(default_factory=lambda: {"in_transaction": False})
    #: The ratio to that which is wanted of ours; None: it is only shown.
    wanted: float | None = None


def _publish(messages: int, *, lanes: int, batched: bool) -> Case:
    how = "at once" if lanes > 1 else "one by one"
    title = "batched" if batched else "unbatched"
    is_claim = messages == 100 and lanes == SATURATED
    return Case(
        f"{title}, {messages:,} a transaction, {f'{lanes} ' if lanes > 1 else ''}{how}",
        {"mode": "publish", "messages": messages, "lanes": lanes, "batched": batched},
        wanted=SHARE_WANTED if is_claim else None,
    )


def _hundred(name: str, against: Mapping[str, Any], **load: Any) -> Case:
    return Case(name, {"mode": "publish", "messages": 100, "lanes": AT_ONCE, **load}, against)


CASES: Final = (
    *(_publish(messages, lanes=AT_ONCE, batched=False) for messages in SIZES),
    _publish(100, lanes=SATURATED, batched=False),
    *(_publish(messages, lanes=AT_ONCE, batched=True) for messages in SIZES),
    *(_publish(messages, lanes=1, batched=True) for messages in SIZES),
    Case(
        "consume, process, produce: 10, 16 at once",
        {"mode": "process", "messages": 10, "lanes": AT_ONCE, "type": "Shared"},
    ),
    Case(
        "the same one by one, of batches of 1,000",
        {"mode": "process", "messages": 10, "lanes": 1, "type": "Exclusive", "fed_batched": True},
    ),
    _hundred("10 each to 10 topics", {"topics": 1, "messages": 100}, topics=10, messages=10),
    _hundred("half of them aborted", {"aborted": 0}, aborted=50),
    _hundred("beside one that stays open", {"open": False}, open=True),
    Case("catch-up past 10,000 aborted", {"mode": "dispatch", "aborted": 10_000, "backlog": 200_000}, {"aborted": 0}),
)


def selected(text: str) -> list[Case]:
    """The cases whose name contains ``text``, whatever its case; several are joined by " or "."""
    parts = [part.strip().casefold() for part in text.split(" or ")]
    return [case for case in CASES if any(part in case.name.casefold() for part in parts)]


def put_load(
    bench: Bench, server: StandaloneProcess, load: Mapping[str, Any], *, topic: str, share: float = 1.0
) -> Answer:
    """Run the load to its end in a process of its own; ``share`` shortens it. Raises BenchError."""
    spec = {"seconds": WINDOW_S * share, "warmup": LEAD_S * share, "loop": bench.loop, **load}
    if "backlog" in spec:
        spec["backlog"] = int(spec["backlog"] * share)
    if "aborted" in spec and spec["mode"] == "dispatch":
        spec["aborted"] = int(spec["aborted"] * share)
    spec |= {"url": server.service_url, "pid": server.pid, "topic": f"persistent://public/default/{topic}"}
    done = subprocess.run(
        [sys.executable, "-m", "bench.transaction_load", json.dumps(spec)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(bench.source),
        preexec_fn=die_with_parent,
        timeout=LOAD_LIMIT_S,
    )
    lines = done.stdout.strip().splitlines()
    answer: Answer = json.loads(lines[-1]) if lines else {"error": done.stderr.strip()[-500:]}
    if "error" in answer:
        raise BenchError(str(answer["error"]))
    return answer


class Turns:
    """The servers of one run, and what they answered."""

    def __init__(self, bench: Bench, options: argparse.Namespace) -> None:
        self.bench = bench
        self.turns: int = options.turns
        self.cases = selected(options.k)
        if not self.cases:
            raise BenchError(f"no row's name contains {options.k!r}")
        self.console = Console(stderr=True, soft_wrap=True)
        self.servers: dict[str, StandaloneProcess] = {}
        #: (case, server) -> of each turn: in transactions, and what it is compared with.
        self.answers: dict[tuple[str, str], list[tuple[Answer, Answer | None]]] = defaultdict(list)
        self.problems: dict[tuple[str, str], str] = {}
        self._number = 0

    def say(self, text: str) -> None:
        """To who waits for the table."""
        self.console.print(text, markup=False, highlight=False)

    def run(self) -> list[Row]:
        """All turns; the table."""
        with ExitStack() as stack:
            kinds = find_kinds()
            for name in (GEMINGA, PULSAR):
                if (kind := kinds[name]).missing:
                    self.say(f"without {kind.title}: {kind.missing}")
                    continue
                self.servers[name] = stack.enter_context(kind.started(self.bench, also=SETTINGS))
            for name in self.servers:
                self.warm_up(name)
            for turn in range(self.turns):
                for number, case in enumerate(self.cases):
                    names = list(self.servers)
                    for name in names if (turn + number) % 2 else reversed(names):
                        self.measure(turn, case, name)
        return [self.row(case) for case in self.cases]

    def warm_up(self, name: str) -> None:
        """The rows, shortened, until the server was under load for long enough."""
        self.give_way(name)
        started = time.monotonic()
        while time.monotonic() - started < WARM_S[name]:
            for case in self.cases:
                try:
                    self.put(case.load, name, share=0.4)
                except BenchError as error:
                    self.say(f"warm-up, {name}, {case.name}: {error}")
                if time.monotonic() - started > WARM_S[name]:
                    break

    def measure(self, turn: int, case: Case, name: str) -> None:
        """One turn of one row by one server: in transactions and without, the order changing."""
        if (case.name, name) in self.problems:
            return
        try:
            self.give_way(name)
            other = {**case.load, **case.against} if case.against is not None else None
            if other is None:
                pair: tuple[Answer, Answer | None] = (self.put(case.load, name), None)
            elif turn % 2:
                before = self.put(other, name)
                pair = (self.put(case.load, name), before)
            else:
                pair = (self.put(case.load, name), self.put(other, name))
        except (BenchError, OSError, subprocess.TimeoutExpired) as error:
            self.problems[case.name, name] = str(error)
            self.say(f"{case.name}, {name}: FAILED: {error}")
            return
        self.answers[case.name, name].append(pair)
        mine, other_ = pair
        beside = f" beside {plain(other_['rate'])}" if other_ else ""
        self.say(
            f"turn {turn + 1} of {self.turns}  {case.name:44} {name:8} {plain(mine['rate'])} msgs/s{beside}, "
            f"end {mine['p50']:.2f} / {mine['p99']:.2f} ms, CPU {mine['cpu_us']:.1f} us"
        )

    def put(self, load: Mapping[str, Any], name: str, *, share: float = 1.0) -> Answer:
        """Run the load to its end; ``share`` shortens it."""
        self._number += 1
        return put_load(self.bench, self.servers[name], load, topic=f"transactions-{self._number}", share=share)

    def give_way(self, name: str) -> None:
        """The other server is stopped."""
        for other, server in self.servers.items():
            os.kill(server.pid, signal.SIGCONT if other == name else signal.SIGSTOP)

    def row(self, case: Case) -> Row:
        """One line of the table."""
        line: Row = {"row": case.name}
        for name, title in ((GEMINGA, "Geminga"), (PULSAR, "Pulsar")):
            line |= _side(title, self.answers[case.name, name])
        ours, theirs = ([mine["rate"] for mine, _ in self.answers[case.name, name]] for name in (GEMINGA, PULSAR))
        line["times"] = round(statistics.median(ours) / statistics.median(theirs), 2) if ours and theirs else ""
        line["verdict"] = verdict(ours, theirs, is_more_better=True) if ours and theirs else ""
        if any(key[0] == case.name for key in self.problems):
            line["verdict"] = FAILED
        line["met"] = ""
        if case.wanted is not None and ours:
            line["met"] = "yes" if line["Geminga x plain"] >= case.wanted else "NO"
        line["turns"] = {name: self.answers[case.name, name] for name in (GEMINGA, PULSAR)}
        return line


def _side(title: str, pairs: list[tuple[Answer, Answer | None]]) -> Row:
    columns = ("msgs/s", "x plain", "end p50 / p99 ms", "CPU us")
    if not pairs:
        return {f"{title} {column}": "" for column in columns}
    mine = [each for each, _ in pairs]
    ratios = [each["rate"] / other["rate"] for each, other in pairs if other is not None]
    p50, p99 = (statistics.median(each[key] for each in mine) for key in ("p50", "p99"))
    return {
        f"{title} msgs/s": spread([each["rate"] for each in mine]),
        f"{title} x plain": round(statistics.median(ratios), 2) if ratios else "",
        f"{title} end p50 / p99 ms": f"{plain(p50)} / {plain(p99)}" if p50 else "",
        f"{title} CPU us": plain(statistics.median(each["cpu_us"] for each in mine)),
    }


def transactions(bench: Bench, options: argparse.Namespace) -> list[Row]:
    """The table of the rows that ``-k`` names."""
    turns = Turns(bench, options)
    turns.say(machine())
    return turns.run()
