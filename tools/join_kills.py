"""``make kills``: the example that joins two topics in transactions, killed again and again, and its broker too.

Real processes, ``kill -9``, at moments drawn from a seed: while the program works or starts, while the broker works or
recovers, both at once. Inputs with and without partitions and batches, in Shared and in Exclusive subscriptions.
Then an independent reader counts: each result is there exactly once, also after two more restarts; nothing of the
inputs is left, and no transaction is open. KILLS sets how many kills, SEED the moments; ``--json`` prints the result
as one line.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from geminga.client import MessageId, blocking
from tools.standalone_process import ROOT, StandaloneProcess, StartError

PROGRAM: Final = ROOT / "examples" / "join_in_transactions.py"
SETTINGS: Final = {"transactionCoordinatorEnabled": "true", "brokerDeduplicationEnabled": "true"}
KILLS: Final = 200
#: Pairs that come after each kill, and then at a time until the next one: there is always something to do.
PAIRS_AT_ONCE: Final = 50
PAIRS: Final = 10
PAIRS_S: Final = 0.05
#: Seconds between the end of one restart and the next kill, at most.
WORK_S_MAX: Final = 1.5
#: Seconds after its launch within which a process is killed that is to be killed as it starts.
PROGRAM_START_S_MAX: Final = 0.7
BROKER_START_S_MAX: Final = 0.7
#: Time-out of the transactions, and what a coordinator may need beyond it, seconds.
BOUND_S: Final = 4.0
GRACE_S: Final = 5.0
#: After the last kill all results are there within so many seconds.
SETTLED_S: Final = 120.0

PROGRAM_WORKING, PROGRAM_STARTING = "program working", "program starting"
BROKER_WORKING, BROKER_RECOVERING = "broker working", "broker recovering"
BOTH: Final = "both at once"
#: What is killed, and how often: a list to draw from.
MOMENTS: Final = (
    *(PROGRAM_WORKING,) * 4,
    *(BROKER_WORKING,) * 4,
    PROGRAM_STARTING,
    *(BROKER_RECOVERING,) * 2,
    BOTH,
)


class Variant(NamedTuple):
    """How the topics of one part of the run are made and consumed."""

    name: str
    partitions: int = 0
    #: Messages of a batch of the inputs; 1: no batches.
    batch: int = 1
    is_exclusive: bool = False
    #: Pairs of a transaction, at most: with few of them the program is in a transaction nearly always.
    pairs: int = 5


VARIANTS: Final = (
    Variant("shared-batches", batch=10),
    Variant("exclusive-partitions-batches", partitions=3, batch=10, is_exclusive=True),
    Variant("shared-partitions", partitions=3),
    Variant("exclusive-large", is_exclusive=True, pairs=100),
)


@dataclass(slots=True)
class Result:
    """What a run counted."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    #: Kills after which the broker had transactions open, or half ended.
    kills_in_transactions: int = 0
    pairs: int = 0
    #: Results that were there already when the last kill of their variant came: work went on between the kills.
    before_last_kill: int = 0
    lost: int = 0
    duplicated: int = 0
    foreign: int = 0
    seconds: float = 0.0
    broker_starts: int = 0
    slowest_start_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "kills": dict(self.kills), "all_kills": sum(self.kills.values())}


class Program:
    """The example as a process."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self._arguments = [sys.executable, str(PROGRAM), *arguments]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start it; it is killed before, if it is there."""
        self.kill()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._arguments, stdout=log, stderr=log, cwd=ROOT)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def ended(self) -> int | None:
        """Its exit code, if it ended by itself."""
        code = self._process.poll() if self._process is not None else None
        return code if code is not None and code >= 0 else None


