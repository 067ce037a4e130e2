"""The demo's second part: topics A1 and A2, weekly windows by Spark into topic B and a table, kills on the way.

Some events are sent twice. What is in topic B, in the Parquet table and in the topic of late rows afterwards is read
without Spark, held against a plain computation, shown and drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from tools.standalone_process import StandaloneProcess

from demo import chart
from demo.events import Events
from demo.spark_kills import given_input, report, run_through, table_beside
from demo.troubled import DAY_MS
from demo.weekly import Sums, WindowKey, differences

#: Batches that the events are read in, so that the kills fall between some and others.
BATCHES = 12
#: What is killed on the way, at moments drawn from the seed.
KINDS = ("driver", "worker", "broker")
SEED = 318
ROWS_SHOWN = 8


def run(
    console: Console,
    broker: StandaloneProcess,
    events: Events,
    directory: Path,
    plot: Path,
    *,
    path: str = "",
    mode: str = "append",
) -> list[str]:
    """All of it; the reasons why it failed. ``path`` is where the events are from. Raises EventError, DriverError."""
    given = given_input(events, BATCHES, SEED)
    console.print(
        f"topic A1: {given.owner}; topic A2: the others; some events are sent twice; the watermark is "
        f"{given.delay_ms // DAY_MS:,} days behind"
    )
    outcome, found = run_through(console, broker, directory, given, KINDS, SEED, mode=mode)
    windows = dict(found.messages)
    show(console, windows)
    report(console, given, outcome)
    failures = list(outcome.failures)
    table = table_beside(path)
    if table is not None:
        failures += [f"weekly_expected.csv: {reason}" for reason in differences(windows, table)]
        console.print(f"weekly_expected.csv: {len(table):,} rows, held against topic B")
    chart.draw(windows, given.owner, events.origin, plot)
    console.print(f"plot: {plot}")
    return failures


def show(console: Console, found: Mapping[WindowKey, Sums]) -> None:
    """The table on screen."""
    by_repo: dict[str, list[tuple[WindowKey, Sums]]] = {}
    for key, sums in found.items():
        by_repo.setdefault(key.repo, []).append((key, sums))
    ranked = sorted(by_repo.items(), key=lambda item: -sum(sums.commits for _, sums in item[1]))
    table = Table(title="Topic B: weekly windows of event time", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("repository", style="cyan", no_wrap=True)
    for name in ("windows", "commits", "files", "lines +", "lines -"):
        table.add_column(name, justify="right", no_wrap=True)
    for repo, weeks in ranked[:ROWS_SHOWN]:
        totals = [sum(column) for column in zip(*(sums for _, sums in weeks), strict=True)]
        table.add_row(repo, f"{len(weeks):,}", *(f"{total:,}" for total in totals))
    if len(ranked) > ROWS_SHOWN:
        rest = [sums for _, weeks in ranked[ROWS_SHOWN:] for _, sums in weeks]
        totals = [sum(column) for column in zip(*rest, strict=True)]
        table.add_row(f"{len(ranked) - ROWS_SHOWN} more", f"{len(rest):,}", *(f"{total:,}" for total in totals))
    table.add_section()
    totals = [sum(column) for column in zip(*found.values(), strict=True)]
    table.add_row("all", f"{len(found):,}", *(f"{total:,}" for total in totals))
    console.print(table)
