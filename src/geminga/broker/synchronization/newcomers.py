"""Clusters that the topic is copied to, and that listen, from now on: they are told how everything came to be.

What is copied to one that does not listen yet is kept for nobody. It listens before it tells anything of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from geminga.broker.synchronization.ports import TopicClusters
from geminga.broker.synchronization.stored_records import StoredRecords, Told
from geminga.runtime import Clock, get_logger

#: Tells some clusters everything, deletions or not.
TellAll: TypeAlias = Callable[[Sequence[str], bool], Awaitable[None]]

_log = get_logger(__name__)

#: Between two looks for them.
LOOK_S: Final = 10.0
#: How long one has been named by the topic's namespace before: what is published from then on is copied there, too.
NAMED_S: Final = 20.0


class NewClusters:
    """See the module."""

    __slots__ = ("_clock", "_clusters", "_heard", "_next_s", "_records", "_seen_s", "_tell_all")

    def __init__(self, records: StoredRecords, clusters: TopicClusters, clock: Clock, tell_all: TellAll) -> None:
        self._records = records
        self._tell_all = tell_all
        #: Clusters that are known to be heard of.
        self._heard: frozenset[str] = frozenset()
        self._clusters = clusters
        self._clock = clock
        self._next_s = 0.0
        #: Since when each was seen, seconds.
        self._seen_s: dict[str, float] = {}

    async def hear(self, cluster: str) -> None:
        """An event came from there. Raises GemingaError."""
        if cluster in self._heard or not await self._clusters.knows(cluster):
            return
        told = await self._records.told()
        if cluster not in told.heard:
            await self._records.write_told(told._replace(heard=told.heard | {cluster}))
        self._heard = told.heard | {cluster}

    async def look(self) -> float:
        """Tell those that are due; when to look again (seconds, monotonic). Raises GemingaError."""
        now_s = self._clock.monotonic()
        if now_s < self._next_s:
            return self._next_s
        others = await self._clusters.others()
        told = await self._records.told()
        now = told.among(others)
        if now != told:
            await self._records.write_told(now)
            told = await self._records.told()
        self._seen_s = {name: self._seen_s.get(name, now_s) for name in others if name in told.heard - told.clusters}
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
                await self._tell_all(names, with_deletions)
        # Others may have been heard of meanwhile.
        now = await self._records.told()
        came = frozenset(clusters)
        await self._records.write_told(now._replace(clusters=now.clusters | came, former=now.former - came))
