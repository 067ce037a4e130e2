"""A restart with ten million delayed entries: until the index is complete, until the first due message comes.

Whole path: a standalone on the scratch disk, a topic with a Shared subscription, messages over a connection. Only what
waits for long is not published: it is put into the index, and its ledgers are listed but have no entries, so that
a restart which read the backlog would fail. Writer and restart are forked children; the first ends as by a kill.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from bench.cursor import in_child, resident_bytes
from bench.measure import Row
from bench.servers import Bench, BenchError
from geminga.app.configuration.config import load_config
from geminga.app.servers.standalone import StandaloneServer
from geminga.broker.topic.delays import delays_stats
from geminga.broker.topic.persistent import PersistentTopic
from geminga.client import ConsumerType, InitialPosition, connect
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.metadata.ports import MUST_NOT_EXIST
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.wire.managed_ledger import LedgerRecord, ManagedLedgerRecord, encode_managed_ledger_info

ENTRIES = 10_000_000
ENTRIES_PER_LEDGER = 50_000
FIRST_LEDGER = 1_000_000
HOUR_MS = 3600 * 1000
#: Real messages that come due while the broker is away.
DUE_MESSAGES = 100
#: Entries that are indexed between two turns of the loop.
STEP = 100
#: Nothing else of the process may wait longer for the loop.
BLOCKED_MS_MAX = 50.0
TOPIC = "persistent://public/default/delayed"
NAME = TopicName.parse(TOPIC)
#: Delay of entry i after an hour, ms.
KINDS: dict[str, Callable[[random.Random, int], int]] = {
    "rising": lambda _, i: i // 8,
    "random": lambda rng, _: int(rng.random() * 24 * HOUR_MS),
}


def restart(bench: Bench, entries: int = ENTRIES) -> Iterator[Row]:
    """Rows for each kind of delays."""
    for kind in KINDS:
        with bench.directory("delayed") as directory:
            wrote = in_child(lambda d=directory, k=kind: _written(d, k, entries))
            found = in_child(lambda d=directory: _restarted(d))
        if found["entries"] != entries:
            raise BenchError(f"{kind}: {entries} entries waited, {found['entries']} wait after the restart")
        case = f"restart, {kind}"
        yield _row(case, "snapshot, MB", wrote["mb"])
        yield _row(case, "snapshot written, s", wrote["seconds"])
        yield _row(case, "... loop blocked at most, ms", wrote["blocked_ms"], BLOCKED_MS_MAX)
        yield _row(case, "topic loaded, index complete, s", found["complete_s"])
        yield _row(case, "first due message received, s", found["first_s"])
        yield _row(case, "... loop blocked at most, ms", found["blocked_ms"], BLOCKED_MS_MAX)
        yield _row(case, "RSS of the index, MB", found["mb"])


def _row(case: str, figure: str, ours: float, goal: float | None = None) -> Row:
    met = "-" if goal is None else "yes" if ours <= goal else "NO"
    row: Row = {"case": case, "figure": figure, "source": "-", "heap": "-", "ours": round(ours, 2)}
    return {**row, "goal <=": "-" if goal is None else goal, "met": met}


class _Blocked:
    """Longest time that the loop did not come round, ms."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._seen = time.perf_counter()
        self._handle = asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        now = time.perf_counter()
        self.longest_ms = max(self.longest_ms, (now - self._seen) * 1000)
        self._seen = now
        self._handle = asyncio.get_running_loop().call_later(0.001, self._look)

    def end(self) -> float:
        self._handle.cancel()
        return self.longest_ms


async def _written(directory: Path, kind: str, entries: int) -> Row:
    server, url = await _start(directory)
    broker = server.broker
    assert broker is not None
    ledgers = entries // ENTRIES_PER_LEDGER
    record = ManagedLedgerRecord(
        tuple(
            LedgerRecord(FIRST_LEDGER + i, ENTRIES_PER_LEDGER, ENTRIES_PER_LEDGER * 100, 1, b"") for i in range(ledgers)
        )
    )
    path = ledger_path(NAME.managed_ledger_name)
    await broker.metadata.put(path, encode_managed_ledger_info(record), expected_version=MUST_NOT_EXIST)
    topic = await broker.registry.get(NAME, create=True)
    assert isinstance(topic, PersistentTopic)
    delays = topic.delays()
    assert delays is not None
    rng = random.Random(7)
    base, delay_of, index = int(time.time() * 1000) + HOUR_MS, KINDS[kind], delays.index
    direct = entries - delays.fresh_max
    for i in range(direct):
        index.add(FIRST_LEDGER + i // ENTRIES_PER_LEDGER, i % ENTRIES_PER_LEDGER, base + delay_of(rng, i))
    blocked, began = _Blocked(), time.perf_counter()
    for i in range(direct, entries):  # the last of these asks for a snapshot
        delays.add(Position(FIRST_LEDGER + i // ENTRIES_PER_LEDGER, i % ENTRIES_PER_LEDGER), base + delay_of(rng, i))
        if i % STEP == 0:
            await asyncio.sleep(0)
            began = time.perf_counter()
    while delays_stats(topic)["snapshotLedgerId"] < 0:  # noqa: ASYNC110 -- nobody says when
        await asyncio.sleep(0.02)
    seconds, blocked_ms = time.perf_counter() - began, blocked.end()
    async with connect(url) as client:
        await client.subscribe(TOPIC, "s", consumer_type=ConsumerType.Shared, initial_position=InitialPosition.Earliest)
        producer = await client.create_producer(TOPIC)
        await asyncio.gather(*(producer.send(b"due", deliver_after=timedelta(seconds=1)) for _ in range(DUE_MESSAGES)))
    await asyncio.sleep(1)
    return {"seconds": seconds, "blocked_ms": blocked_ms, "mb": sum(map(len, delays.records())) / 1e6}


async def _restarted(directory: Path) -> Row:
    server, url = await _start(directory)
    broker = server.broker
    assert broker is not None
    before = resident_bytes()
    blocked, began = _Blocked(), time.perf_counter()
    topic = await broker.registry.get(NAME, create=False)
    assert isinstance(topic, PersistentTopic)
    complete_s = time.perf_counter() - began
    entries = delays_stats(topic)["entries"]
    async with connect(url) as client:
        consumer = await client.subscribe(TOPIC, "s", consumer_type=ConsumerType.Shared)
        await consumer.receive()
        first_s = time.perf_counter() - began
        for _ in range(DUE_MESSAGES - 1):
            await consumer.receive()
    blocked_ms = blocked.end()
    grown = resident_bytes() - before
    return {
        "complete_s": complete_s,
        "first_s": first_s,
        "blocked_ms": blocked_ms,
        "mb": grown / 1e6,
        "entries": entries,
    }


async def _start(directory: Path) -> tuple[StandaloneServer, str]:
    config = load_config(overrides=["brokerServicePort=0", "webServicePort=0", "bindAddress=127.0.0.1"])
    server = StandaloneServer(config, str(directory), on_fatal=_fatal, pid=os.getpid())
    addresses = await server.start()
    return server, addresses.broker_service_url


def _fatal(what: str, error: BaseException) -> None:
    print(f"fatal: {what}: {error}", flush=True)
    os._exit(3)
