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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.process_tree import children_of, wait_gone

import geminga.client.blocking
from geminga.client import Message, MessageId

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


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
def test_kill_9_of_the_driver_and_the_broker_leaves_every_row_in_one_place(restartable, tmp_path, seed) -> None:
    rng = random.Random(seed)
    file = tmp_path / "p.yaml"
    file.write_text(FILE.format(url=restartable.service_url, per_batch=40, trigger="available"), encoding="utf-8")
    events = produce(restartable.service_url, range(900))
    close_windows(restartable.service_url)
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
                time.sleep(rng.random() * 1.5)
                batches, wanted = 0, rng.randint(1, 2)
                if kinds.pop() == "driver":
                    process.kill()
                    break
                restartable.kill()
                restartable.start()
        else:
            # A query that ended by an error, such as one of a broker that was away, is run again.
            if process.end() == 0 and has_ended:
                break
            failures += 1
            assert failures < 6, (tmp_path / "stderr.txt").read_text()
    assert not kinds, "the pipeline was done before all was killed"
    check_every_row(restartable.service_url, events)


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
