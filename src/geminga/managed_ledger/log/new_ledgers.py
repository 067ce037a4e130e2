"""``NewLedgers``: makes the ledgers that one log goes on in, and puts them into its list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from geminga.managed_ledger.log.ledger_end import close_quietly
from geminga.managed_ledger.log.stored_list import LAST_ROOM_BYTES, ROOM_BYTES_MIN, StoredList
from geminga.managed_ledger.log.tenure import Tenure
from geminga.managed_ledger.rules.persistence import Persistence
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.ports import OpenLedger
from geminga.managed_ledger.shared.services import LedgerHome, StorageServices, groups_of
from geminga.model.errors import MetadataError
from geminga.runtime import crash_point, get_logger

#: A list of fewer ledgers is not measured: it has room whatever is said of them.
LEDGERS_ALWAYS: Final = 1000

_log = get_logger(__name__)

Opened = Callable[[OpenLedger, LedgerInfo], None]


class GrowingLog(Protocol):
    """The managed ledger that grows."""

    name: str
    tenure: Tenure
    stored: StoredList

    @property
    def persistence(self) -> Persistence:
        """What new ledgers are to have."""
        ...

    @property
    def newest_ledger_id(self) -> int:
        """No ledger of its list has a greater id."""
        ...

    def roll_if_full(self) -> None:
        """Begin a new ledger if the open one is full by its age."""
        ...


class NewLedgers:
    """See the module. The list's lock is held during each of its coroutines."""

    __slots__ = ("_home", "_is_full_told", "_log", "_services")

    def __init__(self, log: GrowingLog, services: StorageServices, home: LedgerHome) -> None:
        self._log = log
        self._services = services
        self._home = home
        self._is_full_told = False

    @property
    def is_metadata_away(self) -> bool:
        """Whether the metadata store is known to be out of reach."""
        return self._home.is_metadata_away

    @property
    def is_list_full(self) -> bool:
        """Whether the list has no room for a ledger that could be done without."""
        stored = self._log.stored
        if len(stored.ledgers) < LEDGERS_ALWAYS or stored.room_bytes >= ROOM_BYTES_MIN:
            return False
        if not self._is_full_told:
            self._is_full_told = True
            _log.warning("%s: %s: the open one goes on beyond its limits", self._log.name, stored.fullness)
        return True

    def is_as_wanted(self, ledger: OpenLedger) -> bool:
        """Whether a new ledger would have its quorums, and its groups of bookies."""
        has, wanted = ledger.metadata, self._log.persistence
        return (has.ensemble_size, has.write_quorum, has.ack_quorum) == (
            wanted.ensemble_size,
            wanted.write_quorum,
            wanted.ack_quorum,
        ) and groups_of(has.custom_metadata) == wanted.groups

    async def make(self) -> OpenLedger:
        """A ledger that no list names yet. Raises NotEnoughBookiesError, LedgerFencedError, MetadataError."""
        log = self._log
        log.tenure.check_writable()
        if len(log.stored.ledgers) >= LEDGERS_ALWAYS and log.stored.room_bytes < LAST_ROOM_BYTES:
            # Not made and then refused by the store: each attempt would leave a ledger that nobody names.
            raise MetadataError(f"{log.name}: {log.stored.fullness}: nothing is written until old ones are deleted")
        handle = await self._services.create_ledger(log.name, log.persistence, newer_than=log.newest_ledger_id)
        crash_point(points.LEDGER_CREATED)
        return handle

    async def give_up(self, made: OpenLedger) -> None:
        """Delete what :meth:`make` gave and nobody wrote to; what can not be is left to the collector."""
        await close_quietly(made)
        await self._log.stored.delete_ledgers([made.ledger_id])

    async def add(self, made: OpenLedger, opened: Opened) -> None:
        """Make it the last of the list. Raises LedgerFencedError, MetadataError."""
        log = self._log
        info = LedgerInfo(made.ledger_id, opened_ms=made.metadata.created_ms or 0)
        log.stored.drop_empty()
        await log.stored.put([*log.stored.ledgers.infos, info])
        crash_point(points.LEDGER_LISTED)
        log.stored.ledgers.append(info)
        opened(made, info)
        self._home.watch_rollover(log)
