"""Which entry logs to remove and which to compact. Pure.

What is live in a log is counted from the index, not from a header or footer of the log: there is no second
account that could be wrong and let live data be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from geminga.bookie.core.index import Row, log_of


class GcPlan(NamedTuple):
    """Logs without live entries, and logs whose live entries are worth copying."""

    remove: Sequence[int]
    compact: Sequence[int]


class LiveBytes:
    """Bytes of live chunks in each log; a chunk that several rows name counts once."""

    __slots__ = ("_seen", "by_log")

    def __init__(self) -> None:
        self.by_log: dict[int, int] = {}
        self._seen: set[int] = set()

    def add(self, rows: Iterable[Row]) -> int:
        """Count the chunks of these; how many rows they are."""
        live, seen = self.by_log, self._seen
        count = 0
        for row in rows:
            count += 1
            if row.location not in seen:
                seen.add(row.location)
                log_id = log_of(row.location)
                live[log_id] = live.get(log_id, 0) + row.size_bytes
        return count


def plan_gc(
    logs: Mapping[int, int],
    live_bytes: Mapping[int, int],
    *,
    active_log_id: int | None,
    compact_below: float,
    copy_bytes_max: int,
    excluded: Iterable[int] = (),
) -> GcPlan:
    """The plan for ``logs`` (id -> size in bytes).

    A log without live bytes goes. One whose live share is under ``compact_below`` is compacted, emptiest first,
    as long as the copies stay within ``copy_bytes_max`` (one log always fits). The active log stays as it is;
    ``excluded`` ones (damaged) are not compacted.
    """
    kept = set(excluded)
    candidates = [log_id for log_id in sorted(logs) if log_id != active_log_id]
    remove = [log_id for log_id in candidates if not live_bytes.get(log_id)]
    sparse = [log_id for log_id in candidates if live_bytes.get(log_id) and log_id not in kept]
    by_share = sorted((live_bytes[i] / max(1, logs[i]), i) for i in sparse)
    compact: list[int] = []
    copied = 0
    for share, log_id in by_share:
        if share >= compact_below or (compact and copied + live_bytes[log_id] > copy_bytes_max):
            break
        compact.append(log_id)
        copied += live_bytes[log_id]
    return GcPlan(remove, compact)
