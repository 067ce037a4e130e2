"""The demo's second part: the events as topics A1 and A2, weekly sums by Spark into topic B, one kill on the way.

What is in topic B afterwards is read by Geminga's own client, held against a plain computation, shown and drawn.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from tools.spark_driver import DriverError, SparkDriver
from tools.standalone_process import StandaloneProcess

from demo import chart
from demo.events import Events
from demo.weekly import (
    Sums,
    WindowKey,
    check_event,
    differences,
    is_of_owner,
    parse_result,
    split_owner,
    weekly,
)
from geminga.client import MessageId, connect

A1, A2, B = (f"persistent://public/default/{name}" for name in ("a1", "a2", "b"))
PARTITIONS = 2
#: Batches that the events are read in, so that the kill falls between some and others.
BATCHES = 8
#: The share of the events that has been read when the driver is killed.
KILL_AFTER = 0.4
#: Seconds in which Spark must start, or finish a batch.
PATIENCE_S = 180.0
ROWS_SHOWN = 8


@dataclass(slots=True)
class Run:
    """What the Spark driver told."""

    events: int
    batches: int = 0
    rows: int = 0
    rows_before_kill: int = 0
    #: From exec to the first report that Spark is there, each start.
    start_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0


def run(console: Console, broker: StandaloneProcess, events: Events, directory: Path, plot: Path) -> list[str]:
    """All of it; the reasons why it failed. Raises EventError, DriverError."""
    lines = [line for _, line in events.rows]
    parsed = [check_event(line, number) for number, line in enumerate(lines, 1)]
    owner = split_owner(str(event["repo"]) for event in parsed)
    for topic in (A1, A2, B):
        broker.request("PUT", f"/admin/v2/{topic.replace('://', '/')}/partitions", PARTITIONS)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        counts = asyncio.run(publish(broker.service_url, lines, parsed, owner, progress))
        console.print(f"topic A1: {counts[A1]:,} events of {owner}; topic A2: {counts[A2]:,} of the others")
        state = drive(console, broker, directory, len(lines), progress)
    found, messages = asyncio.run(read_result(broker.service_url))
    failures = differences(found, weekly(lines))
    report(console, state, found, messages)
    chart.draw(found, owner, events.origin, plot)
    console.print(f"plot: {plot}")
    return failures


async def publish(
    service_url: str, lines: list[bytes], parsed: list[dict[str, object]], owner: str, progress: Progress
) -> dict[str, int]:
    """The events to A1 and A2, each with its key and its event time; topic -> events."""
    bar = progress.add_task("publish", total=len(lines))
    counts = {A1: 0, A2: 0}
    async with connect(service_url) as client:
        # A subscription keeps what nobody has read yet: Spark's in A1 and A2, the demo's own in B.
        for topic, name in ((A1, "weekly"), (A2, "weekly"), (B, "demo")):
            await (await client.subscribe(topic, name)).close()
        producers = {topic: await client.create_producer(topic) for topic in counts}
        for number, (line, event) in enumerate(zip(lines, parsed, strict=True), 1):
            repo, at = str(event["repo"]), event["event_time"]
            assert isinstance(at, int)
            topic = A1 if is_of_owner(repo, owner) else A2
            counts[topic] += 1
            producers[topic].send_nowait(line, partition_key=repo, event_timestamp=at)
            if number % 1000 == 0:
                await producers[A1].drain()
                await producers[A2].drain()
                progress.update(bar, completed=number)
        for producer in producers.values():
            await producer.flush()
    progress.update(bar, completed=len(lines))
    return counts


def drive(console: Console, broker: StandaloneProcess, directory: Path, events: int, progress: Progress) -> Run:
    """Run the Spark job to its end, with a kill on the way."""
    arguments = {
        "--service-url": broker.service_url,
        "--topics": f"{A1},{A2}",
        "--output": B,
        "--checkpoint": str(directory / "checkpoint"),
        "--per-trigger": str(max(1, -(-events // BATCHES))),
    }
    state = Run(events)
    bar = progress.add_task("Spark reads", total=events)
    started = time.perf_counter()
    driver = SparkDriver(
        "demo.weekly_job", [part for pair in arguments.items() for part in pair], log=directory / "spark.log"
    )
    with driver:
        console.print("Spark starts ...")
        driver.start()
        listen(console, driver, state, progress, bar, until=events * KILL_AFTER)
        state.rows_before_kill = state.rows
        if driver.is_running:
            driver.kill()
            console.print(
                f"[bold red]kill -9[/] of the Spark driver, its JVM and its workers after {state.rows:,} of {events:,} "
                "events; started again on the same checkpoint"
            )
            driver.start()
            listen(console, driver, state, progress, bar)
        if driver.wait(PATIENCE_S) != 0:
            raise DriverError(f"the Spark driver ended with exit code {driver.wait(0)}\n{driver.log_tail()}")
    state.seconds = time.perf_counter() - started
    return state


def listen(
    console: Console, driver: SparkDriver, state: Run, progress: Progress, bar: TaskID, until: float | None = None
) -> None:
    """Follow the driver's reports to its end, or until so many events are read."""
    while until is None or state.rows < until:
        report = driver.next_report(PATIENCE_S)
        if report is None:
            return
        if "error" in report:
            raise DriverError(f"the Spark job failed: {report['error']}")
        if "ready" in report:
            state.start_seconds.append(time.monotonic() - driver.started_at)
            console.print(f"Spark is there after {state.start_seconds[-1]:.1f} s: {report['ready']}")
            continue
        state.batches += 1
        state.rows += report["rows"]
        progress.update(bar, completed=min(state.rows, state.events))


async def read_result(service_url: str) -> tuple[dict[WindowKey, Sums], int]:
    """The last message of each key of topic B, and how many messages there are."""
    messages = 0
    last: dict[WindowKey, Sums] = {}
    async with connect(service_url) as client:
        for partition in range(PARTITIONS):
            reader = await client.create_reader(f"{B}-partition-{partition}", MessageId.earliest)
            while await reader.has_message_available():
                key, sums = parse_result((await reader.read_next()).data())
                last[key] = sums
                messages += 1
    return last, messages


def report(console: Console, state: Run, found: dict[WindowKey, Sums], messages: int) -> None:
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
    starts = " and ".join(f"{seconds:.0f} s" for seconds in state.start_seconds)
    console.print(
        f"{state.events:,} events, {state.rows_before_kill:,} of them before the kill; {messages:,} messages in B "
        f"for {len(found):,} windows (a window is written whenever it changed); {state.seconds:.0f} s in all, {starts} "
        "of them to start Spark"
    )
