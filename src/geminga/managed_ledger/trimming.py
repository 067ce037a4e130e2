"""Deleting ledgers that nobody needs: cursors durable first, then the list, then the ledgers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.rules.positions import LedgerList
from geminga.managed_ledger.rules.trim import ledgers_to_trim
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.services import StorageServices
from geminga.model.errors import StorageError
from geminga.model.position import LATEST, Position
from geminga.runtime import Part, crash_point, get_logger, spawn

if TYPE_CHECKING:
    from geminga.managed_ledger.offload.lake_files import FileDeletion

_log = get_logger(__name__)


class TrimRule(NamedTuple):
    """What holds at one moment: retention, ms and bytes (see ``core.trim``), and the time, ms since the epoch."""

    retention_ms: int
    retention_bytes: int
    now_ms: int
    #: Ledgers with later entries stay.
    through: Position


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

    async def clear_backlog(self, through: Position) -> None:
        """Acknowledge everything up to ``through``. Durable on return. Raises StorageError."""
        ...


class TrimmedLog(Protocol):
    """A managed ledger, as far as it concerns this."""

    name: str
    part: Part | None
    is_closed: bool
    is_fenced: bool
    #: A trim in the background is about to begin.
    is_trimming: bool
    retention_ms: int
    retention_bytes: int
    stored: StoredList
    ledgers: LedgerList
    #: ``ledgers`` itself, or cut at the read limit, and the newest entry of it.
    readable: LedgerList
    readable_position: Position

    @property
    def created_ms(self) -> int:
        """When it was made, ms since the epoch."""
        ...

    @property
    def cursors(self) -> Mapping[str, HoldingCursor]:
        """Durable cursors by name."""
        ...

    def on_trimmed(self, ledger_ids: Sequence[int]) -> None:
        """The list without these ledgers is written: memory follows."""
        ...


class TruncatedLog(TrimmedLog, Protocol):
    """One whose open ledger is to go too."""

    async def roll(self) -> None:
        """Close the open ledger; the next append opens another. Raises StorageError."""
        ...


async def trim_quietly(log: TrimmedLog, services: StorageServices) -> None:
    """As :func:`trim`, where nobody waits for it."""
    try:
        await trim(log, services)
    except StorageError as error:
        # A later call goes on.
        _log.warning("%s: not trimmed: %s", log.name, error)


async def trim(log: TrimmedLog, services: StorageServices) -> None:
    """Delete the ledgers that every durable cursor has passed and retention does not hold. Raises StorageError."""
    log.is_trimming = False
    async with log.stored.lock():
        if not log.is_closed and not log.is_fenced:
            await _trim_list(log, services, lambda: (log.retention_ms, log.retention_bytes))


async def truncate(log: TruncatedLog, services: StorageServices, through: Position, kept: Collection[str]) -> None:
    """Acknowledge every entry up to ``through`` for all cursors but those ``kept``, and delete the ledgers that hold no
    later one, whatever retention says. Raises StorageError; what was not done is done by a later call.

    What is appended meanwhile stays, and so does what nobody may read yet.
    """
    through = min(through, log.readable_position)
    last = log.ledgers.last
    if last is not None and last.entries and not last.closed_ms and last.ledger_id <= through.ledger_id:
        await log.roll()
    for name, cursor in tuple(log.cursors.items()):
        if name not in kept:
            await cursor.clear_backlog(through)
    async with log.stored.lock():
        await _trim_list(log, services, lambda: (0, 0), through)


async def _trim_list(
    log: TrimmedLog,
    services: StorageServices,
    retention: Callable[[], tuple[int, int]],
    through: Position = LATEST,
) -> None:
    """Trim what ``core.trim`` lets go, and ends no later than ``through``; the list lock is held. Raises StorageError;
    then a later call goes on.

    ``retention``: what holds at the moment of the call.
    """

    def rule() -> TrimRule:
        return TrimRule(*retention(), services.clock.wall_ms(), through)

    going = _trimmable(log, rule())
    if not going:
        return
    for name, cursor in tuple(log.cursors.items()):
        if log.cursors.get(name) is cursor and not cursor.is_closed:
            await cursor.flush()
    crash_point(points.TRIM_FLUSHED)
    # A cursor may have been reset meanwhile, or the policy changed: what counts is what is so when the list is written.
    going = [ledger_id for ledger_id in _trimmable(log, rule()) if ledger_id in going]
    if not going:
        return
    offloaded = [info for info in log.ledgers.infos if info.ledger_id in going and info.offload_context]
    noted: Sequence[FileDeletion] = ()
    if offloaded:
        from geminga.managed_ledger.offload import lake_files

        noted = await lake_files.note(services, log.name, log.created_ms, offloaded)
    await log.stored.put([info for info in log.ledgers.infos if info.ledger_id not in going])
    crash_point(points.TRIM_LISTED)
    log.on_trimmed(going)
    await log.stored.delete_ledgers(going)
    crash_point(points.TRIM_DELETED)
    if noted:
        from geminga.managed_ledger.offload import manifests

        # In the background: a store that does not answer holds nothing up.
        spawn(manifests.delete_files(log, services, noted), name=f"delete-lake-files-{log.name}", part=log.part)


def _trimmable(log: TrimmedLog, rule: TrimRule) -> list[int]:
    needed = [rule.through, *(cursor.mark_delete_position for cursor in log.cursors.values())]
    if log.readable is not log.ledgers:
        # What nobody could read yet is not consumed, even where nobody has a cursor.
        needed.append(log.readable_position)
    return ledgers_to_trim(
        log.ledgers.infos,
        min(needed),
        retention_ms=rule.retention_ms,
        retention_bytes=rule.retention_bytes,
        now_ms=rule.now_ms,
    )
