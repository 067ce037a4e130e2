"""The demo's first part: publish with the official client, kill -9 in the middle, restart, consume, count.

Every acknowledged event must come out, first deliveries in publish order per key.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pulsar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tools.standalone_process import StandaloneProcess

from demo.events import Events
from demo.verdict import Verdict

TOPIC = "persistent://public/default/demo"
PARTITIONS = 4
PENDING_MAX = 2_000
#: Events between two looks at the clock, where they are paced.
PACED = 20
#: How long an event may stay unacknowledged, or the next delivery away, before the run counts as failed.
PATIENCE_S = 60.0
#: With everything acknowledged delivered, duplicates may still be on their way for so long.
QUIET_MS = 1_500


@dataclass(slots=True)
class Publishing:
    """What the client's callbacks tell, and when."""

    total: int
    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)
    errors: dict[str, int] = field(default_factory=dict)
    in_flight_at_kill: set[int] = field(default_factory=set)
    finished: threading.Event = field(default_factory=threading.Event)
    answered: int = 0
    seconds: float = 0.0

    def answer(self, number: int, result: pulsar.Result) -> None:
        """One receipt or error."""
        if result == pulsar.Result.Ok:
            self.acknowledged.add(number)
        else:
            self.errors[str(result)] = self.errors.get(str(result), 0) + 1
        self.answered += 1
        if self.answered == self.total:
            self.finished.set()


