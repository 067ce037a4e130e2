"""``make demo BROKERS=2 BOOKIES=3``: a broker and a bookie of a cluster are killed while events are published.

ZooKeeper, bookies, auto-recovery and brokers are processes of their own. One of several brokers is killed, and the
others take over its topics (``broker_lost.py``). One bookie is killed and its directory is removed; an empty one joins.
When every fragment is on as many bookies again as before, a second one is killed, and all brokers: what is read then is
read from copies.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pulsar
from rich.console import Console
from rich.progress import Progress, TaskID
from tools.chaos.cluster import BookieProcess, Cluster
from tools.chaos.copies import Copies, Look

from demo.broker_lost import BrokerLost, lose_broker
from demo.delivery import TOPIC, Publishing, consume, progress_bars, publish, result_table
from demo.events import Events
from demo.verdict import Verdict

PARTITIONS = 4
COPIES = 2
#: Whoever lost its session has been gone for so long.
SESSION_MS = 4000
#: Seconds that the events are published over, so that what is done to bookies happens meanwhile; few take less.
PUBLISH_S = 12.0
RATE_MIN = 1000
#: With several brokers it takes twice as long, and this part of the events is sent when the first of them is killed.
BROKER_AT = 0.25
#: Seconds until every fragment has all its copies again.
PATIENCE_S = 90.0
RECOVERY = {"openLedgerRereplicationGracePeriod": 2000}


@dataclass(slots=True)
class Lost:
    """What happened."""

    bookies: int
    events: int
    killed: str = ""
    fragments_of_killed: int = 0
    joined: str = ""
    fragments_of_joined: int = 0
    restored_s: float = 0.0
    #: While the bookie was away, and before its copies were made anew.
    acknowledged_meanwhile: int = 0
    killed_second: str = ""
    ledgers: int = 0
    fragments: int = 0
    entries: int = 0
    entries_lacking_copies: int = 0
    fragments_naming_killed: int = 0
    found: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    brokers: int = 1
    #: With several brokers.
    broker: BrokerLost | None = None

    def see(self, copies: Copies, joined: str) -> None:
        """What there was of copies once all should be there."""
        self.ledgers, self.fragments, self.entries = copies.ledgers, copies.fragments, copies.entries
        self.entries_lacking_copies = copies.lacking
        self.fragments_naming_killed = copies.of_bookie[self.killed] + copies.naming_lost
        self.fragments_of_joined = copies.of_bookie[joined]

    def judge(self, verdict: Verdict) -> None:
        """What came out."""
        self.found, self.lost = len(verdict.first_seen), len(verdict.lost)
        self.duplicated, self.out_of_order = len(verdict.duplicates), len(verdict.out_of_order)

    def failures(self) -> list[str]:
        """What a promise was broken by, as sentences; what the events' verdict says comes on top."""
        wrong = {
            f"{self.entries_lacking_copies:,} entries are not on {COPIES} bookies": self.entries_lacking_copies,
            f"{self.fragments_naming_killed:,} fragments name a bookie that is gone": self.fragments_naming_killed,
            f"{self.killed} had nothing: its loss shows nothing": not self.fragments_of_killed,
        }
        of_broker = self.broker.failures() if self.broker is not None else []
        return [*of_broker, *(reason for reason, is_wrong in wrong.items() if is_wrong)]


