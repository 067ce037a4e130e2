"""Every named crash point of the ledger client (``runtime.crash_point``), so that tests can prove each was hit."""

from __future__ import annotations

from typing import Final

IDS_TAKEN: Final = "ledger.ids.taken"
IDS_RAISED: Final = "ledger.ids.raised"
CREATED: Final = "ledger.create.metadata_written"
CHANGE_PLANNED: Final = "ledger.ensemble_change.planned"
CHANGE_WRITTEN: Final = "ledger.ensemble_change.metadata_written"
CLOSE_DRAINED: Final = "ledger.close.drained"
CLOSED: Final = "ledger.close.metadata_written"
RECOVERY_FENCED: Final = "ledger.recovery.fenced"
RECOVERY_READ: Final = "ledger.recovery.read"
RECOVERY_WRITTEN_BACK: Final = "ledger.recovery.written_back"
RECOVERY_CLOSED: Final = "ledger.recovery.closed"
READMITTED_IN_METADATA: Final = "ledger.readmit.metadata_written"
READMITTED_ON_BOOKIES: Final = "ledger.readmit.bookies_asked"
DELETED: Final = "ledger.delete.metadata_gone"

#: All of the above, in the order of a ledger's life.
ALL: Final[tuple[str, ...]] = tuple(
    value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)
)
