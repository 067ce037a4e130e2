"""``geminga pipeline run`` as a process: killed, interrupted, its broker restarted, and run again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from tools.process_tree import children_of, wait_gone

import geminga.client.blocking
from geminga.client import Message, MessageId
from geminga.spark.pipelines.outputs import committed_names

MINUTE_MS = 60_000
START_MS = 1_767_225_600_000
WINDOW_MS = 30 * MINUTE_MS

FILE = """
pipeline: killed
cluster:
  service_url: {url}
sources:
  - name: in
    topics: [a1, a2]
    columns: id long, item string
    max_messages: {per_batch}
watermark: 1 hour
window:
  tumbling: 30 minutes
keys: [item]
aggregates:
  n: count(*)
late:
  topic: late
sink:
  topic: b
  fields: {{start_ms: unix_millis(window_start), item: item, n: n}}
trigger: {trigger}
spark:
  settings:
    spark.sql.shuffle.partitions: 2
"""


class PipelineProcess:
    """One run of the command, in a process group of its own, as a shell starts it."""

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-m", "geminga", "pipeline", "run", str(file), "--json"]
        self._log = (file.parent / "stderr.txt").open("a")
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, start_new_session=True
        )
        self.pid = self._process.pid

    def events(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)

    def signal_group(self, number: int) -> None:
        """As a terminal does."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        started = children_of([self.pid])
        os.kill(self.pid, signal.SIGKILL)
        self.end()
        # The JVM ends when it notices; until then its tasks may go on, which must do no harm either.
        wait_gone(started, 60.0)

    def end(self) -> int:
        assert self._process.stdout is not None
        self._process.stdout.read()
        code = self._process.wait(60)
        self._process.stdout.close()
        self._log.close()
        return code


def produce(url: str, numbers: range) -> list[tuple[int, str]]:
    """(event time, item) of each: one a minute; every tenth two hours late."""
    found = []
    with geminga.client.blocking.connect(url) as client:
        for topic in ("b", "late"):
            client.subscribe(topic, "keep").close()
        producers = [client.create_producer(topic) for topic in ("a1", "a2")]
        for number in numbers:
            at_ms = START_MS + number * MINUTE_MS - (120 * MINUTE_MS if number % 10 == 9 else 0)
            item = f"i{number % 3}"
            found.append((at_ms, item))
            content = json.dumps({"id": number, "item": item}).encode()
            producers[number % 2].send_nowait(
                content, partition_key=item, event_timestamp=at_ms, properties={"number": str(number)}
            )
        for producer in producers:
            producer.flush()
    return found


def close_windows(url: str) -> None:
    """An event far behind all others; its own window stays open."""
    with geminga.client.blocking.connect(url) as client, client.create_producer("a1") as producer:
        producer.send(b'{"id": 0, "item": "end"}', event_timestamp=START_MS + 10**9, properties={"number": "-1"})


def read_all(url: str, topic: str) -> list[Message[bytes]]:
    found = []
    with geminga.client.blocking.connect(url) as client, client.create_reader(topic, MessageId.earliest) as reader:
        while reader.has_message_available():
            found.append(reader.read_next())
    return found


