"""Every named crash point of the bookie (``runtime.crash_point``), so that tests can prove each was hit."""

from __future__ import annotations

from typing import Final

JOURNAL_BEFORE_WRITE: Final = "bookie.journal.before_write"
JOURNAL_AFTER_SUBMIT: Final = "bookie.journal.after_submit"
JOURNAL_AFTER_SYNC: Final = "bookie.journal.after_sync"
JOURNAL_AFTER_ACK: Final = "bookie.journal.after_ack"
JOURNAL_BEFORE_ROLL: Final = "bookie.journal.before_roll"
JOURNAL_FILE_CREATED: Final = "bookie.journal.file_created"
JOURNAL_AFTER_ROLL: Final = "bookie.journal.after_roll"
CACHE_AFTER_PUT: Final = "bookie.cache.after_put"
FLUSH_SWAPPED: Final = "bookie.flush.swapped"
FLUSH_LOG_CREATED: Final = "bookie.flush.log_created"
FLUSH_LOG_WRITTEN: Final = "bookie.flush.log_written"
FLUSH_LOG_SYNCED: Final = "bookie.flush.log_synced"
FLUSH_RUN_WRITTEN: Final = "bookie.flush.run_written"
FLUSH_MARK_WRITTEN: Final = "bookie.flush.mark_written"
JOURNAL_BEFORE_DELETE: Final = "bookie.journal.before_delete"
JOURNAL_AFTER_DELETE: Final = "bookie.journal.after_delete"
MERGE_RUN_WRITTEN: Final = "bookie.merge.run_written"
MERGE_MARK_WRITTEN: Final = "bookie.merge.mark_written"
GC_LEDGERS_DELETED: Final = "bookie.gc.ledgers_deleted"
GC_ENTRIES_COPIED: Final = "bookie.gc.entries_copied"
GC_RUN_WRITTEN: Final = "bookie.gc.run_written"
GC_BEFORE_UNLINK: Final = "bookie.gc.before_unlink"
GC_AFTER_UNLINK: Final = "bookie.gc.after_unlink"
READMIT_RUNS_WRITTEN: Final = "bookie.readmit.runs_written"
READMIT_CHECKPOINT_WRITTEN: Final = "bookie.readmit.checkpoint_written"
RECOVERY_SCANNED: Final = "bookie.recovery.scanned"
RECOVERY_REPLAYED: Final = "bookie.recovery.replayed"
RECOVERY_JOURNAL_OPENED: Final = "bookie.recovery.journal_opened"

#: All of the above, in the order of an entry's life.
ALL: Final[tuple[str, ...]] = tuple(
    value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)
)