class Topics:
    """The topics of one variant in one broker."""

    def __init__(self, broker: StandaloneProcess, variant: Variant) -> None:
        self._broker = broker
        self.variant = variant
        self.orders, self.payments, self.paid = (f"{name}-{variant.name}" for name in ("orders", "payments", "paid"))

    def create(self) -> None:
        """Partitions, and a subscription that keeps the results."""
        for topic in (self.orders, self.payments, self.paid):
            if self.variant.partitions:
                path = f"/admin/v2/persistent/public/default/{topic}/partitions"
                self._broker.request("PUT", path, self.variant.partitions)
        for topic in self.parts(self.orders, self.payments):
            self._subscribe(topic, "join")
        for topic in self.parts(self.paid):
            self._subscribe(topic, "keep")

    def _subscribe(self, topic: str, name: str) -> None:
        body = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        self._broker.request("PUT", f"/admin/v2/persistent/public/default/{topic}/subscription/{name}", body)

    def parts(self, *topics: str) -> list[str]:
        """The topics themselves, or their partitions."""
        count = self.variant.partitions
        return [f"{topic}-partition-{index}" for topic in topics for index in range(count)] if count else [*topics]

    def _stats(self, topic: str, kind: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self._broker.request("GET", f"/admin/v2/persistent/public/default/{topic}/{kind}")
        )
        return found

    def backlog(self) -> int:
        """Inputs that are not acknowledged."""
        found = 0
        for topic in self.parts(self.orders, self.payments):
            found += self._stats(topic, "stats")["subscriptions"]["join"]["msgBacklog"]
        return found

    def holes(self) -> list[str]:
        """Inputs whose subscription is not acknowledged up to the end, with where it stands."""
        found = []
        for topic in self.parts(self.orders, self.payments):
            stats = self._stats(topic, "internalStats")
            cursor = stats["cursors"]["join"]
            if cursor["numberOfEntriesSinceFirstNotAckedMessage"] or cursor["totalNonContiguousDeletedMessagesRange"]:
                found.append(f"{topic}: {cursor['markDeletePosition']} of {stats['lastConfirmedEntry']}")
        return found

    def open_transactions(self) -> int:
        """Transactions that publish to the results and are not ended there."""
        found = 0
        for topic in self.parts(self.paid):
            buffer = self._stats(topic, "internalStats")["geminga"].get("transactionBuffer", {})
            found += buffer.get("ongoingTxnSize", 0)
        return found

    def left_open(self) -> list[str]:
        """Transactions of all coordinators that are open for longer than they may be."""
        path = f"/admin/v3/transactions/slowTransactions/{round((BOUND_S + GRACE_S) * 1000)}"
        found: list[str] = sorted(json.loads(self._broker.request("GET", path)))
        return found

    def not_over(self) -> int:
        """Transactions that their coordinators still have."""
        stats = json.loads(self._broker.request("GET", "/admin/v3/transactions/coordinatorStats"))
        found: list[int] = [each["ongoingTxnSize"] for each in stats.values()]
        return sum(found)

    def came(self) -> int:
        """Results that the broker took since its start, of open transactions too."""
        found: list[int] = [self._stats(topic, "stats")["msgInCounter"] for topic in self.parts(self.paid)]
        return sum(found)

    def results(self, service_url: str) -> Counter[bytes]:
        """All there is, by a reader that knows nothing of the subscriptions."""
        found: Counter[bytes] = Counter()
        with blocking.connect(service_url) as client:
            for topic in self.parts(self.paid):
                with client.create_reader(topic, MessageId.earliest) as reader:
                    while reader.has_message_available():
                        found[reader.read_next(10_000).data()] += 1
        return found


class Feeder:
    """Publishes pairs; lives through all kills."""

    def __init__(self, client: blocking.Client, topics: Topics) -> None:
        batch = topics.variant.batch
        self._producers = [
            client.create_producer(
                topic, batching_enabled=batch > 1, batching_max_messages=max(2, batch), send_timeout_millis=0
            )
            for topic in (topics.orders, topics.payments)
        ]
        self.pairs = 0

    def feed(self, count: int) -> None:
        """So many more pairs, the second halves in another order than the first."""
        numbers = range(self.pairs, self.pairs + count)
        orders, payments = self._producers
        for number in numbers:
            orders.send_nowait(b"order-%d" % number, partition_key=str(number))
        for number in reversed(numbers):
            payments.send_nowait(b"payment-%d" % number, partition_key=str(number))
        self.pairs += count

    def flush(self) -> None:
        """Until all of it is stored."""
        for producer in self._producers:
            producer.flush()

    def expected(self) -> Counter[bytes]:
        """The results."""
        return Counter(b"order-%d+payment-%d" % (number, number) for number in range(self.pairs))