class Losing:
    """One run."""

    def __init__(self, console: Console, cluster: Cluster, progress: Progress, lost: Lost) -> None:
        self._console = console
        self._cluster = cluster
        self._progress = progress
        self._look = Look(cluster.metadata_uri, SESSION_MS)
        self.lost = lost
        #: What kept the thread that does it from its end.
        self.error: Exception | None = None

    def lose_one(self, state: Publishing) -> None:
        """While events are published: a broker of several, then the bookie that most fragments name goes for good.

        An empty bookie joins.
        """
        try:
            if len(self._cluster.brokers) > 1:
                self.lost.broker = lose_broker(self._cluster, state, PARTITIONS, self._say)
            self._lose_one(state)
        except (OSError, TimeoutError, AssertionError) as error:
            self.error = error

    def _lose_one(self, state: Publishing) -> None:
        before = asyncio.run(self._look.at_fragments())
        victim = self._most_named(before)
        self.lost.killed, self.lost.fragments_of_killed = bookie_id(victim), before.of_bookie[bookie_id(victim)]
        acknowledged = len(state.acknowledged)
        started = time.monotonic()
        victim.kill()
        shutil.rmtree(victim.data)
        self._say(
            f"[bold red]kill -9[/] of bookie {self.lost.killed} with {acknowledged:,} events acknowledged; its "
            f"directory is removed: {self.lost.fragments_of_killed} of {before.fragments} fragments had a copy there"
        )
        bar = self._progress.add_task("restore", total=self.lost.fragments_of_killed)
        joined = self._cluster.join()
        self.lost.joined = bookie_id(joined)
        self._say(f"bookie {self.lost.joined} joins, with an empty directory")
        asyncio.run(self._look.until_unnamed(self.lost.killed, partial(self._show, bar), PATIENCE_S))
        self._show(bar, 0)
        self.lost.restored_s = time.monotonic() - started
        self.lost.acknowledged_meanwhile = len(state.acknowledged) - acknowledged
        self._say(
            f"no fragment names {self.lost.killed} any more, {self.lost.restored_s:.1f} s later; "
            f"{self.lost.acknowledged_meanwhile:,} events were acknowledged meanwhile"
        )

    def check_copies(self) -> None:
        """Every fragment, against what each bookie says it has."""
        copies = asyncio.run(self._look.at_copies())
        self.lost.see(copies, self.lost.joined)
        self._say(
            f"{copies.entries:,} entries in {copies.fragments} fragments of {copies.ledgers} ledgers were looked for "
            f"on {COPIES} bookies each: {copies.lacking:,} lack one; {self.lost.fragments_of_joined} fragments are on "
            "the new bookie"
        )

    def lose_another(self) -> None:
        """One that was there from the beginning, and the brokers, with all that they remember."""
        names = asyncio.run(self._look.at_fragments())
        names.of_bookie.pop(self.lost.joined, None)
        victim = self._most_named(names)
        self.lost.killed_second = bookie_id(victim)
        victim.kill()
        brokers = self._cluster.brokers.values()
        for broker in brokers:
            broker.kill()
        for broker in brokers:
            broker.launch()
        for broker in brokers:
            broker.wait_ready()
        back_ms = max(broker.start_seconds[-1] for broker in brokers) * 1000
        whom = "the broker, which is" if len(brokers) == 1 else f"the {len(brokers)} brokers, which are"
        self._say(
            f"[bold red]kill -9[/] of bookie {self.lost.killed_second} and of {whom} back after {back_ms:.0f} ms: "
            "what follows is read from what is left"
        )

    def _most_named(self, copies: Copies) -> BookieProcess:
        running = [bookie for bookie in self._cluster.bookies.values() if bookie.is_running]
        return max(running, key=lambda bookie: copies.of_bookie[bookie_id(bookie)])

    def _show(self, bar: TaskID, named: int) -> None:
        # Ledgers that are written meanwhile may come to name it until its session is over.
        total = max(self.lost.fragments_of_killed, named)
        self._progress.update(bar, total=total, completed=total - named)

    def _say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False)


def bookie_id(bookie: BookieProcess) -> str:
    """As ledgers name it."""
    return str(bookie.ready["bookieId"])


