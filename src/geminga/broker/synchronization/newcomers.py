"""Clusters that the topic is copied to from now on: they are told how everything came to be."""

from __future__ import annotations

from typing import Final

from geminga.broker.synchronization.ports import Guard
from geminga.broker.synchronization.stored_records import StoredRecords, Told
from geminga.broker.synchronization.walking import Walk
from geminga.runtime import Clock, get_logger

_log = get_logger(__name__)

#: Between two looks for them.
LOOK_S: Final = 10.0
#: How long one has been named by the topic's namespace before: what is published from then on is copied there, too.
NAMED_S: Final = 20.0


class NewClusters:
    """See the module."""

    __slots__ = ("_clock", "_guard", "_next_s", "_records", "_seen_s", "_walk")

    def __init__(self, records: StoredRecords, walk: Walk, guard: Guard, clock: Clock) -> None:
        self._records = records
        self._walk = walk
        self._guard = guard
        self._clock = clock
        self._next_s = 0.0
        #: Since when each was seen, seconds.
        self._seen_s: dict[str, float] = {}

    async def look(self) -> float:
        """Tell those that are due; when to look again (seconds, monotonic). Raises GemingaError."""
        now_s = self._clock.monotonic()
        if now_s < self._next_s:
            return self._next_s
        others = await self._guard.others()
        told = await self._records.told()
        now = told.among(others)
        if now != told:
            await self._records.write_told(now)
            told = await self._records.told()
        self._seen_s = {name: self._seen_s.get(name, now_s) for name in others if name not in told.clusters}
        due = [name for name, since_s in self._seen_s.items() if now_s - since_s >= NAMED_S]
        if due:
            await self._tell(due, told)
        self._next_s = now_s + LOOK_S
        return self._next_s

    async def _tell(self, clusters: list[str], told: Told) -> None:
        """A cluster that was there before hears of deletions, too; another one has nothing to be deleted."""
        again = sorted(told.former & set(clusters))
        new = sorted(set(clusters) - told.former)
        for names, with_deletions in ((again, True), (new, False)):
            if names:
                _log.info("clusters %s are told how the configuration is here", ", ".join(names))
                await self._walk.tell_all(names, with_deletions=with_deletions)
        await self._records.write_told(
            Told(told.clusters | frozenset(clusters), told.former - frozenset(clusters), told.version)
        )
