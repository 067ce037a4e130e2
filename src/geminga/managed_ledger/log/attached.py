"""``AttachedLedgers``: ledgers that belong to a log beside its list, made, named and deleted.

One is named in the log's node before anything is written to it, and named no longer before it is deleted: whatever a
crash leaves is named or collected (``rules.attached``). With the log they are deleted, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.rules.attached import ATTACHED_PROPERTY, attached_ids, attached_text
from geminga.managed_ledger.rules.persistence import Persistence
from geminga.managed_ledger.shared.ports import OpenLedger
from geminga.managed_ledger.shared.services import StorageServices, placed_within
from geminga.runtime import crash_point

#: Named crash points.
MADE: Final = "ml.attached.made"
NAMED: Final = "ml.attached.named"
FORGOTTEN: Final = "ml.attached.forgotten"
_NOTHING: Final[Mapping[str, str]] = {}


class AttachedLedgers:
    """Of one managed ledger, see the module."""

    __slots__ = ("_services", "_stored")

    def __init__(self, stored: StoredList, services: StorageServices) -> None:
        self._stored = stored
        self._services = services

    @property
    def ids(self) -> tuple[int, ...]:
        """Those that are named now, ascending. Raises CorruptionError."""
        return attached_ids(self._stored.properties)

    async def create(self, persistence: Persistence, custom_metadata: Mapping[str, bytes]) -> OpenLedger:
        """A new one, named. Raises StorageError, LedgerFencedError if another owner has the log: then there is none, or
        one that is collected."""
        ledger = await self._services.ledgers.create_ledger(
            ensemble_size=persistence.ensemble_size,
            write_quorum=persistence.write_quorum,
            ack_quorum=persistence.ack_quorum,
            custom_metadata=placed_within(custom_metadata, persistence.groups),
            newer_than=-1,
        )
        crash_point(MADE)
        await self._stored.add_properties({ATTACHED_PROPERTY: attached_text({*self.ids, ledger.ledger_id})})
        crash_point(NAMED)
        return ledger

    async def note(self, ledger_ids: Collection[int], properties: Mapping[str, str] = _NOTHING) -> None:
        """Have these named and no others, and say so with other properties of the log, in one write; those that are
        named no longer are deleted. Raises StorageError, LedgerFencedError: then all are there."""
        before = self.ids
        wanted = {ATTACHED_PROPERTY: attached_text(ledger_ids), **properties}
        if any(self._stored.properties.get(name, "") != value for name, value in wanted.items()):
            await self._stored.add_properties(wanted)
            crash_point(FORGOTTEN)
        gone = [ledger_id for ledger_id in before if ledger_id not in ledger_ids]
        if gone:
            await self._stored.delete_ledgers(gone)