def run(
    console: Console, events: Events, directory: Path, *, bookies: int, as_json: bool, brokers: int = 1
) -> list[str]:
    """All of it; the reasons why it failed. Raises StartError."""
    quorums = {
        "managedLedgerDefaultEnsembleSize": min(COPIES + 1, bookies - 1),
        "managedLedgerDefaultWriteQuorum": COPIES,
        "managedLedgerDefaultAckQuorum": COPIES,
        # Many ledgers, and events that are there once.
        "managedLedgerMaxEntriesPerLedger": 100,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "brokerDeduplicationEnabled": "true",
    }
    cluster = Cluster(directory, bookies=bookies, brokers=brokers, session_ms=SESSION_MS, broker_settings=quorums)
    started = time.perf_counter()
    lost = Lost(bookies, len(events.rows), brokers=brokers)
    named = "a broker" if brokers == 1 else f"{brokers} brokers"
    try:
        cluster.start()
        cluster.start_autorecovery(RECOVERY)
        console.print(
            f"cluster: ZooKeeper, {bookies} bookies, auto-recovery and {named}, {bookies + brokers + 2} processes, "
            f"ready after {time.perf_counter() - started:.1f} s; "
            f"E/Qw/Qa {'/'.join(str(v) for v in list(quorums.values())[:3])}",
            highlight=False,
        )
        failures = _publish_and_read(console, cluster, events, directory, lost)
    finally:
        cluster.close()
    if as_json:
        print(json.dumps(asdict(lost)))
    else:
        report(console, lost)
    return failures


def _publish_and_read(console: Console, cluster: Cluster, events: Events, directory: Path, lost: Lost) -> list[str]:
    cluster.broker.request("PUT", f"/admin/v2/{TOPIC.replace('://', '/')}/partitions", PARTITIONS)
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(directory / "client.log"))
    client = pulsar.Client(cluster.service_url, logger=logger, operation_timeout_seconds=30)
    client.subscribe(TOPIC, "demo", initial_position=pulsar.InitialPosition.Earliest).close()
    with progress_bars(console) as progress:
        losing = Losing(console, cluster, progress, lost)
        over_s, at = min(PUBLISH_S, len(events.rows) / RATE_MIN), 0.5
        if lost.brokers > 1:
            over_s, at = 2 * over_s, BROKER_AT
        state = publish(client, events, progress, losing.lose_one, over_s=over_s, at=at)
        if losing.error is not None:
            return [f"a loss was not made up for: {losing.error!r}"]
        losing.check_copies()
        losing.lose_another()
        verdict = Verdict(len(events.rows), state.acknowledged, set())
        consume(client, verdict, events, progress)
    client.close()
    lost.judge(verdict)
    sends = [f"{count:,} sends failed with {name}" for name, count in state.errors.items()]
    return [*lost.failures(), *verdict.failures(expects_no_duplicates=True), *sends]


def report(console: Console, lost: Lost) -> None:
    """The table on screen."""
    table = result_table()
    table.add_row("published", f"{lost.events:,}", f"{lost.acknowledged_meanwhile:,} of them while copies were missing")
    if (broker := lost.broker) is not None:
        table.add_row("taken over", f"{broker.taken_over_s:.1f} s", f"{broker.partitions} of {PARTITIONS} partitions")
    table.add_row("fragments", f"{lost.fragments:,}", f"{lost.fragments_of_killed:,} had lost a copy")
    table.add_row("restored", f"{lost.restored_s:.1f} s", "from kill -9 on, until no fragment named the lost bookie")
    table.add_row("entries", f"{lost.entries:,}", f"looked for on each of their {COPIES} bookies")
    table.add_row("lacking", f"{lost.entries_lacking_copies:,}", "entries without all their copies")
    table.add_row("received", f"{lost.found:,}", "with a second bookie and all brokers killed before")
    table.add_row("lost", f"{lost.lost:,}", "acknowledged, yet never delivered")
    table.add_row("duplicates", f"{lost.duplicated:,}", "deduplication is on")
    table.add_row("out of order", f"{lost.out_of_order:,}", "first deliveries, per key")
    console.print(table)
