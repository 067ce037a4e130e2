"""The topics around the weekly windows: rows into A1 and A2, the job, and what is in B and in the table after it.

What came out is read by Geminga's own client and by PyArrow: Spark has no part in judging itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow.parquet as pq
from tools.spark_driver import SparkDriver
from tools.standalone_process import StandaloneProcess

from demo.accounts import Found, SideRow, side_row
from demo.events import Events
from demo.troubled import WEEK_MS, Row
from demo.weekly import Sums, WindowKey, check_event, is_of_owner, parse_result, split_owner
from geminga.client import Message, MessageId, connect

NAMESPACE = "public/default"
A1, A2, B, LATE = (f"persistent://{NAMESPACE}/{name}" for name in ("a1", "a2", "b", "b-late"))
#: What the job promises, unless it is told otherwise.
GUARANTEE = "exactly-once"
PARTITIONS = 2
SUBSCRIPTION = "weekly"
#: The repository of the events that close all windows; their own window is never closed.
CLOSING = "closing"
#: Entries of the inputs end after so many rows, so that topics and partitions can be read side by side.
ROWS_A_FLUSH = 50
LATE_REASON = "late"
Parsed = TypeVar("Parsed")


def rows_of(events: Events) -> tuple[list[Row], str]:
    """The events as rows, and whose repositories are in A1. Raises EventError."""
    parsed = [check_event(line, number) for number, (_, line) in enumerate(events.rows, 1)]
    owner = split_owner(str(event["repo"]) for event in parsed)
    rows = []
    for (_, line), event in zip(events.rows, parsed, strict=True):
        repo, at = str(event["repo"]), event["event_time"]
        assert isinstance(at, int)
        rows.append(Row(repo, line, at, str(event["commit"]), is_of_owner(repo, owner)))
    return rows, owner


class WeeklyStage:
    """One broker, one directory, the rows and their topics."""

    def __init__(self, broker: StandaloneProcess, directory: Path, rows: Sequence[Row], delay_ms: int) -> None:
        self._broker = broker
        self._directory = directory
        self._rows = rows
        self._delay_ms = delay_ms
        self._table = directory / "table"

    def make_topics(self, guarantee: str) -> None:
        """Partitioned, each with a subscription that keeps what nobody has read yet, and what the guarantee needs."""
        for topic in (A1, A2, B, LATE):
            self._broker.request("PUT", f"/admin/v2/{topic.replace('://', '/')}/partitions", PARTITIONS)
        asyncio.run(self._subscribe())
        if guarantee == "effectively-once":
            self._broker.request("POST", f"/admin/v2/namespaces/{NAMESPACE}/deduplication", True)

    async def _subscribe(self) -> None:
        async with connect(self._broker.service_url) as client:
            for topic, name in ((A1, SUBSCRIPTION), (A2, SUBSCRIPTION), (B, "demo"), (LATE, "demo")):
                await (await client.subscribe(topic, name)).close()

    def publish(self, advance: Callable[[int], None]) -> dict[str, int]:
        """All rows, each with its key and event time; topic -> rows."""
        return asyncio.run(self._publish(advance))

    async def _publish(self, advance: Callable[[int], None]) -> dict[str, int]:
        counts = {A1: 0, A2: 0}
        async with connect(self._broker.service_url) as client:
            producers = {topic: await client.create_producer(topic) for topic in counts}
            for number, row in enumerate(self._rows, 1):
                topic = A1 if row.is_first else A2
                counts[topic] += 1
                producers[topic].send_nowait(row.value, partition_key=row.key, event_timestamp=row.at_ms)
                if number % ROWS_A_FLUSH == 0 or number == len(self._rows):
                    for producer in producers.values():
                        await producer.flush()
                    advance(number)
        return counts

    def close_windows(self, id_field: str) -> None:
        """An event to each partition that is late enough to close every window that has an event."""
        last = max(row.at_ms for row in self._rows if row.at_ms is not None)
        at_ms = last + self._delay_ms + 2 * WEEK_MS
        event: dict[str, object] = {id_field: CLOSING, "repo": CLOSING, "event_time": at_ms}
        event |= {"files": 0, "insertions": 0, "deletions": 0}
        asyncio.run(self._publish_everywhere(json.dumps(event).encode(), at_ms))

    async def _publish_everywhere(self, value: bytes, at_ms: int) -> None:
        async with connect(self._broker.service_url) as client:
            for topic in (A1, A2):
                for partition in range(PARTITIONS):
                    producer = await client.create_producer(f"{topic}-partition-{partition}")
                    await producer.send(value, event_timestamp=at_ms)

    def driver(self, per_trigger: int, id_field: str, *, mode: str, guarantee: str) -> SparkDriver:
        """The job, not started yet."""
        arguments = {
            "--service-url": self._broker.service_url,
            "--topics": f"{A1},{A2}",
            "--output": B,
            "--late": LATE,
            "--table": str(self._table),
            "--checkpoint": str(self._directory / "checkpoint"),
            "--per-trigger": str(per_trigger),
            "--delay-ms": str(self._delay_ms),
            "--id": id_field,
            "--mode": mode,
            "--guarantee": guarantee,
        }
        line = [part for pair in arguments.items() for part in pair]
        return SparkDriver("demo.weekly_job", line, log=self._directory / "spark.log")

    def open_transactions(self) -> list[str]:
        """Transactions that have written and are not ended: what readers of a topic wait for."""
        told = json.loads(self._broker.request("GET", "/admin/v3/transactions/slowTransactions/1"))
        return sorted(txn_id for txn_id, metadata in told.items() if metadata.get("producedPartitions"))

    def found(self) -> Found:
        """All that came out, but the closing events."""
        found = Found(read_table(self._table), [])
        found.messages, found.table = asyncio.run(self._read(B, window_of)), found.messages
        for reason, row in asyncio.run(self._read(LATE, reason_and_row)):
            (found.late if reason == LATE_REASON else found.refused)[row] += 1
        for pairs in (found.messages, found.table):
            pairs[:] = [pair for pair in pairs if pair[0].repo != CLOSING]
        return found

    async def _read(self, topic: str, parse: Callable[[Message], Parsed]) -> list[Parsed]:
        rows = []
        async with connect(self._broker.service_url) as client:
            for partition in range(PARTITIONS):
                reader = await client.create_reader(f"{topic}-partition-{partition}", MessageId.earliest)
                while await reader.has_message_available():
                    rows.append(parse(await reader.read_next()))
        return rows


def window_of(message: Message) -> tuple[WindowKey, Sums]:
    """A message of topic B."""
    return parse_result(message.data())


def reason_and_row(message: Message) -> tuple[str, SideRow]:
    """A message of the topic of late rows."""
    key = message.partition_key() if message.has_key() else None
    return message.properties()["reason"], side_row(key, message.data(), message.event_timestamp() or None)


def read_table(directory: Path) -> list[tuple[WindowKey, Sums]]:
    """The rows of the Parquet table in the order of the batches that wrote them."""
    rows = []
    for batch in sorted(directory.glob("batch=*"), key=lambda path: int(path.name.partition("=")[2])):
        for file in sorted(batch.glob("*.parquet")):
            for row in pq.ParquetFile(file).read().to_pylist():
                key = WindowKey(row["window_start_ms"], row["repo"] or "")
                rows.append((key, Sums(row["commits"], row["files"], row["insertions"], row["deletions"])))
    return rows