def check_every_row(url: str, events: list[tuple[int, str]]) -> None:
    """Each row is in one window, or late, once; the last event closes all windows and is in none."""
    late = [int(message.properties()["number"]) for message in read_all(url, "late")]
    counted: Counter[tuple[int, str]] = Counter()
    written: Counter[tuple[int, str]] = Counter()
    for message in read_all(url, "b"):
        row = json.loads(message.data())
        counted[row["start_ms"], row["item"]] += row["n"]
        written[row["start_ms"], row["item"]] += 1
    assert len(late) == len(set(late))
    expected = Counter(
        (at_ms // WINDOW_MS * WINDOW_MS, item) for number, (at_ms, item) in enumerate(events) if number not in late
    )
    assert counted == expected
    assert set(written.values()) == {1}
    assert sum(counted.values()) + len(late) == len(events)
    assert len(late) > len(events) // 20


def run_over_kills(
    file: Path, broker: Any, rng: random.Random, *, batch_s: float, look: Callable[[], None] = lambda: None
) -> None:
    """To its end, with three drivers and a broker killed on the way; ``look`` is called after each driver's kill."""
    kinds = ["driver", "broker", "driver", "driver"]
    rng.shuffle(kinds)
    failures = 0
    while True:
        process = PipelineProcess(file)
        batches, wanted = 0, rng.randint(1, 3)
        has_ended = False
        for event in process.events():
            has_ended = has_ended or event["event"] == "ended"
            batches += event["event"] == "batch"
            if kinds and batches == wanted:
                time.sleep(rng.random() * batch_s)
                batches, wanted = 0, rng.randint(1, 2)
                if kinds.pop() == "driver":
                    process.kill()
                    look()
                    break
                broker.kill()
                broker.start()
        else:
            # A query that ended by an error, such as one of a broker that was away, is run again.
            if process.end() == 0 and has_ended:
                break
            failures += 1
            assert failures < 6, (file.parent / "stderr.txt").read_text()
    assert not kinds, "the pipeline was done before all was killed"


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
def test_kill_9_of_the_driver_and_the_broker_leaves_every_row_in_one_place(restartable, tmp_path, seed) -> None:
    rng = random.Random(seed)
    file = tmp_path / "p.yaml"
    file.write_text(FILE.format(url=restartable.service_url, per_batch=40, trigger="available"), encoding="utf-8")
    events = produce(restartable.service_url, range(900))
    close_windows(restartable.service_url)
    run_over_kills(file, restartable, rng, batch_s=1.5)
    check_every_row(restartable.service_url, events)


READY = """
use: {use}
pipeline: killed
cluster:
  service_url: {url}
with: {parameters}
sources:
  - {source}
"""


def send_all(
    url: str, topic: str, messages: list[tuple[bytes | None, dict[str, Any]]], *, is_batched: bool = True
) -> None:
    with geminga.client.blocking.connect(url) as client:
        client.subscribe(topic, "keep").close()
        with client.create_producer(topic, batching_enabled=is_batched) as producer:
            for number, (content, more) in enumerate(messages, 1):
                producer.send_nowait(content, **more)
                if number % 20 == 0:
                    producer.flush()
            producer.flush()


def write_file(tmp_path: Path, url: str, use: str, parameters: dict[str, str], source: dict[str, Any]) -> Path:
    file = tmp_path / "p.yaml"
    text = READY.format(use=use, url=url, parameters=json.dumps(parameters), source=json.dumps(source))
    file.write_text(text, encoding="utf-8")
    return file


def keep(url: str, *topics: str) -> None:
    with geminga.client.blocking.connect(url) as client:
        for topic in topics:
            client.subscribe(topic, "keep").close()


def acknowledged(broker: Any, topic: str, messages: int) -> int:
    """How many messages the pipeline's subscription no longer holds back; a backlog counts entries."""
    told = json.loads(broker.request("GET", f"/admin/v2/persistent/public/default/{topic}/stats"))
    subscription = told["subscriptions"].get("killed")
    return 0 if subscription is None else messages - int(subscription["msgBacklog"])


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_dead_letters_are_back_once_and_acknowledged_behind_their_copies(restartable, tmp_path) -> None:
    url = restartable.service_url
    prefix = "persistent://public/default"
    origins = [f"{prefix}/o{n}" for n in range(3)]
    refused = f"{prefix}/dlq-refused"
    keep(url, *origins, refused)
    messages: list[tuple[bytes | None, dict[str, Any]]] = []
    for number in range(600):
        # Each fifth names a topic of another namespace.
        origin = "persistent://public/other/t" if number % 5 == 4 else origins[number % 3]
        messages.append((f"m{number}".encode(), {"properties": {"REAL_TOPIC": origin, "RECONSUMETIMES": "3"}}))
    send_all(url, "dlq", messages, is_batched=False)
    file = write_file(tmp_path, url, "redrive", {"topic": "dlq"}, {"name": "in", "topic": "dlq", "max_messages": 40})

    def copies() -> list[bytes]:
        return [message.data() for topic in (*origins, refused) for message in read_all(url, topic)]

    def look() -> None:
        """In this order: copies that come in between can only make them more."""
        gone = acknowledged(restartable, "dlq", len(messages))
        assert gone <= len(copies())

    run_over_kills(file, restartable, random.Random(3), batch_s=1.0, look=look)
    assert sorted(copies()) == sorted(content for content, _ in messages if content is not None)
    assert {m.data() for m in read_all(url, refused)} == {f"m{n}".encode() for n in range(4, 600, 5)}
    for number, origin in enumerate(origins):
        assert all(int(m.data()[1:]) % 3 == number for m in read_all(url, origin))
    # All but the last batch.
    assert len(messages) > acknowledged(restartable, "dlq", len(messages)) >= len(messages) - 40


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_topic_is_in_its_parquet_files_once_for_readers_of_any_kind(restartable, tmp_path) -> None:
    url, directory = restartable.service_url, tmp_path / "files"
    messages = [(f"m{number}".encode(), {"partition_key": f"k{number % 7}"}) for number in range(600)]
    send_all(url, "orders", [*messages, (None, {})])
    parameters = {"topic": "orders", "directory": str(directory)}
    source = {"name": "in", "topic": "orders", "max_messages": 40}
    run_over_kills(
        write_file(tmp_path, url, "topic-to-parquet", parameters, source), restartable, random.Random(4), batch_s=1.0
    )
    sent = Counter([content for content, _ in messages] + [None])
    committed = committed_names(str(directory))
    assert committed is not None
    by_spark = [
        value
        for path in directory.glob("part-*.parquet")
        if path.name in committed
        for value in pq.read_table(path, columns=["value"]).column("value").to_pylist()
    ]
    assert Counter(by_spark) == sent
    plain = pyarrow.dataset.dataset(directory, format="parquet").to_table(columns=["value"])
    assert Counter(plain.column("value").to_pylist()) == sent


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_each_row_of_parquet_files_is_a_message_once(restartable, tmp_path) -> None:
    url, directory = restartable.service_url, tmp_path / "files"
    directory.mkdir()
    keep(url, "again")
    for number in range(16):
        ids = list(range(number * 40, number * 40 + 40))
        # Row groups, so that a task can be cut off in the middle of a file.
        pq.write_table(pa.table({"id": ids}), directory / f"{number}.parquet", row_group_size=10)
    parameters = {"directory": str(directory), "topic": "again", "columns": "id long", "key": "cast(id % 5 as string)"}
    source = {"name": "in", "parquet": str(directory), "columns": "id long", "max_files": 1}
    run_over_kills(
        write_file(tmp_path, url, "parquet-to-topic", parameters, source), restartable, random.Random(5), batch_s=1.0
    )
    assert sorted(json.loads(m.data())["id"] for m in read_all(url, "again")) == list(range(640))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_table_is_what_compaction_keeps_by_place_and_not_by_time(restartable, tmp_path) -> None:
    url, directory = restartable.service_url, tmp_path / "table"
    rng = random.Random(6)
    newest: dict[str, bytes] = {}
    messages: list[tuple[bytes | None, dict[str, Any]]] = []
    for number in range(600):
        key = None if number % 11 == 10 else f"k{rng.randrange(60)}"
        content = rng.choice([None, b""]) if number % 4 == 3 else f"m{number}".encode()
        # Event times fall: by time, the oldest would be the newest.
        more: dict[str, Any] = {"event_timestamp": START_MS - number * MINUTE_MS}
        messages.append((content, more if key is None else {**more, "partition_key": key}))
        if key is not None:
            newest.pop(key, None)
            if content:
                newest[key] = content
    send_all(url, "prices", messages)
    parameters = {"topic": "prices", "directory": str(directory)}
    source = {"name": "in", "topic": "prices", "max_messages": 40}

    def table() -> dict[str, bytes]:
        rows = pq.read_table(directory / "current").to_pylist()
        found = {row["__key"]: row["value"] for row in rows}
        assert len(found) == len(rows)
        return found

    def look() -> None:
        """At every moment a reader finds a whole table, of some batch."""
        if (directory / "current").exists():
            assert table()

    file = write_file(tmp_path, url, "table", parameters, source)
    run_over_kills(file, restartable, random.Random(7), batch_s=1.0, look=look)
    assert table() == newest


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ctrl_c_in_the_first_batch_is_a_clean_end_and_the_next_run_goes_on(restartable, tmp_path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(FILE.format(url=restartable.service_url, per_batch=100, trigger="always"), encoding="utf-8")
    events = produce(restartable.service_url, range(300))
    process = PipelineProcess(file)
    for event in process.events():
        if event["event"] == "started":
            status = [sys.executable, "-m", "geminga", "pipeline", "status", str(file), "--json"]
            told = json.loads(subprocess.run(status, capture_output=True, timeout=60, check=True).stdout)
            assert told["isRunning"]
            assert told["pid"] == process.pid
            process.signal_group(signal.SIGINT)
        if event["event"] == "ended":
            assert event["isStopped"]
            assert event["batches"] <= 1
    assert process.end() == 0, (tmp_path / "stderr.txt").read_text()
    close_windows(restartable.service_url)
    process = PipelineProcess(file)
    idle = 0
    for event in process.events():
        idle += event["event"] == "batch" and event["rows"] == 0
        if idle == 1 and event["event"] == "batch":
            os.kill(process.pid, signal.SIGTERM)
    assert process.end() == 0, (tmp_path / "stderr.txt").read_text()
    check_every_row(restartable.service_url, events)
