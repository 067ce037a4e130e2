"""Every named crash point of the delayed index's snapshots, so that tests can prove each was hit."""

from __future__ import annotations

from typing import Final

LEDGER_CREATED: Final = "delayed.ledger.created"
NEXT_NAMED: Final = "delayed.next.named"
RECORDS_WRITTEN: Final = "delayed.records.written"
NAMED: Final = "delayed.ledger.named"
OLD_DELETED: Final = "delayed.old.deleted"
ADDED: Final = "delayed.records.added"
DROPPED: Final = "delayed.node.removed"

ALL: Final = tuple(sorted(value for name, value in tuple(globals().items()) if name.isupper()))
