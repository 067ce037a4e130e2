"""``make spark-kills``: events through Spark's windows, everything is killed on the way, and each row accounted for.

The events are troublesome ones made from a seed, or those of a file (EVENTS). Then topic B and the Parquet table are
held against a plain computation row by row: 0 missing, 0 twice, every late row where late rows go. For a file with a
``weekly_expected.csv`` beside it, that table is the judge as well. ``--json`` prints the result as one line.

``--control``: the same kills, but at least once is all that the sink promises. Then windows are there more than once,
and the run fails unless that is seen: the judge is not blind.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from tools.spark_driver import DriverError
from tools.standalone_process import StandaloneProcess, StartError

from demo.accounts import Balance, Expected, Found, Unclear, audit, balance, delay_for, expect
from demo.delivery import progress_bars
from demo.events import Events, load_events
from demo.killing import KINDS, Killing, Run, kinds_of
from demo.troubled import DAY_MS, Row, sent_again, troubled
from demo.weekly import EventError, Sums, WindowKey, differences
from demo.weekly_stage import GUARANTEE, WeeklyStage, rows_of
from geminga.model.errors import GemingaError

KILLS = 20
ROWS = 20_000
#: Batches of the rows for each kill, and at least.
BATCHES_A_KILL, BATCHES_MIN = 1.5, 12
SEED_MAX = 1 << 31
#: What a sink that writes twice is told by, in the words of ``audit``.
TOO_MUCH = ("are there more than once", "rows are too many", "rows went in, but")


class Input(NamedTuple):
    """What goes in, and what must come out."""

    rows: list[Row]
    batch: int
    delay_ms: int
    #: The field that tells events apart.
    id_field: str
    expected: Expected
    #: Of files: whose repositories are in topic A1.
    owner: str
    origin: str


class Outcome(NamedTuple):
    """What a run came to."""

    run: Run
    balance: Balance
    messages: int
    table_rows: int
    failures: list[str]

    def document(self) -> dict[str, object]:
        """As JSON."""
        return {
            "seed": self.run.seed,
            "kills": dict(self.run.kills),
            "rows": self.run.rows,
            **self.balance._asdict(),
            "messages_in_b": self.messages,
            "rows_in_table": self.table_rows,
            "query_failures": len(self.run.failures),
            "seconds": round(self.run.seconds, 1),
            "failures": self.failures,
        }


def made_input(seed: int, count: int, batches: int) -> Input:
    """Troublesome events."""
    made = troubled(seed, count, max(1, count // batches))
    expected = expect(made.rows, batch=made.batch, delay_ms=made.delay_ms)
    return Input(*made, "id", expected, "", f"{count:,} events made from seed {seed}")


def given_input(events: Events, batches: int, seed: int) -> Input:
    """The events of a file, and some of them once more.

    The watermark waits for all of them; only what is sent again can be late.
    """
    rows, owner = rows_of(events)
    batch = max(1, -(-len(rows) // batches))
    delay_ms = delay_for(rows, batch + len(rows) // batches // 4)
    rows = sent_again(rows, seed, batch, delay_ms)
    return Input(rows, batch, delay_ms, "commit", expect(rows, batch=batch, delay_ms=delay_ms), owner, events.origin)


def table_beside(path: str) -> dict[WindowKey, Sums] | None:
    """What ``weekly_expected.csv`` beside a file of events says, if it is there."""
    table = Path(path).expanduser().parent / "weekly_expected.csv"
    if not path or not table.exists():
        return None
    with table.open(encoding="utf-8", newline="") as file:
        return {
            WindowKey(int(row["window_start_ms"]), row["repo"]): Sums(*(int(row[name]) for name in Sums._fields))
            for row in csv.DictReader(file)
        }


def run_through(
    console: Console,
    broker: StandaloneProcess,
    directory: Path,
    given: Input,
    kinds: Sequence[str],
    seed: int,
    *,
    mode: str = "append",
    guarantee: str = GUARANTEE,
) -> tuple[Outcome, Found]:
    """Publish, run the job over the kills, read what came out and check it. Raises DriverError."""
    stage = WeeklyStage(broker, directory, given.rows, given.delay_ms)
    stage.make_topics(guarantee)
    run = Run(seed, len(given.rows))
    say_progress = said_in_lines(console, run)
    with progress_bars(console) as progress:
        bar = progress.add_task("publish", total=len(given.rows))
        counts = stage.publish(lambda done: progress.update(bar, completed=done))
        console.print("; ".join(f"{topic.rpartition('/')[2]}: {count:,} rows" for topic, count in counts.items()))
        bar_read = progress.add_task("Spark reads", total=len(given.rows))
        driver = stage.driver(given.batch, given.id_field, mode=mode, guarantee=guarantee)
        with driver:
            killing = Killing(
                broker,
                driver,
                run,
                close=lambda: stage.close_windows(given.id_field),
                say=lambda line: console.print(line, highlight=False),
                advance=lambda done: (progress.update(bar_read, completed=done), say_progress(done)),
            )
            killing.to_the_end(kinds)
    found = stage.found()
    failures = audit(found, given.expected, is_once=mode == "append")
    if still_open := stage.open_transactions():
        failures.append(f"{len(still_open)} transactions that wrote are open, the first is {still_open[0]}")
    failures += [
        f"{kind} was killed {run.kills[kind]} times, not {times}"
        for kind, times in Counter(kinds).items()
        if run.kills[kind] != times
    ]
    outcome = Outcome(run, balance(found, given.expected), len(found.messages), len(found.table), failures)
    return outcome, found


def said_in_lines(console: Console, run: Run) -> Callable[[int], None]:
    """Where no bar moves as nobody looks at a terminal: a line each tenth of the rows."""
    began = time.monotonic()
    tenth = 0

    def say(done: int) -> None:
        nonlocal tenth
        if not console.is_terminal and done * 10 // run.rows > tenth:
            tenth = done * 10 // run.rows
            kills = run.kills.total()
            seconds = time.monotonic() - began
            console.print(f"{done:,} of {run.rows:,} rows read, {kills} kills, {run.batches} batches, {seconds:.0f} s")

    return say


def report(console: Console, given: Input, outcome: Outcome) -> None:
    """What came out."""
    run = outcome.run
    kills = ", ".join(f"{count} of the {kind}" for kind, count in sorted(run.kills.items()))
    console.print(f"{run.kills.total()} kills: {kills}; the query failed {len(run.failures)} times and went on")
    console.print(f"{run.rows:,} rows in; {outcome.balance.told()}")
    console.print(
        f"{len(given.expected.windows):,} windows; {outcome.messages:,} messages in B, {outcome.table_rows:,} rows in "
        f"the table, each held against the plain computation; {run.batches} batches in {run.seconds:.0f} s"
    )


def control_failures(found: Sequence[str]) -> list[str]:
    """What is wrong with a run whose sink may write twice: that no window came twice, or that anything is missing."""
    others = [reason for reason in found if not any(words in reason for words in TOO_MUCH)]
    if not any(TOO_MUCH[0] in reason for reason in found):
        others.append("with at-least-once no window of topic B came twice over all kills")
    return others


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--kinds", default=",".join(KINDS), help="what is killed, in turns (%(default)s)")
    parser.add_argument("--batches", type=int, default=0, help=f"of the rows; 0: {BATCHES_A_KILL} a kill")
    parser.add_argument("--seed", type=int, default=0, help="0: drawn, and printed")
    parser.add_argument("--rows", type=int, default=ROWS, help="of the events that are made")
    parser.add_argument("--events", default="", help="a file of events instead")
    parser.add_argument("--mode", choices=["append", "update"], default="append")
    parser.add_argument("--guarantee", default=GUARANTEE)
    parser.add_argument("--control", action="store_true", help="at least once: passes if windows twice are seen")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    # As Ctrl-C: what was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.control and options.mode != "append":
        parser.error("--control needs --mode append: in update mode windows are written more than once")
    # A sentence is a line where nobody looks at a terminal.
    console = Console(soft_wrap=not sys.stdout.isatty(), stderr=options.json)
    seed = options.seed or random.randrange(1, SEED_MAX)
    batches = options.batches or max(BATCHES_MIN, int(BATCHES_A_KILL * options.kills))
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--kinds {','.join(sorted(unknown))}: expected some of {', '.join(KINDS)}")
    try:
        given = (
            given_input(load_events(options.events), batches, seed)
            if options.events
            else made_input(seed, options.rows, batches)
        )
        table = table_beside(options.events)
        if table is not None and (wrong := differences(given.expected.windows, table)):
            raise EventError(f"weekly_expected.csv says something else than the plain computation: {wrong[0]}")
    except (OSError, ValueError) as error:
        console.print(f"[red]the events can not be used: {error}[/]")
        return 2
    console.print(
        f"SEED={seed}; {given.origin}; batches of {given.batch:,}; watermark {given.delay_ms // DAY_MS:,} days behind; "
        f"{given.expected.late.total():,} rows are late"
    )
    directory = Path(tempfile.mkdtemp(prefix="geminga-spark-kills-"))
    broker = StandaloneProcess(directory / "data", log=directory / "broker.log")
    try:
        broker.start()
        outcome, _ = run_through(
            console,
            broker,
            directory,
            given,
            kinds_of(options.kills, kinds),
            seed,
            mode=options.mode,
            guarantee="at-least-once" if options.control else options.guarantee,
        )
        report(console, given, outcome)
        failures = control_failures(outcome.failures) if options.control else outcome.failures
        if options.json:
            print(json.dumps(outcome.document()))
    except (StartError, DriverError, Unclear, GemingaError) as error:
        failures = [str(error)]
    except KeyboardInterrupt:
        failures = ["interrupted"]
    finally:
        if broker.is_running:
            broker.stop()
    for failure in failures:
        console.print(f"[bold red]failed:[/] {failure} (SEED={seed})", highlight=False)
    if failures:
        console.print(f"data and logs are kept in {directory}")
        return 1
    if options.control:
        console.print(f"[bold green]seen, as it has to be:[/] {outcome.failures[0]}", highlight=False)
    else:
        console.print("[bold green]every row is in its place, once[/]")
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
