"""``python -m bench compaction``: a topic is compacted while another is published to, beside Apache Pulsar.

Each row fills a topic on a fresh server, publishes to another one at a fixed rate, first while nothing else happens and
then while the first is compacted, and reads what was compacted. The client is ours for both servers; their data go
before the next one starts. What was read is counted: each key once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from tools.standalone_process import StandaloneProcess

from bench.measure import TOPIC, Row
from bench.peers.rows import PULSAR
from bench.peers.servers import GEMINGA, find_kinds, machine
from bench.peers.verdict import FAILED
from bench.servers import Bench, BenchError
from geminga.client import Client, MessageId, connect

#: Messages of a row, unless ``--messages`` says otherwise.
MESSAGES: Final = 1_000_000
#: Publishes a second to the other topic: one at a time, from a fixed schedule.
RATE: Final = 200
#: Seconds of it before the compaction.
QUIET_S: Final = 5.0
#: Between two looks at status and memory.
LOOK_S: Final = 0.1
COMPACTION_LIMIT_S: Final = 1800.0
#: Messages that are under way while a topic is filled.
FILLED_AT_ONCE: Final = 10_000
SEND_LIMIT_MS: Final = 120_000
#: p99 while it is compacted, over p99 before: no more is wanted of ours.
GOAL: Final = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    """One row: what the topic has."""

    name: str
    size: int
    #: Messages of each key.
    per_key: int = 10
    batched: bool = True

    def key(self, number: int) -> str:
        """Of the message with this number; all keys are equally long."""
        return f"key-{number:012d}"


CASES: Final = (
    Case("1 KiB, batched, 10 a key", 1024),
    Case("1 KiB, one an entry, 10 a key", 1024, batched=False),
    Case("32 B, batched, 10 a key", 32),
    Case("32 B, batched, each its own key", 32, per_key=1),
)


def selected(text: str) -> list[Case]:
    """The cases whose name contains ``text``, whatever its case; several are joined by " or "."""
    parts = [part.strip().casefold() for part in text.split(" or ")]
    return [case for case in CASES if any(part in case.name.casefold() for part in parts)]


def percentile(values: list[float], share: float) -> float:
    """Of latencies, in their unit; 0 where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


