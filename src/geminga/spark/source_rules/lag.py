"""How far a query is behind its topics, from positions alone: no administration is asked, no message is read for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from geminga.spark.source_rules.offsets import BEGINNING, ReadPosition

#: Sightings of ends that are remembered for each topic; with more, times between them are rounded up.
SIGHTINGS_MAX: Final = 64


class Lag:
    """What the last planned batch left unread, and for how long that has been there."""

    __slots__ = ("_ends", "_seen")

    def __init__(self) -> None:
        #: Where the topics ended when they were looked at last.
        self._ends: dict[str, ReadPosition] = {}
        #: Per topic: (when an end was seen first in ms, that end), ascending.
        self._seen: dict[str, deque[tuple[float, ReadPosition]]] = {}

    def saw(self, ends: Mapping[str, ReadPosition], now_ms: float) -> None:
        """The ends of all topics, as they are now."""
        self._ends = dict(ends)
        self._seen = {topic: self._seen.get(topic, deque()) for topic in ends}
        for topic, end in ends.items():
            seen = self._seen[topic]
            if seen and seen[-1][1] >= end:
                continue
            if len(seen) == SIGHTINGS_MAX:
                # Of two neighbours the earlier time with the later end: no lag is told too small.
                first = seen.popleft()
                seen[0] = (first[0], seen[0][1])
            seen.append((now_ms, end))

    def behind(self, planned: Mapping[str, ReadPosition], now_ms: float) -> dict[str, object]:
        """``entries`` that ``planned`` has not reached, and ``ms`` since the oldest of them was seen.

        ``atLeast`` is there, and true, if entries lie in ledgers between whose lengths nobody told.
        """
        entries = 0
        is_partial = False
        oldest_ms = now_ms
        for topic, end in self._ends.items():
            at = planned.get(topic, BEGINNING)
            seen = self._seen[topic]
            while seen and seen[0][1] <= at:
                seen.popleft()
            if at >= end:
                continue
            if at.ledger_id == end.ledger_id:
                entries += end.entry_id - at.entry_id + (1 if end.batch_index else 0)
            else:
                entries += end.entry_id + (1 if end.batch_index else 0)
                is_partial = True
            if seen:
                oldest_ms = min(oldest_ms, seen[0][0])
        found: dict[str, object] = {"entries": entries, "ms": round(now_ms - oldest_ms)}
        return {"atLeast": True, **found} if is_partial else found
