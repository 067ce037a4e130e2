"""``Trimmer``: deletes the ledgers that nobody needs. Cursors are made durable first, then the list, then they go.

The list is free while they do: each deletion takes a turn of the metadata, and who subscribes or needs the next ledger
would wait for hundreds of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.log.tenure import Tenure
from geminga.managed_ledger.rules.trim import ledgers_to_trim
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.services import StorageServices
from geminga.model.errors import StorageError
from geminga.model.position import LATEST, Position
from geminga.runtime import crash_point, get_logger, spawn

if TYPE_CHECKING:
    from geminga.managed_ledger.offload.lake_files import FileDeletion

_log = get_logger(__name__)


class TrimRule(NamedTuple):
    """What holds at one moment: retention, ms and bytes (see ``rules.trim``), and the time, ms since the epoch."""

    retention_ms: int
    retention_bytes: int
    now_ms: int
    #: Ledgers with later entries stay.
    through: Position


class Trimmed(NamedTuple):
    """What left the list: ledgers, and the files in the lake that were noted to go."""

    ledger_ids: Sequence[int]
    noted: Sequence[FileDeletion]


_NOTHING: Final = Trimmed((), ())


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
    """What follows a trim, and goes before a truncation."""

    def on_trimmed(self, ledger_ids: Sequence[int]) -> None:
        """The list without these ledgers is written: memory follows."""
        ...

    async def roll(self) -> None:
        """Close the open ledger; the next append opens another. Raises StorageError."""
        ...


class Trimmer:
    """Of one managed ledger, see the module."""

    __slots__ = (
        "_cursors",
        "_is_due",
        "_log",
        "_services",
        "_stored",
        "_tenure",
        "retention_bytes",
        "retention_ms",
    )

    def __init__(
        self,
        log: TrimmedLog,
        tenure: Tenure,
        stored: StoredList,
        cursors: Mapping[str, HoldingCursor],
        services: StorageServices,
    ) -> None:
        """``cursors``: the durable ones, by name, as they are at each moment."""
        self._log = log
        self._tenure = tenure
        self._stored = stored
        self._cursors = cursors
        self._services = services
        #: A trim in the background is about to begin.
        self._is_due = False
        #: Of consumed ledgers: age and total bytes, -1 without limit (see ``rules.trim``); so until policies are read.
        self.retention_ms = self.retention_bytes = -1

    def set_retention(self, *, retention_ms: int, retention_bytes: int) -> None:
        """How long consumed ledgers stay: see ``rules.trim``. Takes effect with the next trim."""
        self.retention_ms = retention_ms
        self.retention_bytes = retention_bytes

    def trim_later(self) -> None:
        """A cursor left a ledger behind, or a ledger was closed: trim in the background."""
        if not self._is_due and not self._tenure.is_closed and len(self._stored.ledgers) > 1:
            self._is_due = True
            spawn(self._trim_quietly(), name=f"trim-{self._tenure.name}", part=self._tenure.part)

    async def _trim_quietly(self) -> None:
        """As :meth:`trim`, where nobody waits for it."""
        try:
            await self.trim()
        except StorageError as error:
            # A later call goes on.
            _log.warning("%s: not trimmed: %s", self._tenure.name, error)

    async def trim(self) -> None:
        """Delete the ledgers that every durable cursor has passed and retention does not hold. Raises StorageError."""
        self._is_due = False
        gone = _NOTHING
        async with self._stored.lock():
            if not self._tenure.is_over:
                gone = await self._trim_list(lambda: (self.retention_ms, self.retention_bytes))
        await self._delete(gone)

    async def truncate(self, through: Position = LATEST, *, kept: Collection[str] = ()) -> None:
        """Acknowledge what may be read by now, up to ``through``, for all cursors but those ``kept``, and delete the
        ledgers that hold no later entry, whatever retention says.

        Raises LedgerClosedError, StorageError; what was not done is done by a later call. What is appended meanwhile
        stays, and so does what nobody may read yet.
        """
        through = min(through, self._stored.extent.readable_position)
        last = self._stored.ledgers.last
        if last is not None and last.entries and not last.closed_ms and last.ledger_id <= through.ledger_id:
            await self._log.roll()
        for name, cursor in tuple(self._cursors.items()):
            if name not in kept:
                await cursor.clear_backlog(through)
        async with self._stored.lock():
            # Let go meanwhile, it may be open once more, and somebody else's list.
            self._tenure.check_writable()
            gone = await self._trim_list(lambda: (0, 0), through)
        await self._delete(gone)

    async def _trim_list(self, retention: Callable[[], tuple[int, int]], through: Position = LATEST) -> Trimmed:
        """Take off the list what ``rules.trim`` lets go, and ends no later than ``through``; the list lock is held.
        What is to be deleted next. Raises StorageError; then a later call goes on.

        ``retention``: what holds at the moment of the call.
        """
        services, stored, name = self._services, self._stored, self._tenure.name

        def rule() -> TrimRule:
            return TrimRule(*retention(), services.clock.wall_ms(), through)

        trimmable = frozenset(self._trimmable(rule()))
        if not trimmable:
            return _NOTHING
        for cursor_name, cursor in tuple(self._cursors.items()):
            if self._cursors.get(cursor_name) is cursor and not cursor.is_closed:
                await cursor.flush()
        crash_point(points.TRIM_FLUSHED)
        # A cursor may have been reset meanwhile, or the policy changed: what counts is what is so when the list is
        # written.
        going = [ledger_id for ledger_id in self._trimmable(rule()) if ledger_id in trimmable]
        if not going:
            return _NOTHING
        gone = frozenset(going)
        offloaded = [info for info in stored.ledgers.infos if info.ledger_id in gone and info.offload_context]
        noted: Sequence[FileDeletion] = ()
        if offloaded:
            from geminga.managed_ledger.offload import lake_files

            noted = await lake_files.note(services, name, stored.created_ms, offloaded)
        await stored.put([info for info in stored.ledgers.infos if info.ledger_id not in gone])
        crash_point(points.TRIM_LISTED)
        self._log.on_trimmed(going)
        return Trimmed(going, noted)

    async def _delete(self, trimmed: Trimmed) -> None:
        """What left the list, which is free again."""
        if not trimmed.ledger_ids:
            return
        await self._stored.delete_ledgers(trimmed.ledger_ids)
        crash_point(points.TRIM_DELETED)
        if trimmed.noted:
            from geminga.managed_ledger.offload import manifests

            # In the background: a store that does not answer holds nothing up.
            deletion = manifests.delete_files(self._stored, self._services, trimmed.noted)
            spawn(deletion, name=f"delete-lake-files-{self._tenure.name}", part=self._tenure.part)

    def _trimmable(self, rule: TrimRule) -> list[int]:
        stored, extent = self._stored, self._stored.extent
        needed = [rule.through, *(cursor.mark_delete_position for cursor in self._cursors.values())]
        if extent.is_limited:
            # What nobody could read yet is not consumed, even where nobody has a cursor.
            needed.append(extent.readable_position)
        return ledgers_to_trim(
            stored.ledgers.infos,
            min(needed),
            retention_ms=rule.retention_ms,
            retention_bytes=rule.retention_bytes,
            now_ms=rule.now_ms,
        )