class Bystander:
    """Publishes to another topic at a fixed rate; a latency begins when its message was due."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.latencies_ms: list[float] = []
        self._is_over = False

    async def run(self) -> None:
        """Until :meth:`stop`."""
        async with self.client.create_producer(f"{TOPIC}-other", batching_enabled=False) as producer:
            due = time.perf_counter()
            pending: set[asyncio.Task[None]] = set()
            while not self._is_over:
                due += 1 / RATE
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                pending.add(task := asyncio.create_task(self._send(producer, due)))
                task.add_done_callback(pending.discard)
            await asyncio.gather(*pending)

    async def _send(self, producer: Any, due: float) -> None:
        await producer.send(b"x" * 100)
        self.latencies_ms.append((time.perf_counter() - due) * 1000)

    def taken(self) -> list[float]:
        """The latencies since the last call."""
        found, self.latencies_ms = self.latencies_ms, []
        return found

    def stop(self) -> None:
        """No more."""
        self._is_over = True


async def fill(client: Client, case: Case, messages: int) -> None:
    """Publish, in an order of keys that is the same each time."""
    keys = max(1, messages // case.per_key)
    payload = random.Random(1).randbytes(case.size)
    order = random.Random(2)
    async with client.create_producer(
        TOPIC, batching_enabled=case.batched, max_pending_messages=2 * FILLED_AT_ONCE, send_timeout_millis=SEND_LIMIT_MS
    ) as producer:
        for number in range(messages):
            key = number if number < keys else order.randrange(keys)
            producer.send_nowait(payload, partition_key=case.key(key))
            if number % FILLED_AT_ONCE == FILLED_AT_ONCE - 1:
                await producer.flush()
        await producer.flush()


async def compacted(server: StandaloneProcess) -> tuple[float, int]:
    """Compact, to the end: seconds, and the largest resident memory seen, bytes. Raises BenchError."""
    path = f"/admin/v2/{TOPIC.replace('://', '/')}/compaction"
    began = time.perf_counter()
    await asyncio.to_thread(server.request, "PUT", path)
    peak = 0
    while True:
        peak = max(peak, server.rss_bytes())
        status = json.loads(await asyncio.to_thread(server.request, "GET", path))
        if status["status"] == "SUCCESS":
            return time.perf_counter() - began, peak
        if status["status"] != "RUNNING":
            raise BenchError(f"compaction: {status}")
        if time.perf_counter() - began > COMPACTION_LIMIT_S:
            raise BenchError(f"compaction took longer than {COMPACTION_LIMIT_S:g} s")
        await asyncio.sleep(LOOK_S)


async def read(client: Client) -> tuple[int, float]:
    """All that a reader of compacted messages gets: how many, and seconds."""
    began = time.perf_counter()
    count = 0
    async with client.create_reader(TOPIC, MessageId.earliest, is_read_compacted=True) as reader:
        while await reader.has_message_available():
            await reader.read_next()
            count += 1
    return count, time.perf_counter() - began


async def measured(server: StandaloneProcess, case: Case, messages: int) -> Row:
    """One row on one server that is ready."""
    async with connect(server.service_url) as client:
        began = time.perf_counter()
        await fill(client, case, messages)
        filled_s = time.perf_counter() - began
        bystander = Bystander(client)
        publishing = asyncio.create_task(bystander.run())
        await asyncio.sleep(QUIET_S / 2)
        bystander.taken()
        quiet_cpu_s = server.cpu_seconds()
        await asyncio.sleep(QUIET_S)
        quiet, quiet_cpu_s = bystander.taken(), server.cpu_seconds() - quiet_cpu_s
        idle_bytes, cpu_s = server.rss_bytes(), server.cpu_seconds()
        seconds, peak_bytes = await compacted(server)
        busy, cpu_s = bystander.taken(), server.cpu_seconds() - cpu_s
        bystander.stop()
        await publishing
        count, read_s = await read(client)
    wanted = max(1, messages // case.per_key)
    if count != wanted:
        raise BenchError(f"{case.name}: {count:,} messages were read, not {wanted:,}")
    before, meanwhile = percentile(quiet, 0.99), percentile(busy, 0.99)
    return {
        "fill/s": round(messages / filled_s),
        "seconds": seconds,
        "MB/s": messages * case.size / seconds / 1e6,
        "messages/s": round(messages / seconds),
        "CPU us": max(0.0, cpu_s - quiet_cpu_s / QUIET_S * seconds) * 1e6 / messages,
        "peak MB above idle": round((peak_bytes - idle_bytes) / 1e6),
        "p50 quiet": percentile(quiet, 0.5),
        "p50": percentile(busy, 0.5),
        "p99 quiet": before,
        "p99": meanwhile,
        "max": max(busy, default=0.0),
        "x quiet": meanwhile / before if before else 0.0,
        "read/s": round(count / read_s),
    }


def compaction(bench: Bench, options: argparse.Namespace) -> list[Row]:
    """The table; ``--alone``: without Apache Pulsar."""
    console = Console(stderr=True, soft_wrap=True)
    cases = selected(options.k)
    if not cases:
        raise BenchError(f"no row's name contains {options.k!r}")
    kinds = find_kinds()
    names = [GEMINGA] if options.alone else [GEMINGA, PULSAR]
    messages = options.messages or MESSAGES
    console.print(machine(), markup=False, highlight=False)
    table: list[Row] = []
    for case in cases:
        for name in names:
            kind = kinds[name]
            if kind.missing:
                console.print(f"without {kind.title}: {kind.missing}", markup=False)
                continue
            row: Row = {"row": case.name, "server": kind.title, "messages": messages}
            try:
                with kind.started(bench) as server:
                    row |= asyncio.run(measured(server, case, messages))
                verdict = "yes" if row["x quiet"] <= GOAL else "NO"
                row["met"] = verdict if name == GEMINGA else "-"
            except (BenchError, OSError) as error:
                console.print(f"{case.name}, {kind.title}: FAILED: {error}", markup=False)
                row["verdict"] = FAILED
            table.append(row)
            console.print(str(row), markup=False, highlight=False)
    done = [row for row in table if "verdict" not in row]
    if not done:
        raise BenchError("nothing could be measured")
    return done