class Killing:
    """One run over the variants."""

    def __init__(self, broker: StandaloneProcess, directory: Path, seed: int, progress: Progress) -> None:
        self._broker = broker
        self._directory = directory
        self._rng = random.Random(seed)
        self._progress = progress
        self._pause = threading.Event()
        #: Results that the broker had taken since its start when the last kill was over.
        self._came = 0
        self.result = Result(seed)

    def run(self, kills: int, variants: Sequence[Variant] = VARIANTS) -> Result:
        """All variants, then two restarts, then everything is counted again."""
        started = time.monotonic()
        done: list[tuple[Topics, Counter[bytes]]] = []
        bar = self._progress.add_task("kills", total=kills)
        for number, variant in enumerate(variants):
            upto = kills * (number + 1) // len(variants)
            done.append(self._variant(variant, upto, lambda: self._progress.update(bar, completed=self._count)))
        self._broker.kill()
        self._broker.start()
        self._broker.stop()
        self._broker.start()
        for topics, expected in done:
            self._compare(topics, expected, "after two more restarts")
        result = self.result
        result.seconds = time.monotonic() - started
        result.broker_starts = len(self._broker.start_seconds)
        result.slowest_start_s = max(self._broker.start_seconds)
        return result

    @property
    def _count(self) -> int:
        return sum(self.result.kills.values())

    def _variant(self, variant: Variant, upto: int, moved: Callable[[], None]) -> tuple[Topics, Counter[bytes]]:
        topics = Topics(self._broker, variant)
        topics.create()
        arguments = [self._broker.service_url, topics.orders, topics.payments, topics.paid]
        arguments += [f"--pairs={variant.pairs}", f"--timeout={BOUND_S}"]
        if variant.is_exclusive:
            arguments.append("--exclusive")
        program = Program(arguments, self._directory / "join.log")
        program.launch()
        try:
            with blocking.connect(self._broker.service_url) as client:
                feeder = Feeder(client, topics)
                while self._count < upto:
                    feeder.flush()
                    feeder.feed(PAIRS_AT_ONCE)
                    self._until(lambda: topics.came() > self._came or program.ended is not None, BOUND_S + GRACE_S)
                    self._feed(feeder, self._rng.uniform(0.0, WORK_S_MAX))
                    self._kill(topics, program, upto - self._count)
                    self._look(topics, program)
                    self._came = topics.came()
                    moved()
                self.result.before_last_kill += topics.results(self._broker.service_url).total()
                feeder.flush()
            self._settle(topics, program)
        finally:
            program.kill()
        self.result.pairs += feeder.pairs
        self._compare(topics, feeder.expected(), "after the last kill")
        return topics, feeder.expected()

    def _feed(self, feeder: Feeder, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._pause.wait(min(PAIRS_S, left))
            feeder.feed(PAIRS)

    def _wait(self, seconds_max: float) -> None:
        self._pause.wait(self._rng.uniform(0.0, seconds_max))

    def _kill(self, topics: Topics, program: Program, most: int) -> None:
        moment = self._rng.choice(MOMENTS if most > 1 else MOMENTS[:8])
        self.result.kills[moment] += 1
        if moment in (PROGRAM_WORKING, PROGRAM_STARTING, BOTH):
            program.kill()
            if moment is PROGRAM_STARTING:
                self.result.kills[PROGRAM_WORKING] += 1
                program.launch()
                self._wait(PROGRAM_START_S_MAX)
        if moment in (BROKER_WORKING, BROKER_RECOVERING, BOTH):
            self._broker.kill()
            if moment is BOTH:
                self.result.kills[BOTH] += 1
            elif moment is BROKER_RECOVERING:
                self.result.kills[BROKER_WORKING] += 1
                self._broker.launch()
                self._wait(BROKER_START_S_MAX)
                self._broker.kill()
            self._broker.start()
        self.result.kills_in_transactions += topics.not_over() > 0
        if moment in (PROGRAM_WORKING, PROGRAM_STARTING, BOTH):
            program.launch()

    def _look(self, topics: Topics, program: Program) -> None:
        # What timed out while the broker was away is aborted as soon as it is there again.
        if not self._until(lambda: not topics.left_open(), GRACE_S):
            self.result.failures.append(f"{topics.variant.name}: open beyond their bound: {topics.left_open()}")
        if program.ended is not None:
            self.result.failures.append(f"{topics.variant.name}: the program ended by itself with {program.ended}")
            program.launch()

    def _settle(self, topics: Topics, program: Program) -> None:
        """Until nothing of the inputs is left; then no transaction may stay open beyond its bound."""
        if not self._until(lambda: topics.backlog() == 0, SETTLED_S):
            self.result.failures.append(f"{topics.variant.name}: {topics.backlog()} inputs left after {SETTLED_S} s")
        program.kill()
        if not self._until(lambda: topics.open_transactions() + topics.not_over() == 0, BOUND_S + GRACE_S):
            left = f"{topics.open_transactions()} of the results, {topics.not_over()} of the coordinators'"
            self.result.failures.append(f"{topics.variant.name}: {left} transactions open beyond their bound")

    def _until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                return False
            self._pause.wait(0.05)
        return True

    def _compare(self, topics: Topics, expected: Counter[bytes], when: str) -> None:
        result, name = self.result, topics.variant.name
        found = topics.results(self._broker.service_url)
        lost, twice = expected - found, found - expected
        result.lost += lost.total()
        result.foreign += sum(count for data, count in twice.items() if data not in expected)
        result.duplicated += sum(count for data, count in twice.items() if data in expected)
        for what, wrong in (("lost", lost), ("too often", twice)):
            if wrong:
                result.failures.append(f"{name}, {when}: {wrong.total()} {what}, such as {next(iter(wrong))!r}")
        if (left := topics.backlog()) or topics.holes():
            result.failures.append(f"{name}, {when}: {left} inputs are not acknowledged: {topics.holes()}")


def run(directory: Path, *, kills: int, seed: int, variants: Sequence[Variant] = VARIANTS, console: Console) -> Result:
    """A broker in ``directory``, and all of it; raises StartError."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    log = directory / "broker.log"
    with (
        StandaloneProcess(directory / "data", log=log, settings=SETTINGS) as broker,
        Progress(*columns, console=console) as progress,
    ):
        return Killing(broker, directory, seed, progress).run(kills, variants)


def main() -> int:
    """Run as a command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.join_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="what the moments are drawn from (%(default)s)")
    parser.add_argument("--json", action="store_true", help="the result as one line of JSON on standard output")
    asked = parser.parse_args()
    console = Console(stderr=asked.json)
    directory = Path(tempfile.mkdtemp(prefix="geminga-kills-"))
    try:
        result = run(directory, kills=asked.kills, seed=asked.seed, console=console)
    except StartError as error:
        console.print(f"[bold red]failed:[/] {error}; data and logs are in {directory}", highlight=False)
        return 1
    if asked.json:
        print(json.dumps(result.document()))
    say(console, result)
    if result.failures:
        console.print(f"data and logs are kept in {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def say(console: Console, result: Result) -> None:
    """The summary."""
    console.print(
        f"{sum(result.kills.values())} kills in {result.seconds:.0f} s, seed {result.seed}: "
        + ", ".join(f"{count} {moment}" for moment, count in sorted(result.kills.items()))
    )
    console.print(
        f"{result.kills_in_transactions} times transactions were open afterwards; {result.broker_starts} starts of the "
        f"broker, the slowest {result.slowest_start_s:.2f} s; {result.before_last_kill:,} of {result.pairs:,} results "
        "were there at the last kill"
    )
    console.print(f"pairs {result.pairs:,}, lost {result.lost}, duplicated {result.duplicated}")
    for failure in result.failures:
        console.print(f"[bold red]failed:[/] {failure}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
