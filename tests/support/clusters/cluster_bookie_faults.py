"""What happens to the bookies of a simulated cluster and to their disks, within what ledgers of 3/2/2 promise."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from support.clusters.cluster_metadata_node import SESSION_MS
from support.clusters.cluster_world import BOOKIES, ClusterWorld

#: Bookies in trouble at once: ledgers have two copies of each entry, all come back, and three must take entries.
BOOKIES_AWAY_MAX: Final = 2
#: Shorter and longer than a session, seconds.
SPANS_S: Final = (0.3, 1.5, 4.5, 7.0)


class BookieFaults:
    """See the module."""

    def __init__(self, cluster: ClusterWorld) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.rng = cluster.world.rng("faults")

    def later(self, seconds: float, what: Callable[..., object], *args: object) -> None:
        self.world.loop.call_later(seconds, what, *args)

    def span_s(self) -> float:
        return self.rng.choice(SPANS_S) * self.rng.uniform(0.7, 1.3)

    def _bookie(self) -> str | None:
        there = [name for name in BOOKIES if name not in self.cluster.away]
        return self.rng.choice(there) if len(there) > len(BOOKIES) - BOOKIES_AWAY_MAX else None

    async def crash_bookie(self) -> None:
        """At once, or at one of the next steps of its disk; its session may end meanwhile."""
        if (name := self._bookie()) is None:
            return
        seconds = self.span_s()
        if self.rng.random() < 0.5:
            self.cluster.bookies[name].crash()
        else:
            self.world.crash_at_disk_step(self.cluster.bookies[name].node, self.rng.randrange(1, 30))
        self.cluster.bring_back_bookie(name, seconds)
        if seconds > SESSION_MS / 1000 and self.rng.random() < 0.5:
            await self.cluster.unregister(name)

    async def stall_bookie(self) -> None:
        if (name := self._bookie()) is not None:
            self.world.pause(self.cluster.bookies[name].node, self.span_s())

    async def slow_disk(self) -> None:
        if (name := self._bookie()) is not None:
            disk = self.cluster.bookies[name].node.disk
            fault = disk.slow(self.rng.choice(("sync", "write", "read")), "*", self.rng.choice((0.02, 0.3, 2.0)))
            self.later(self.span_s(), fault.remove)

    async def fail_disk(self) -> None:
        """A bookie that can not write its journal ends; it is started again."""
        if (name := self._bookie()) is not None:
            disk = self.cluster.bookies[name].node.disk
            disk.inject(self.rng.choice(("write", "sync", "read")), "*", error=errno.EIO, after=self.rng.randrange(20))
            self.cluster.bring_back_bookie(name, self.span_s())

    async def fill_disk(self) -> None:
        """Of the same two: brokers take a bookie that refused an entry for full a minute long."""
        name = self.rng.choice(BOOKIES[:BOOKIES_AWAY_MAX])
        fault = self.cluster.bookies[name].node.disk.inject("write", "*", error=errno.ENOSPC, times=None)
        self.later(self.span_s(), fault.remove)
