"""What the metadata store has of a managed ledger (Pulsar's ``internal-info``), whether or not it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.managed_ledger.rules.trim import has_unread
from geminga.managed_ledger.shared.metadata_io import cursor_path, ledger_path
from geminga.wire.managed_ledger import (
    CursorInfoRecord,
    ManagedLedgerRecord,
    decode_cursor_info,
    decode_managed_ledger_info,
)

if TYPE_CHECKING:
    from geminga.metadata.ports import MetadataStore, Stat

#: Of a cursor whose node is its state.
NO_LEDGER: Final = -1


class StoredInfo(NamedTuple):
    """The nodes of a managed ledger as they are stored."""

    record: ManagedLedgerRecord
    stat: Stat
    #: By the name of the cursor's node, in order.
    cursors: dict[str, tuple[CursorInfoRecord, Stat]]

    def has_unread(self, cursor_name: str) -> bool:
        """Whether a cursor may have entries in front of it; False only where these nodes say that it has none."""
        found = self.cursors.get(cursor_name)
        is_whole = found is not None and found[0].cursor_ledger_id == NO_LEDGER
        return has_unread(self.record.ledgers, found[0].mark_delete if found is not None and is_whole else None)


async def read_info(metadata: MetadataStore, name: str) -> StoredInfo | None:
    """The managed ledger of that name; None if there is none. Raises MetadataError, CorruptionError."""
    node = await metadata.get(ledger_path(name))
    if node is None:
        return None
    cursors: dict[str, tuple[CursorInfoRecord, Stat]] = {}
    for cursor_name in await metadata.children(ledger_path(name)):
        found = await metadata.get(cursor_path(name, cursor_name))
        # None: it was deleted in between.
        if found is not None:
            cursors[cursor_name] = decode_cursor_info(found.value), found.stat
    return StoredInfo(decode_managed_ledger_info(node.value), node.stat, cursors)
