"""What row groups of lake files mean to compaction: the same as the entries that they are made of.

The first reading goes by columns of keys (:func:`take_rows`), the second gives what is kept of a row group
(:func:`kept_of`). An entry that is kept as it is stored (encrypted, in chunks, damaged) is judged as in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from geminga.broker.core.compaction.entry_messages import (
    DELETES,
    IS_GONE,
    EntryMessages,
    Steps,
    repacked,
    taken_apart,
)
from geminga.broker.core.compaction.newest import NewestMessages
from geminga.lake.core.rows import EntryRun, KeyRows, UndividedEntry


class KeptEntry(NamedTuple):
    """An entry of which something is kept."""

    entry_id: int
    messages: int
    #: One for each message, the lowest for the first.
    bits: int


def take_rows(newest: NewestMessages, rows: KeyRows, *, tombstones_from_ms: int | None = None) -> Steps[None]:
    """The next row group, in steps of a bounded time; ``tombstones_from_ms`` as of ``newest``. May raise
    StorageError."""
    for found in messages_of(rows, tombstones_from_ms=tombstones_from_ms):
        if found is not None:
            yield from newest.add(found)
        yield


def messages_of(rows: KeyRows, *, tombstones_from_ms: int | None = None) -> Iterator[EntryMessages | None]:
    """As ``taken_apart`` of the row group's entries; what are rows of their own comes together."""
    flags = _flags(rows, tombstones_from_ms)
    before = 0
    for one in rows.stored:
        if before < one.row:
            yield EntryMessages(rows.keys[before : one.row], flags[before : one.row])
            before = one.row
        if one.entry is not None:
            yield from taken_apart((one.entry,), tombstones_from_ms=tombstones_from_ms)
    if before < len(rows.keys):
        yield EntryMessages(rows.keys[before:], flags[before:])


def _flags(rows: KeyRows, tombstones_from_ms: int | None) -> bytes:
    is_empty, is_gone = rows.is_empty, rows.is_gone
    if tombstones_from_ms is not None and any(is_empty):
        is_empty = bytes(
            empty and (gone or key is None or time_ms < tombstones_from_ms)
            for empty, gone, key, time_ms in zip(is_empty, is_gone, rows.keys, rows.times_ms, strict=True)
        )
    if not any(is_gone):
        # As nearly everywhere; DELETES is 1.
        return is_empty
    return bytes(
        (DELETES if empty else 0) | (IS_GONE if gone else 0) for empty, gone in zip(is_empty, is_gone, strict=True)
    )


def kept_of(runs: Sequence[EntryRun], stored: Sequence[UndividedEntry], bits: int) -> list[KeptEntry]:
    """The entries of a row group of which anything is kept; ``bits``: of all its messages."""
    whole = {one.entry_id: one.entry for one in stored}
    found: list[KeptEntry] = []
    for entry_id, rows in runs:
        count = rows or _count(whole[entry_id])
        of_entry = bits & ((1 << count) - 1)
        bits >>= count
        if of_entry:
            found.append(KeptEntry(entry_id, count, of_entry))
    return found


def _count(entry: bytes | None) -> int:
    if entry is None:
        return 0
    return sum(len(found.keys) for found in taken_apart((entry,)) if found is not None)


def packed(entry: bytes, kept: KeptEntry) -> bytes:
    """The entry with the messages of it that are kept."""
    if kept.bits.bit_count() == kept.messages:
        return entry
    steps = repacked(entry, kept.messages, kept.bits)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            whole: bytes = end.value
            return whole
