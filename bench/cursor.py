"""A cursor with ten million holes: memory, what one more acknowledgment writes, recovery, statistics.

The topic's ledgers are only listed, since no entry is ever read; the cursor, its ledger, the bookie and the metadata
store are real, on the scratch disk. Each figure is taken in a forked child; memory is the difference of its resident
set to when it had done the same with a small state, and never less than what the state counts itself (memory that was
free in the process before would hide it). The bookie's read cache, which has a limit of its own, is off.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.servers import Bench, BenchError
from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookkeeper import BookKeeper, LocalBookiePool, MetadataLiveLedgers
from geminga.managed_ledger import ManagedCursor, ManagedLedgerConfig, ManagedLedgerFactory
from geminga.managed_ledger.rules.acked_entries import AckedBitmap
from geminga.managed_ledger.rules.plain_ranges import PlainRanges
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.managed_ledger.stats import internal_stats
from geminga.metadata import SqliteMetadataStore
from geminga.metadata.ports import MUST_NOT_EXIST
from geminga.model.position import EARLIEST, Position
from geminga.runtime import real_runtime
from geminga.wire.managed_ledger import LedgerRecord, ManagedLedgerRecord, encode_managed_ledger_info

Row = dict[str, Any]

NAME = "public/default/persistent/bench"
ENTRIES = 10_000_000
FIRST_LEDGER = 1_000_000
RUNS = 3
#: Acknowledged in one call.
BATCH = 1_000
MEMORY_MB_MAX = 2.0
SEGMENT_BYTES_MAX = 1 << 20
RECOVERY_S_MAX = 2.0
STATS_MS_MAX = 50.0


def holes(bench: Bench, entries: int = ENTRIES) -> list[Row]:
    """Every second entry acknowledged one ledger after another, in ledgers of Pulsar's size and in a single one."""
    rows: list[Row] = []
    for ledgers in (entries // 50_000, 1):
        case = f"{ledgers} ledger{'s' if ledgers > 1 else ''} of {entries // ledgers:,}"
        built = [in_child(lambda n=ledgers: _built(n, entries // n)) for _ in range(RUNS)]
        rows.append(_row(case, "memory of the state, MB", [run["mb"] for run in built], MEMORY_MB_MAX))
        with bench.directory("cursor") as directory:
            wrote = in_child(lambda n=ledgers, d=directory: _written(d, n, entries // n))
            found = [in_child(lambda d=directory: _recovered(d)) for _ in range(RUNS)]
        if any(run["holes"] != wrote["holes"] for run in found):
            raise BenchError(f"{case}: {wrote['holes']} holes written, {found} recovered")
        rows += [
            _row(case, "recovery, s", [run["seconds"] for run in found], RECOVERY_S_MAX),
            _row(case, "memory after recovery, MB", [run["mb"] for run in found], MEMORY_MB_MAX),
            _row(case, "one more acknowledgment: entries written", [wrote["entries"]], 2),
            _row(case, "... bytes", [wrote["bytes"]], None),
            _row(case, "... ms until durable", [wrote["ms"]], None),
            _row(case, "largest entry of the cursor ledger, bytes", [wrote["largest"]], SEGMENT_BYTES_MAX),
            _row(case, "statistics, ms", [wrote["stats_ms"]], STATS_MS_MAX),
            _row(case, "backlog count, ms", [wrote["backlog_ms"]], STATS_MS_MAX),
        ]
    return rows + limited(bench, entries) + shapes()


def limited(bench: Bench, entries: int, ledgers: int = 1000) -> list[Row]:
    """The same over a thousand ledgers, with memory for a tenth of the state."""
    case = f"{ledgers:,} ledgers of {entries // ledgers:,}, a tenth in memory"
    with bench.directory("cursor") as directory:
        whole = in_child(lambda: _written(directory, ledgers, entries // ledgers))
        limit = whole["state_bytes"] / 10
        tenth = [in_child(lambda: _tenth(directory, limit)) for _ in range(RUNS)]
    return [
        _row(case, "state, MB", [whole["state_bytes"] / 1e6], None),
        _row(case, "recovery, s", [run["seconds"] for run in tenth], RECOVERY_S_MAX),
        _row(
            case,
            "most counted, 1,000 acknowledgments all over, MB",
            [run["counted"] for run in tenth],
            limit / 1e6,
        ),
        _row(case, "resident memory of all that, MB", [run["mb"] for run in tenth], None),
        _row(case, "acknowledgments/s of ledgers that must be read first", [run["rate"] for run in tenth], None),
        _row(case, "wrong answers", [run["wrong"] for run in tenth], 0),
    ]


def shapes() -> list[Row]:
    """Bitmaps beside plain ranges: memory of one ledger of 50,000 entries, by what is acknowledged of it."""
    rows = []
    cases: dict[str, list[int]] = {
        "1 entry": [5],
        "10 entries apart": list(range(5, 50_000, 5_000)),
        "every second entry": list(range(1, 50_000, 2)),
        "all but every hundredth": [i for i in range(50_000) if i % 100],
    }
    for name, ids in cases.items():
        for kind in (AckedBitmap, PlainRanges):
            runs = [in_child(lambda k=kind, i=ids: _of_kind(k, i))["bytes"] for _ in range(RUNS)]
            rows.append(_row(f"{kind.__name__}: {name}", "memory of a ledger, bytes", runs, None))
    return rows


def _row(case: str, what: str, runs: list[float], goal: float | None) -> Row:
    measured = statistics.median(runs)
    return {
        "case": case,
        "what": what,
        "measured": round(measured, 3) if isinstance(measured, float) else measured,
        "goal": "-" if goal is None else f"<= {round(goal, 2):,}",
        "met": "-" if goal is None else ("yes" if measured <= goal else "NO"),
    }


# ---- in the child


async def _built(ledgers: int, entries: int) -> Row:
    """The state alone, acknowledged in memory."""
    from geminga.managed_ledger.rules.cursor import CursorState
    from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList

    infos = LedgerList([LedgerInfo(FIRST_LEDGER + i, entries, closed_ms=1) for i in range(ledgers)])

    def acknowledge(state: CursorState, ledger_id: int, first: int) -> None:
        last = min(entries, first + 2 * BATCH)
        state.acknowledge([Position(ledger_id, i) for i in range(first, last, 2)], None, infos)

    acknowledge(CursorState(Position(FIRST_LEDGER, -1)), FIRST_LEDGER, 1)
    before = resident_bytes()
    state = CursorState(Position(FIRST_LEDGER, -1))
    for ledger_id in range(FIRST_LEDGER, FIRST_LEDGER + ledgers):
        for first in range(1, entries, 2 * BATCH):
            acknowledge(state, ledger_id, first)
    counted = sum(map(state.ledger_memory_bytes, state.ledger_ids))
    return {"mb": max(resident_bytes() - before, counted) / 1e6, "holes": state.acked.count}


async def _written(directory: Path, ledgers: int, entries: int) -> Row:
    """Acknowledge, persist, and one more."""
    factory = await _open(directory, 1 << 30)
    await _list_ledgers(factory, NAME, ledgers, entries)
    await _warm(factory)
    ml = await factory.open(NAME)
    cursor = await ml.open_cursor("s", initial=EARLIEST)
    for ledger_id in range(FIRST_LEDGER, FIRST_LEDGER + ledgers):
        for first in range(1, entries, 1_000_000):
            cursor.acknowledge([Position(ledger_id, i) for i in range(first, min(entries, first + 1_000_000), 2)])
    await cursor.flush()
    source = cursor.store.segments.source
    largest = 0
    for entry_id in range(source.last_add_confirmed + 1):
        largest = max(largest, len((await source.read_entries(entry_id, entry_id))[0]))
    appended, length = cursor.store.appended_entries, source.length_bytes
    middle = Position(FIRST_LEDGER + ledgers // 2, entries // 2)
    began = time.perf_counter()
    await _acknowledge(cursor, middle)
    took = time.perf_counter() - began
    answer = {
        "holes": cursor.state.acked.count,
        "entries": cursor.store.appended_entries - appended,
        "bytes": source.length_bytes - length,
        "ms": took * 1000,
        "largest": largest,
        "stats_ms": _milliseconds(lambda: internal_stats(ml)),
        "backlog_ms": _milliseconds(lambda: (cursor.backlog_count, cursor.state.acked.range_count)),
        "state_bytes": factory.cursor_memory.total_bytes,
    }
    if cursor.backlog_count != ml.ledgers.entry_count - answer["holes"]:
        raise BenchError(f"backlog {cursor.backlog_count} of {ml.ledgers.entry_count} with {answer['holes']} holes")
    return answer


async def _recovered(directory: Path) -> Row:
    """What a new process finds, how fast, and what that takes beyond a process that has recovered a small one."""
    factory = await _open(directory, 1 << 30)
    await factory.open("public/default/persistent/warm")
    before = resident_bytes()
    began = time.perf_counter()
    ml = await factory.open(NAME)
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "mb": max(resident_bytes() - before, factory.cursor_memory.total_bytes) / 1e6,
        "holes": ml.cursors["s"].state.acked.count,
    }


async def _tenth(directory: Path, limit_bytes: float) -> Row:
    """With a limit: recover, acknowledge all over, ask."""
    factory = await _open(directory, int(limit_bytes))
    await factory.open("public/default/persistent/warm")
    before = resident_bytes()
    began = time.perf_counter()
    ml = await factory.open(NAME)
    seconds = time.perf_counter() - began
    cursor = ml.cursors["s"]
    infos = ml.ledgers.infos
    expected = cursor.backlog_count
    began = time.perf_counter()
    for index in range(len(infos)):
        info = infos[(index * 617) % len(infos)]
        entry_id = 100 + 2 * (index % (info.entries // 2 - 100))
        was = await _is_acknowledged(cursor, Position(info.ledger_id, entry_id))
        cursor.acknowledge([Position(info.ledger_id, entry_id), Position(info.ledger_id, entry_id + 1)])
        expected -= not was
    await cursor.flush()
    rate = len(infos) / (time.perf_counter() - began)
    wrong = abs(cursor.backlog_count - expected)
    peak = factory.cursor_memory.peak_bytes / 1e6
    rss = (resident_bytes() - before) / 1e6
    for info in infos[:: len(infos) // 50]:
        wrong += not await _is_acknowledged(cursor, Position(info.ledger_id, 5001))
        wrong += await _is_acknowledged(cursor, Position(info.ledger_id, 2))
    return {"seconds": seconds, "counted": peak, "mb": rss, "rate": rate, "wrong": wrong}


async def _of_kind(kind: Callable[[], AckedBitmap | PlainRanges], ids: list[int]) -> Row:
    count = 200
    kind().add_many(ids)
    before = resident_bytes()
    made = [kind() for _ in range(count)]
    for item in made:
        # A list of ints of its own, as acknowledgments make them.
        item.add_many([i + 1 - 1 for i in ids])
    return {"bytes": round((resident_bytes() - before) / count)}


async def _open(directory: Path, memory_bytes: int) -> ManagedLedgerFactory:
    runtime = real_runtime(_fatal)
    (directory / "bookie").mkdir(exist_ok=True)
    metadata = await SqliteMetadataStore.open(runtime, str(directory / "metadata.sqlite"))
    bookie = await LocalBookie.open(
        runtime,
        str(directory / "bookie"),
        BookieConfig(read_cache_max_size_mb=0),
        ledgers=MetadataLiveLedgers(metadata),
    )
    bookkeeper = BookKeeper(runtime, metadata, LocalBookiePool({"127.0.0.1:3181": bookie}))
    factory = ManagedLedgerFactory(runtime, metadata, bookkeeper, ManagedLedgerConfig())
    factory.cursor_memory.limit_bytes = memory_bytes
    return factory


async def _list_ledgers(factory: ManagedLedgerFactory, name: str, ledgers: int, entries: int) -> None:
    record = ManagedLedgerRecord(
        tuple(LedgerRecord(FIRST_LEDGER + i, entries, entries * 100, 1, b"") for i in range(ledgers))
    )
    await factory.metadata.put(ledger_path(name), encode_managed_ledger_info(record), expected_version=MUST_NOT_EXIST)


async def _warm(factory: ManagedLedgerFactory) -> None:
    """A small topic that is recovered first, so that threads and code paths are there already."""
    name = "public/default/persistent/warm"
    await _list_ledgers(factory, name, 3, 10_000)
    cursor = await (await factory.open(name)).open_cursor("s", initial=EARLIEST)
    cursor.acknowledge([Position(FIRST_LEDGER + i, e) for i in range(3) for e in range(1, 10_000, 2)])
    await cursor.flush()


async def _is_acknowledged(cursor: ManagedCursor, position: Position) -> bool:
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    cursor.when_loaded(
        (position.ledger_id,), lambda: future.set_result(cursor.state.is_acknowledged(position)), future.set_exception
    )
    return await future


async def _acknowledge(cursor: ManagedCursor, position: Position) -> None:
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    cursor.acknowledge([position], None, future.set_result)
    if (error := await future) is not None:
        raise BenchError(str(error))


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def _fatal(error: BaseException) -> None:
    print(f"fatal: {error}", flush=True)
    os._exit(3)


def resident_bytes() -> int:
    """Of this process, after a collection of garbage and with what is free given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_child(work: Callable[[], Awaitable[Row]]) -> Row:
    """Run ``work`` on a loop of its own in a forked child, which ends without closing anything, as a kill would."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)

            async def run() -> Row:
                return await work()

            with os.fdopen(writing, "w") as pipe:
                loop = asyncio.new_event_loop()
                asyncio.set_event_loop(loop)
                json.dump(loop.run_until_complete(run()), pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    if not answer:
        raise BenchError("the measuring process failed")
    found: Row = json.loads(answer)
    return found