def publish(
    client: pulsar.Client,
    events: Events,
    progress: Progress,
    halfway: Callable[[Publishing], None] | None,
    *,
    over_s: float = 0.0,
    at: float = 0.5,
    name: str = "demo",
    first: int = 0,
) -> Publishing:
    """Publish everything, ``halfway`` on a thread of its own when ``at`` of it is sent; in ``over_s`` s at least.

    ``name``: the producer's, also on the screen. ``first``: the number of the first event.
    """
    rows = events.rows
    producer = client.create_producer(
        TOPIC,
        producer_name=name,
        # Without it, a client that is cut off before its first receipt numbers its next message from 0 again (client
        # 4.2 takes over the broker's last sequence id), and deduplication would rightly take that for a repetition.
        initial_sequence_id=1,
        send_timeout_millis=0,
        block_if_queue_full=True,
        batching_enabled=True,
        batching_max_publish_delay_ms=5,
        max_pending_messages=PENDING_MAX,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    bar = progress.add_task("publish" if name == "demo" else f"publish {name}", total=len(rows))
    state = Publishing(len(rows))
    crash: threading.Thread | None = None
    pause = threading.Event()
    started = time.perf_counter()
    for number, (key, line) in enumerate(rows):
        if halfway is not None and number == int(len(rows) * at):
            crash = threading.Thread(target=halfway, args=(state,))
            crash.start()
        if over_s and number % PACED == 0:
            pause.wait(started + over_s * number / len(rows) - time.perf_counter())
        producer.send_async(
            line,
            lambda result, _, number=first + number: state.answer(number, result),
            partition_key=key or None,
            properties={"n": str(first + number)},
            event_timestamp=None,
        )
        state.sent = number + 1
        if number % 97 == 0:
            progress.update(bar, completed=len(state.acknowledged))
    producer.flush()
    state.finished.wait(PATIENCE_S)
    state.seconds = time.perf_counter() - started
    progress.update(bar, completed=len(state.acknowledged))
    if crash is not None:
        crash.join()
    producer.close()
    return state


def kill_and_restart(broker: StandaloneProcess, progress: Progress, state: Publishing) -> None:
    """The middle of the demo. Callbacks may still run while the set is taken: what they add was in flight too."""
    sent_before, acknowledged_before = state.sent, set(state.acknowledged)
    broker.kill()
    # Between the two readings the client may have sent up to a queue more: all of those count as in flight.
    state.in_flight_at_kill = set(range(max(sent_before, state.sent) + PENDING_MAX)) - acknowledged_before
    progress.console.print(
        f"[bold red]kill -9[/] with {len(acknowledged_before):,} acknowledged, "
        f"{max(0, state.sent - len(acknowledged_before)):,} in flight"
    )
    broker.start()
    progress.console.print(f"restarted on the same directory, ready after {broker.start_seconds[-1] * 1000:.0f} ms")


def consume(
    client: pulsar.Client,
    verdict: Verdict,
    events: Events,
    progress: Progress,
    *,
    name: str = "consume",
    order_of: Callable[[pulsar.Message, int], str] | None = None,
) -> float:
    """Receive until everything acknowledged is here and nothing more comes; seconds to the last message.

    ``order_of``: what an event is in order with; without: those of its key.
    """
    consumer = client.subscribe(
        TOPIC,
        "demo",
        consumer_type=pulsar.ConsumerType.Failover,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=2_000,
    )
    bar = progress.add_task(name, total=len(verdict.acknowledged))
    started = last = time.perf_counter()
    while True:
        try:
            message = consumer.receive(timeout_millis=QUIET_MS)
        except pulsar.Timeout:
            if not verdict.lost or time.perf_counter() - last > PATIENCE_S:
                break
            continue
        last = time.perf_counter()
        number = int(message.properties().get("n", "-1"))
        verdict.see(number, message.data(), events.rows, order_of and order_of(message, number))
        consumer.acknowledge_cumulative(message) if verdict.received % 500 == 0 else None
        if verdict.received % 97 == 0:
            progress.update(bar, completed=len(verdict.first_seen))
    progress.update(bar, completed=len(verdict.first_seen))
    consumer.close()
    return last - started


def progress_bars(console: Console) -> Progress:
    """How much of each step is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def result_table() -> Table:
    """What is counted, how many, and what that means."""
    table = Table(title="What came out", show_header=False)
    table.add_column(style="cyan")
    table.add_column(justify="right")
    table.add_column()
    return table


def report(
    console: Console, verdict: Verdict, state: Publishing, consume_s: float, broker: StandaloneProcess, dedup: bool
) -> list[str]:
    """Print the table; the reasons why the run failed."""
    table = result_table()
    per_second = f"{verdict.published / max(state.seconds, 1e-9):,.0f}/s"
    table.add_row("published", f"{verdict.published:,}", f"{per_second}, the crash and restart included")
    table.add_row("acknowledged", f"{len(verdict.acknowledged):,}", "each on stable storage (fdatasync) before")
    rate = f"{verdict.received / max(consume_s, 1e-9):,.0f}/s"
    table.add_row("received", f"{verdict.received:,}", f"{len(verdict.first_seen):,} different, {rate}")
    if dedup:
        why = "deduplication is on"
    elif verdict.duplicates:
        why = "stored before the kill, receipt lost with the broker, so the client sent them again"
    else:
        why = "the kill met no stored event whose receipt was still out"
    table.add_row("duplicates", f"{len(verdict.duplicates):,}", why)
    table.add_row("lost", f"{len(verdict.lost):,}", "acknowledged, yet never delivered")
    table.add_row("out of order", f"{len(verdict.out_of_order):,}", "first deliveries, per key")
    starts = broker.start_seconds
    table.add_row("start", f"{starts[0] * 1000:,.0f} ms", "exec to ready line, Python's own start included")
    for seconds in starts[1:]:
        table.add_row("start after kill -9", f"{seconds * 1000:,.0f} ms", "recovery included")
    console.print(table)
    failures = verdict.failures(expects_no_duplicates=dedup)
    return [*failures, *(f"{count:,} sends failed with {name}" for name, count in state.errors.items())]


def run(console: Console, broker: StandaloneProcess, events: Events, directory: Path, *, dedup: bool) -> list[str]:
    """Publish, kill, restart, consume, count; the reasons why it failed."""
    broker.request("PUT", "/admin/v2/persistent/public/default/demo/partitions", PARTITIONS)
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(directory / "client.log"))
    client = pulsar.Client(broker.service_url, logger=logger, operation_timeout_seconds=30)
    with progress_bars(console) as progress:
        state = publish(client, events, progress, partial(kill_and_restart, broker, progress))
        verdict = Verdict(len(events.rows), state.acknowledged, state.in_flight_at_kill)
        consume_s = consume(client, verdict, events, progress)
    client.close()
    return report(console, verdict, state, consume_s, broker, dedup)
