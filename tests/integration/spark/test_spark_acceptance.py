"""Spark jobs over real topics with kills at random moments: nothing lost, nothing twice, sums right.

EVENTS=file.jsonl[.gz] names the events (``make test-long EVENTS=...``), without it they are those of the demo without
a file. Where a ``weekly_expected.csv`` lies beside the file, the result is held against that too. SPARK_SEED=number
repeats a run, SPARK_KILLS=number makes more or fewer of them.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Self

import pytest
from demo.events import load_events
from demo.weekly import WEEK_MS, Sums, WindowKey, differences, is_of_owner, parse_result, split_owner, weekly
from tools.standalone_process import StandaloneProcess

from support.connector.spark_crash import (
    CrashRun,
    job,
    make_topics,
    publish,
    publish_to_partitions,
    read_all,
    subscribe,
)
from support.house.waiting import until

A1, A2, B = (f"persistent://public/default/{name}" for name in ("a1", "a2", "b"))
SEED = int(os.environ.get("SPARK_SEED", "0")) or random.randrange(1, 1 << 31)
KILLS = int(os.environ.get("SPARK_KILLS", "10"))
#: Batches for each kill, so that all of them fall into the run.
BATCHES = 5 * KILLS
DAY_MS = 24 * 3600 * 1000
WATERMARK_DAYS = 7000


class Stage:
    """A broker with deduplication, the events in A1 and A2, and a job."""

    def __init__(self, directory: Path, lines: list[bytes], seed: int) -> None:
        self.directory = directory
        self.lines = lines
        self.rng = random.Random(seed)
        settings = {"brokerDeduplicationEnabled": "true"}
        self.broker = StandaloneProcess(directory / "data", log=directory / "broker.log", settings=settings)

    def __enter__(self) -> Self:
        self.broker.start()
        make_topics(self.broker, A1, A2, B)
        asyncio.run(subscribe(self.broker.service_url, B))
        rows = [(event["repo"], line, event["event_time"]) for line in self.lines for event in [json.loads(line)]]
        owner = split_owner(key for key, _, _ in rows)
        for topic, is_first in ((A1, True), (A2, False)):
            chosen = [row for row in rows if is_of_owner(row[0], owner) == is_first]
            asyncio.run(publish(self.broker.service_url, topic, chosen))
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.kill()

    def crash_run(self, mode: str, *, batches: int, guarantee: str) -> CrashRun:
        """A job that reads the events in about so many batches."""
        per_trigger = max(1, len(self.lines) // batches)
        given = (mode, self.broker.service_url, (A1, A2), B, self.directory)
        running = job(*given, per_trigger=per_trigger, guarantee=guarantee)
        return CrashRun(self.broker, running, self.rng, batches_max=max(1, batches // (KILLS + 1)))


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    return [line for _, line in load_events(os.environ.get("EVENTS", "")).rows]


@pytest.fixture(autouse=True)
def _seed(request):
    print(f"SPARK_SEED={SEED}")


def expected_windows(lines: list[bytes]) -> dict[WindowKey, Sums]:
    """The plain computation, itself held against the table beside the events if there is one."""
    computed = weekly(lines)
    events = os.environ.get("EVENTS", "")
    table = Path(events).expanduser().parent / "weekly_expected.csv"
    if events and table.exists():
        with table.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        given = {
            WindowKey(int(row["window_start_ms"]), row["repo"]): Sums(*(int(row[name]) for name in Sums._fields))
            for row in rows
        }
        assert differences(computed, given) == []
    return computed


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("guarantee", ["exactly-once", "effectively-once"])
def test_every_event_is_copied_exactly_once_over_ten_kills(tmp_path, lines, guarantee):
    with Stage(tmp_path, lines, SEED) as stage:
        run = stage.crash_run("stateless", batches=BATCHES, guarantee=guarantee)
        with run.driver:
            run.run(KILLS)
        found = Counter(line for _, line in read_all(stage.broker.service_url, B))
    assert_each_once(found, lines, run)


def assert_each_once(found: Counter[bytes], lines: list[bytes], run: CrashRun) -> None:
    expected = Counter(lines)
    lost, twice = expected - found, found - expected
    told = f"SPARK_SEED={SEED}, kills {run.kills}, {run.restarts} restarts"
    assert (lost.total(), twice.total()) == (0, 0), f"{lost.total()} lost, {twice.total()} too many: {told}"


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_last_value_of_every_window_is_right_in_update_mode_over_ten_kills(tmp_path, lines):
    with Stage(tmp_path, lines, SEED + 1) as stage:
        run = stage.crash_run("update", batches=BATCHES, guarantee="at-least-once")
        with run.driver:
            run.run(KILLS)
        found = dict(parse_result(value) for _, value in read_all(stage.broker.service_url, B))
    assert differences(found, expected_windows(lines)) == [], f"SPARK_SEED={SEED}, kills {run.kills}"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("guarantee", ["exactly-once", "effectively-once"])
def test_every_window_is_written_once_in_append_mode_over_ten_kills(tmp_path, lines, guarantee):
    with Stage(tmp_path, lines, SEED + 2) as stage:
        run = stage.crash_run("append", batches=BATCHES, guarantee=guarantee)
        url = stage.broker.service_url
        with run.driver:
            run.run(KILLS - 2)
            # Only now: an event past the watermark would make late what other partitions still hold.
            last = max(json.loads(line)["event_time"] for line in lines)
            closing = {"repo": "closing", "event_time": last + WATERMARK_DAYS * DAY_MS + 2 * WEEK_MS}
            closing |= {"files": 0, "insertions": 0, "deletions": 0}
            for topic in (A1, A2):
                line = json.dumps(closing).encode()
                asyncio.run(publish_to_partitions(url, topic, line, closing["event_time"]))
            # One batch reads the closing events, the next one writes all windows: kill in the middle of that. The
            # driver last: after its start it has that batch alone, and tells of it when it is over.
            run.moment_max_s = 0.5
            run.run_through(["broker", "driver"])
        rows = [parse_result(value) for _, value in read_all(url, B)]
    told = f"SPARK_SEED={SEED}, kills {run.kills}"
    assert differences(dict(rows), expected_windows(lines)) == [], told
    assert len(rows) == len({key for key, _ in rows}), told


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("guarantee", "is_exact"), [("exactly-once", True), ("effectively-once", True), ("at-least-once", False)]
)
def test_shuffled_batch_replayed_in_another_order_with_other_cores(tmp_path, guarantee, is_exact):
    """The batch is written, its commit is taken out of the checkpoint, and it is written again.

    At least once is the control: it must show the replay as duplicates.
    """
    lines = [line for _, line in load_events("").rows][-3000:]
    with Stage(tmp_path, lines, SEED) as stage:
        given = ("shuffled", stage.broker.service_url, (A1, A2), B, tmp_path)
        with job(*given, per_trigger=10_000, guarantee=guarantee) as driver:
            for cores, order in ((2, 1), (1, 2)):
                driver.start(["--cores", str(cores), "--order", str(order)])
                assert driver.wait(600) == 0, driver.log_tail()
                commits = sorted(
                    (path for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdigit()),
                    key=lambda path: int(path.name),
                )
                for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
                    path.unlink(missing_ok=True)
        found = Counter(line for _, line in read_all(stage.broker.service_url, B))
    assert set(found) == set(lines)
    duplicates = found.total() - len(lines)
    assert (duplicates == 0) if is_exact else (duplicates >= len(lines))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("subscription", ["", "mine"])
def test_job_killed_and_never_started_again_leaves_no_subscription_but_the_one_named(tmp_path, subscription):
    lines = [line for _, line in load_events("").rows][-3000:]
    with Stage(tmp_path, lines, SEED) as stage:
        # The stage holds the events for jobs to come.
        named = subscriptions_of(stage.broker) | ({subscription} - {""})
        given = ("stateless", stage.broker.service_url, (A1, A2), B, tmp_path)
        with job(*given, per_trigger=100, guarantee="at-least-once", subscription=subscription) as driver:
            driver.start()
            while (report := driver.next_report(120)) is not None and report.get("batch", -1) < 2:
                continue
            assert report is not None, driver.log_tail()
            before = subscriptions_of(stage.broker)
            assert named <= before
            driver.kill()
        # The broker hears of the closed connections; what lasts is what is left.
        until(lambda: subscriptions_of(stage.broker) == named, f"{named} alone is left of {before}", limit_s=30)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_job_killed_and_never_started_again_leaves_no_transaction_past_its_bound(tmp_path):
    lines = [line for _, line in load_events("").rows][-3000:]
    with Stage(tmp_path, lines, SEED) as stage:
        given = ("stateless", stage.broker.service_url, (A1, A2), B, tmp_path)
        options = {"per_trigger": 100, "guarantee": "exactly-once", "txn_timeout": "20s"}
        with job(*given, **options) as driver:
            driver.start()
            while (report := driver.next_report(120)) is not None and report.get("batch", -1) < 2:
                continue
            assert report is not None, driver.log_tail()
            driver.kill()
        until(lambda: not open_transactions(stage.broker), "no transaction is open", limit_s=60)
        topics = json.loads(stage.broker.request("GET", "/admin/v2/persistent/public/default"))
        left = {topic.rpartition("/")[2]: subscriptions_of_topic(stage.broker, topic) for topic in topics}
        assert left["__spark_commits"] == {"__spark_commits"}
        assert set().union(*left.values()) == {"crash", "check", "__spark_commits"}


def open_transactions(broker: StandaloneProcess) -> dict[str, object]:
    """All that are not over, of all coordinators."""
    found: dict[str, object] = json.loads(broker.request("GET", "/admin/v3/transactions/slowTransactions/0"))
    return found


def subscriptions_of_topic(broker: StandaloneProcess, topic: str) -> set[str]:
    path = f"/admin/v2/{topic.replace('://', '/')}/stats"
    return set(json.loads(broker.request("GET", path))["subscriptions"])


def subscriptions_of(broker: StandaloneProcess) -> set[str]:
    """Names of all subscriptions of the inputs, those of readers included."""
    found: set[str] = set()
    for topic in (A1, A2):
        stats = json.loads(broker.request("GET", f"/admin/v2/{topic.replace('://', '/')}/partitioned-stats"))
        found |= set(stats["subscriptions"])
    return found
