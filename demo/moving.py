"""``make demo TXN=1``: the events move from one topic to another in transactions; the mover and the broker are killed.

Each event must be in the second topic once, though whoever moves it is killed in the middle of it, again and again.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID
from tools.standalone_process import ROOT, StandaloneProcess

from demo.delivery import progress_bars, result_table
from demo.events import Events
from demo.mover import SUBSCRIPTION
from geminga.client import MessageId, blocking

SOURCE, TARGET = "demo-in", "demo-out"
PARTITIONS = 4
SETTINGS = {"transactionCoordinatorEnabled": "true", "brokerDeduplicationEnabled": "true"}
#: Events of a batch, at most.
BATCH = 50
KILLS = 10
SEED = 42
#: Seconds without an event that moved after which the run counts as failed.
PATIENCE_S = 60.0
LOOK_S = 0.02


@dataclass(slots=True)
class Moved:
    """What came out, held against what went in."""

    events: int
    kills_of_the_mover: int = 0
    kills_of_the_broker: int = 0
    found: int = 0
    lost: int = 0
    duplicated: int = 0
    damaged: int = 0
    #: Events not moved yet at each kill.
    left_at_kills: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, rows: Sequence[tuple[str, bytes]], found: Iterable[tuple[int, str, bytes]]) -> None:
        """``found``: number, key and data of all that is in the second topic."""
        seen: Counter[int] = Counter()
        for number, key, data in found:
            self.found += 1
            if 0 <= number < len(rows) and rows[number] == (key, data):
                seen[number] += 1
            else:
                self.damaged += 1
        self.lost = len(rows) - len(seen)
        self.duplicated = seen.total() - len(seen)

    def failures(self) -> list[str]:
        """Every reason why this run is not a success, as sentences."""
        wrong = {
            "were lost": self.lost,
            "are there more than once": self.duplicated,
            "are not what was published": self.damaged,
        }
        return [f"{count:,} events {what}" for what, count in wrong.items() if count]


class Moving:
    """One run: a mover, a broker, and their killer."""

    def __init__(self, console: Console, broker: StandaloneProcess, log: Path, progress: Progress) -> None:
        self._console = console
        self._broker = broker
        self._log = log
        self._progress = progress
        self._mover: subprocess.Popen[bytes] | None = None
        self._pause = threading.Event()
        #: Batches of the first topic before any was moved: what a broker counts.
        self._batches = 1

    def run(self, rows: Sequence[tuple[str, bytes]], kills: int) -> Moved:
        """Publish, move and kill, count."""
        started = time.monotonic()
        moved = Moved(len(rows))
        for topic in (SOURCE, TARGET):
            self._broker.request("PUT", f"/admin/v2/persistent/public/default/{topic}/partitions", PARTITIONS)
        with blocking.connect(self._broker.service_url) as client:
            # Subscriptions keep what nobody has read yet.
            client.subscribe(SOURCE, SUBSCRIPTION).close()
            client.subscribe(TARGET, "demo").close()
            self._publish(client, rows)
        self._batches = max(1, self._backlog())
        rng = random.Random(SEED)
        bar = self._progress.add_task("move", total=len(rows))
        self._launch()
        try:
            for number in range(kills):
                # At random, but with something left to do, and something done since the last.
                share = (number + rng.uniform(0.1, 0.9)) / kills
                left = self._until_left(int(len(rows) * (1 - share)), len(rows), bar)
                moved.left_at_kills.append(left)
                self._kill(moved, is_broker=number % 2 == 1, left=left)
            self._until_left(0, len(rows), bar)
        finally:
            self._end()
        # A killed mover's transaction hides what came behind it, until its time is over.
        self._until_ended()
        # What is counted is what a broker has that was killed once more.
        self._broker.kill()
        self._broker.start()
        moved.count(rows, self._result())
        moved.seconds = time.monotonic() - started
        return moved

    def _publish(self, client: blocking.Client, rows: Sequence[tuple[str, bytes]]) -> None:
        bar = self._progress.add_task("publish", total=len(rows))
        with client.create_producer(SOURCE, batching_max_messages=BATCH, send_timeout_millis=0) as producer:
            for number, (key, line) in enumerate(rows):
                producer.send_nowait(line, partition_key=key or None, properties={"n": str(number)})
                if number % 500 == 499:
                    producer.flush()
                    self._progress.update(bar, completed=number)
            producer.flush()
        self._progress.update(bar, completed=len(rows))

    def _launch(self) -> None:
        command = [sys.executable, "-m", "demo.mover", self._broker.service_url, SOURCE, TARGET]
        with self._log.open("ab") as log:
            self._mover = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)

    def _end(self) -> None:
        assert self._mover is not None
        self._mover.kill()
        self._mover.wait()

    def _stats(self, topic: str) -> Any:
        return json.loads(self._broker.request("GET", f"/admin/v2/persistent/public/default/{topic}/partitioned-stats"))

    def _backlog(self) -> int:
        backlog: int = self._stats(SOURCE)["subscriptions"][SUBSCRIPTION]["msgBacklog"]
        return backlog

    def _until_ended(self) -> None:
        """Until no transaction of the second topic is open. Raises TimeoutError."""
        since = time.monotonic()
        while count := self._stats(TARGET)["ongoingTxnCount"]:
            if time.monotonic() - since > PATIENCE_S:
                raise TimeoutError(f"{count} transactions are open after {PATIENCE_S:.0f} s")
            self._pause.wait(LOOK_S)

    def _until_left(self, wanted: int, total: int, bar: TaskID) -> int:
        """Until about so many events at most are not moved; how many they are. Raises TimeoutError."""
        before, since = total + 1, time.monotonic()
        while (left := self._backlog() * total // self._batches) > wanted:
            if left < before:
                before, since = left, time.monotonic()
            elif time.monotonic() - since > PATIENCE_S:
                raise TimeoutError(f"nothing moved for {PATIENCE_S:.0f} s with {left:,} events left")
            self._progress.update(bar, completed=total - left)
            self._pause.wait(LOOK_S)
        self._progress.update(bar, completed=total - left)
        return left

    def _kill(self, moved: Moved, *, is_broker: bool, left: int) -> None:
        who = "broker" if is_broker else "mover"
        self._console.print(f"[bold red]kill -9[/] of the {who} with about {moved.events - left:,} events moved")
        if is_broker:
            moved.kills_of_the_broker += 1
            self._broker.kill()
            self._broker.start()
        else:
            moved.kills_of_the_mover += 1
            self._end()
            self._launch()

    def _result(self) -> list[tuple[int, str, bytes]]:
        """All there is in the second topic, by a reader that knows nothing of what was done."""
        found: list[tuple[int, str, bytes]] = []
        with blocking.connect(self._broker.service_url) as client:
            for partition in range(PARTITIONS):
                with client.create_reader(f"{TARGET}-partition-{partition}", MessageId.earliest) as reader:
                    while reader.has_message_available():
                        message = reader.read_next(10_000)
                        number = int(message.properties().get("n", "-1"))
                        found.append((number, message.partition_key(), message.data()))
        return found


def run(
    console: Console, broker: StandaloneProcess, events: Events, directory: Path, *, kills: int, as_json: bool
) -> list[str]:
    """All of it, with a table or a line of JSON; the reasons why it failed."""
    try:
        with progress_bars(console) as progress:
            moved = Moving(console, broker, directory / "mover.log", progress).run(events.rows, kills)
    except TimeoutError as error:
        return [str(error)]
    if as_json:
        print(json.dumps(document(moved)))
    else:
        report(console, moved)
    return moved.failures()


def document(moved: Moved) -> dict[str, Any]:
    """As JSON."""
    return asdict(moved)


def report(console: Console, moved: Moved) -> None:
    """The table on screen."""
    table = result_table()
    table.add_row("events", f"{moved.events:,}", f"moved in {moved.seconds:.0f} s, kills and restarts included")
    kills = moved.kills_of_the_mover + moved.kills_of_the_broker
    table.add_row("kill -9", f"{kills}", f"mover {moved.kills_of_the_mover}, broker {moved.kills_of_the_broker}")
    table.add_row("found", f"{moved.found:,}", "by a reader of its own, after one more kill -9")
    table.add_row("lost", f"{moved.lost:,}", "published, yet not in the second topic")
    table.add_row("duplicated", f"{moved.duplicated:,}", "in the second topic more than once")
    console.print(table)
