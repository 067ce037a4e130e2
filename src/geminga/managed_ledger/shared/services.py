"""What managed ledgers and their cursors are given: where they are stored, and what all of a process share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from geminga.model.errors import StorageError
from geminga.wire.bookkeeper.ledger_metadata import META_PLACEMENT

if TYPE_CHECKING:
    from geminga.lake.service import Lake
    from geminga.managed_ledger.rules.acked_entries import MakeAckedEntries
    from geminga.managed_ledger.rules.cursor_format import ChooseFields
    from geminga.managed_ledger.rules.persistence import Persistence
    from geminga.managed_ledger.rules.positions import LedgerInfo
    from geminga.managed_ledger.rules.rollover import RolloverPolicy
    from geminga.managed_ledger.shared.catch_up_turns import CatchUpTurns
    from geminga.managed_ledger.shared.config import ManagedLedgerConfig
    from geminga.managed_ledger.shared.cursor_memory import CursorMemory
    from geminga.managed_ledger.shared.entry_cache import EntryCache, TailWindow
    from geminga.managed_ledger.shared.flush_timers import FlushTimers
    from geminga.managed_ledger.shared.ports import Ledger, Ledgers, OpenLedger
    from geminga.metadata.ports import MetadataStore
    from geminga.model.byte_budget import ByteBudget
    from geminga.runtime.ports import Clock
    from geminga.wire.bookkeeper.isolation import IsolationGroups

_META_NAME: Final = "pulsar/managed-ledger"
_META_CURSOR: Final = "pulsar/cursor"


def groups_of(custom_metadata: Mapping[str, bytes]) -> IsolationGroups | None:
    """The groups of bookies that a ledger was made for; None: those of all ledgers."""
    if META_PLACEMENT not in custom_metadata:
        return None
    # Loaded where a namespace has bookies of its own.
    from geminga.wire.bookkeeper.isolation import isolation_in

    return isolation_in(custom_metadata)


def placed_within(custom_metadata: Mapping[str, bytes], groups: IsolationGroups | None) -> Mapping[str, bytes]:
    """The custom metadata of a ledger that is to be made within these groups, whatever they said of that before."""
    custom = {key: value for key, value in custom_metadata.items() if key != META_PLACEMENT}
    if groups is not None:
        from geminga.wire.bookkeeper.isolation import encode_isolation

        custom[META_PLACEMENT] = encode_isolation(groups)
    return custom


def no_lake() -> Lake:
    """Where there is none. Raises StorageError."""
    raise StorageError("there is no lake here")


class StorageServices(NamedTuple):
    """Where a managed ledger is stored, and by which rules; one value for all of a process."""

    clock: Clock
    metadata: MetadataStore
    ledgers: Ledgers
    config: ManagedLedgerConfig
    #: When a ledger is full.
    rollover: RolloverPolicy
    #: Quorums and mark-delete rate without a policy.
    persistence: Persistence
    #: Other brokers use the metadata, too.
    is_shared: bool = False
    #: What is written of a cursor so that Apache's brokers read it; None: there are none here.
    choose_fields: ChooseFields | None = None
    #: The lake, loaded with the first call.
    lake: Callable[[], Lake] = no_lake
    #: Ledgers that are being made, by managed ledger and whether they are cursors'; None: nobody asks.
    being_made: Counter[tuple[str, bool]] | None = None

    async def open_to_read(self, name: str, info: LedgerInfo, *, is_bookkeeper_first: bool) -> Ledger:
        """A ledger that is open no more, wherever it lies. Raises StorageError."""
        if info.offload_context:
            from geminga.managed_ledger.shared.lake_ledger import open_to_read

            first = is_bookkeeper_first
            return await open_to_read(self.ledgers, self.lake, name, info, is_bookkeeper_first=first)
        # With recovery: closing a ledger that a crash left open, a no-op for all others.
        return await self.ledgers.open_ledger(info.ledger_id, recover=True)

    async def create_ledger(
        self, name: str, persistence: Persistence, *, cursor_name: str | None = None, newer_than: int = -1
    ) -> OpenLedger:
        """A ledger for entries of the managed ledger ``name``, or for a cursor of it; not listed anywhere yet."""
        custom = {"application": b"pulsar", "component": b"managed-ledger", _META_NAME: name.encode()}
        if cursor_name is not None:
            custom[_META_CURSOR] = cursor_name.encode()
        being_made, kind = self.being_made, (name, cursor_name is not None)
        if being_made is not None:
            being_made[kind] += 1
        try:
            return await self.ledgers.create_ledger(
                ensemble_size=persistence.ensemble_size,
                write_quorum=persistence.write_quorum,
                ack_quorum=persistence.ack_quorum,
                custom_metadata=placed_within(custom, persistence.groups),
                newer_than=newer_than,
            )
        finally:
            if being_made is not None:
                being_made[kind] -= 1
                if not being_made[kind]:
                    del being_made[kind]


class CursorServices(NamedTuple):
    """What all cursors of a process share."""

    memory: CursorMemory
    flushes: FlushTimers
    cache: EntryCache
    catch_up: CatchUpTurns
    #: What keeps the acknowledged entries of a ledger.
    make_acked_entries: MakeAckedEntries


class RolledOver(Protocol):
    """A managed ledger, as far as it concerns the timer that looks for full ledgers."""

    def roll_if_full(self) -> None:
        """Begin a new ledger if the open one is full by its age."""
        ...


class TrimsLater(Protocol):
    """What deletes the ledgers of a log that nobody needs."""

    def trim_later(self) -> None:
        """A cursor left a ledger behind, or a ledger was closed: look, in the background."""
        ...


class LedgerHome(Protocol):
    """Who has all managed ledgers of a process."""

    @property
    def cursor_services(self) -> CursorServices:
        """What all cursors share."""
        ...

    @property
    def read_budget(self) -> ByteBudget:
        """Bytes being read from bookies and not passed on yet."""
        ...

    @property
    def is_metadata_away(self) -> bool:
        """Whether the metadata store is known to be out of reach."""
        ...

    @property
    def entry_bytes_max(self) -> int:
        """What one entry may have."""
        ...

    def cache_entries(self, window: TailWindow, payloads: Sequence[bytes], size_bytes: int) -> None:
        """Keep confirmed entries for tail readers."""
        ...

    def watch_rollover(self, ml: RolledOver) -> None:
        """It has an open ledger, which will be full by age some time."""
        ...

    def on_closed(self, name: str, ml: RolledOver) -> None:
        """It was closed or deleted."""
        ...
