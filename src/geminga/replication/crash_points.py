"""Every named crash point of auto-recovery (``runtime.crash_point``), so that tests can prove each was hit."""

from __future__ import annotations

from typing import Final

VOTED: Final = "replication.election.voted"
MARKED: Final = "replication.auditor.marked"
AUDITED: Final = "replication.auditor.looked"
LOCKED: Final = "replication.worker.locked"
FENCED: Final = "replication.worker.target_fenced"
COPIED_BATCH: Final = "replication.worker.batch_copied"
COPIED: Final = "replication.worker.fragment_copied"
REPLACED: Final = "replication.worker.metadata_written"
RECOVERED: Final = "replication.worker.ledger_recovered"
UNMARKED: Final = "replication.worker.mark_deleted"
UNLOCKED: Final = "replication.worker.lock_released"

#: All of the above, in the order of a mark's life.
ALL: Final[tuple[str, ...]] = tuple(
    value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)
)
