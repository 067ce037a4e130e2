"""Deleting ledgers that nobody needs: cursors durable first, then the list, then the ledgers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from geminga.managed_ledger import crash_points as points
from geminga.managed_ledger.core.positions import LedgerList
from geminga.managed_ledger.core.trim import ledgers_to_trim
from geminga.managed_ledger.stored_list import StoredList
from geminga.model.position import Position
from geminga.runtime import crash_point


class TrimRule(NamedTuple):
    """What holds at one moment: retention, ms and bytes (see ``core.trim``), and the time, ms since the epoch."""

    retention_ms: int
    retention_bytes: int
    now_ms: int


class HoldingCursor(Protocol):
    """A durable cursor, as far as it concerns this."""

    is_closed: bool

    @property
    def mark_delete_position(self) -> Position:
        """Every entry up to and including it is acknowledged."""
        ...

    async def flush(self) -> None:
        """Until everything acknowledged so far is durable. Raises StorageError."""
        ...


class TrimmedLog(Protocol):
    """A managed ledger, as far as it concerns this."""

    stored: StoredList
    ledgers: LedgerList
    #: ``ledgers`` itself, or cut at the read limit, and the newest entry of it.
    readable: LedgerList
    readable_position: Position

    @property
    def cursors(self) -> Mapping[str, HoldingCursor]:
        """Durable cursors by name."""
        ...

    def on_trimmed(self, ledger_ids: Sequence[int]) -> None:
        """The list without these ledgers is written: memory follows."""
        ...


async def trim_list(log: TrimmedLog, rule: Callable[[], TrimRule], *, deletes_first: bool = False) -> None:
    """Trim what ``core.trim`` lets go; the list lock is held. Raises StorageError; then a later call goes on.

    ``rule``: what holds at the moment of the call. ``deletes_first`` is a planted defect.
    """
    going = _trimmable(log, rule())
    if not going:
        return
    if deletes_first:
        await log.stored.delete_ledgers(going)
        crash_point(points.TRIM_DELETED)
    for name, cursor in tuple(log.cursors.items()):
        if log.cursors.get(name) is cursor and not cursor.is_closed:
            await cursor.flush()
    crash_point(points.TRIM_FLUSHED)
    # A cursor may have been reset meanwhile, or the policy changed: what counts is what is so when the list is written.
    going = [ledger_id for ledger_id in _trimmable(log, rule()) if ledger_id in going]
    if not going:
        return
    await log.stored.put([info for info in log.ledgers.infos if info.ledger_id not in going])
    crash_point(points.TRIM_LISTED)
    log.on_trimmed(going)
    await log.stored.delete_ledgers(going)
    crash_point(points.TRIM_DELETED)


def _trimmable(log: TrimmedLog, rule: TrimRule) -> list[int]:
    needed = [cursor.mark_delete_position for cursor in log.cursors.values()]
    if log.readable is not log.ledgers:
        # What nobody could read yet is not consumed, even where nobody has a cursor.
        needed.append(log.readable_position)
    return ledgers_to_trim(
        log.ledgers.infos,
        min(needed, default=None),
        retention_ms=rule.retention_ms,
        retention_bytes=rule.retention_bytes,
        now_ms=rule.now_ms,
    )
