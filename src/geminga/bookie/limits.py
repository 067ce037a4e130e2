"""Limits of the bookie that are not configuration, each with its reason."""

from __future__ import annotations

from typing import Final

#: Bytes of one journal group: bounds the latency of its members and the copy that joins them.
JOURNAL_GROUP_BYTES_MAX: Final = 4 * 1024 * 1024
#: Mean size of a journal file's groups from which on the next file is not filled with zeros beforehand. Zeros save some
#: 50 us of a small group's sync; of larger groups they cost more than that, since they are one more write of each byte.
JOURNAL_FILLED_GROUP_BYTES_MAX: Final = 64 * 1024
#: Such a file is larger, so many times, as far as ``journalMaxSizeMB`` allows: it would be full after a few groups, and
#: each file costs several syncs.
JOURNAL_LARGE_FILE_FACTOR: Final = 4
#: Such a file where there is no room for a usual one: it takes what topics need to be taken over and deleted.
JOURNAL_SMALL_FILE_BYTES: Final = 64 * 1024
#: What an entry costs in the write cache beside its bytes (dict slot, int, object headers), bytes.
CACHED_ENTRY_OVERHEAD_BYTES: Final = 128
#: Target size of an entry log chunk: one pread and one checksum serve all its entries.
CHUNK_BYTES_MAX: Final = 64 * 1024
#: A half of the write cache is flushed once it holds so much, also where it might hold more.
FLUSH_BYTES: Final = 16 * 1024 * 1024
#: Bytes handed to the disk at once while flushing or compacting.
FLUSH_BATCH_BYTES_MAX: Final = 1024 * 1024
#: Chunks encoded between two turns of the event loop.
CHUNKS_PER_TURN: Final = 256
#: Index runs before they are merged; a lookup searches each run.
INDEX_RUNS_MAX: Final = 8
#: Rows merged between two turns of the event loop.
MERGE_ROWS_PER_TURN: Final = 20_000
#: Bytes read in one hop to the read lane; what arrives meanwhile forms the next one.
READ_BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
#: Seconds of work in which reads of a batch are answered before others of the loop have their turn.
READ_TURN_S_MAX: Final = 0.000_25
#: Neighbouring chunks are read together up to this size. Those are copied out of what was read; full ones, which are
#: alone, are not: a read of its own costs less than the copy.
READ_MERGE_BYTES_MAX: Final = 64 * 1024
#: An index lookup is repeated when compaction moved the entry meanwhile.
READ_ATTEMPTS_MAX: Final = 5
#: Live bytes copied by one garbage collection.
COMPACTION_BYTES_MAX: Final = 1024 * 1024 * 1024
#: And at most this part of what is free, one of so many: entries are added meanwhile, and the index is written anew.
COMPACTION_ROOM_SHARE: Final = 4
#: Room that is taken beforehand in each ledger directory for checkpoints of deletions: 15,000 entry logs. Twice that of
#: the last checkpoint where that is more.
RESERVE_BYTES: Final = 256 * 1024
#: A log that the disk did not give is left alone by compaction for so long: what ailed the disk may be over.
UNREAD_LOG_RETRY_S: Final = 3600.0
#: Rows of the index that a garbage collection looks at between two turns of the event loop.
GC_ROWS_PER_TURN: Final = 2_000
