"""Reads of a managed ledger that belong to no cursor: by position, by range, by search."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from geminga.managed_ledger.cursor.cursor_reads import ReadLog
from geminga.managed_ledger.log.reads import READ_RUN_ENTRIES_MAX, runs_of
from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.managed_ledger.shared.entry import Entry
from geminga.model.errors import LedgerClosedError, NoSuchLedgerError, StorageError
from geminga.model.limits import count_within
from geminga.model.position import Position

#: Bytes asked for with one call where all entries are wanted.
READ_BYTES: Final = 1024 * 1024


class QueriedLog(ReadLog, Protocol):
    """The log that is read."""

    name: str
    is_closed: bool
    #: ``ledgers`` itself, or cut at the read limit.
    readable: LedgerList


async def read(log: QueriedLog, positions: Sequence[Position], *, is_limited: bool = True) -> list[Entry]:
    """See ``ManagedLedger.read``."""
    found: dict[Position, Entry] = {}
    behind = sorted(positions)
    while behind:
        entries, behind = await read_some(log, behind, READ_BYTES, is_limited=is_limited)
        found.update((entry.position, entry) for entry in entries)
    return [found[position] for position in positions if position in found]


async def read_some(
    log: QueriedLog, positions: Sequence[Position], bytes_max: int, *, is_limited: bool = True
) -> tuple[list[Entry], list[Position]]:
    """The entries at ``positions``, in that order, and the positions that were not looked at, for the limit.

    Those that no longer exist are in neither. The limit is gone over by one entry at most; at least one is looked at.
    """
    found: dict[tuple[int, int], bytes] = {}
    left = bytes_max
    for run in runs_of(positions):
        info = (log.readable if is_limited else log.ledgers).find(run.ledger_id)
        first, last = max(run.first, 0), min(run.last, info.entries - 1 if info is not None else -1)
        if info is None or first > last:
            continue
        if found and left <= 0:
            return _found(positions, found, Position(run.ledger_id, run.first))
        payloads = await _payloads(log, info, first, last, max(0, left))
        for entry_id, payload in enumerate(payloads, first):
            found[run.ledger_id, entry_id] = payload
            left -= len(payload)
        if payloads and first + len(payloads) <= last:
            return _found(positions, found, Position(run.ledger_id, first + len(payloads)))
    return _found(positions, found, None)


def _found(
    positions: Sequence[Position], found: dict[tuple[int, int], bytes], end: Position | None
) -> tuple[list[Entry], list[Position]]:
    """What is known of the positions before ``end``, and those from there on; None: all were looked at."""
    entries = [Entry(*position, found[position]) for position in positions if position in found]
    return entries, [] if end is None else [position for position in positions if position >= end]


async def read_range(
    log: QueriedLog, first: Position, max_entries: int, max_bytes: int, *, is_limited: bool = True
) -> list[Entry]:
    """See ``ManagedLedger.read_range``."""
    entries: list[Entry] = []
    size_bytes = 0
    position = first
    while len(entries) < max_entries and size_bytes < max_bytes:
        ledgers = log.readable if is_limited else log.ledgers
        position = ledgers.at_or_after(position)
        info = ledgers.find(position.ledger_id)
        if info is None or position.entry_id >= info.entries:
            break
        count = min(max_entries - len(entries), info.entries - position.entry_id, READ_RUN_ENTRIES_MAX)
        last = position.entry_id + count - 1
        payloads = await _payloads(log, info, position.entry_id, last, max_bytes - size_bytes)
        for entry_id, payload in enumerate(payloads, position.entry_id):
            size_bytes += len(payload)
            if size_bytes > max_bytes and entries:
                return entries
            entries.append(Entry(position.ledger_id, entry_id, payload))
        if 0 < len(payloads) < count:
            break  # the limit of bytes
        position = Position(position.ledger_id, position.entry_id + count)
    return entries


async def find_last(log: QueriedLog, predicate: Callable[[Entry], bool]) -> Position | None:
    """See ``ManagedLedger.find_last``: binary search, one entry read a step.

    Of a ledger that can not be read the first entry behind it says whether all of it is passed; else what is found is
    before it.
    """
    found: Position | None = None
    low, high = log.ledgers.first_position, log.readable_position
    while (count := log.ledgers.count_between(low, high)) > 0:
        middle = log.ledgers.position_at(log.ledgers.index_of(low) + (count - 1) // 2)
        try:
            entries = await read(log, [middle])
        except LedgerClosedError:
            raise
        except StorageError:
            behind = await _first_behind(log, middle.ledger_id, high)
            if behind is None or not predicate(behind):
                high = log.ledgers.previous_position(Position(middle.ledger_id, 0))
                continue
            entries, middle = [behind], behind.position
        if entries and not predicate(entries[0]):
            high = log.ledgers.previous_position(middle)
            continue
        # An entry trimmed meanwhile was older than any that can be found.
        found = middle if entries else found
        low = log.ledgers.next_position(middle)
    return found


async def _first_behind(log: QueriedLog, ledger_id: int, last: Position) -> Entry | None:
    """The first entry behind a ledger that can be read, of those that begin their ledgers, up to ``last``."""
    while (info := log.ledgers.after(ledger_id)) is not None:
        ledger_id = info.ledger_id
        if not info.entries or Position(ledger_id, 0) > last:
            continue
        try:
            entries = await read(log, [Position(ledger_id, 0)])
        except LedgerClosedError:
            raise
        except StorageError:
            continue
        return entries[0] if entries else None
    return None


async def _payloads(log: QueriedLog, info: LedgerInfo, first: int, last: int, bytes_max: int) -> Sequence[bytes]:
    """The first of consecutive entries that ``bytes_max`` allows, at least one; none if the ledger went meanwhile.

    From the cache if all are there.
    """
    if log.is_closed:
        raise LedgerClosedError(f"{log.name} is closed")
    window = log.tail.window
    if window is not None and window.ledger_id == info.ledger_id:
        cached = window.get(first, last)
        if len(cached) == last - first + 1:
            return cached[: count_within(map(len, cached), bytes_max)]
    future: asyncio.Future[Sequence[bytes] | StorageError] = asyncio.get_running_loop().create_future()

    def done(result: Sequence[bytes] | StorageError) -> None:
        if not future.done():
            future.set_result(result)

    claim = log.read_ledger(info, first, last, bytes_max, done)
    try:
        result = await future
    finally:
        if future.cancelled():
            claim.release()
    if isinstance(result, StorageError):
        if isinstance(result, NoSuchLedgerError) and log.ledgers.find(info.ledger_id) is None:
            return ()
        raise result
    return result
