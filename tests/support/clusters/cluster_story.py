"""A whole cluster in one seed: brokers, bookies, metadata, clients, and all that can go wrong with them.

Three brokers as the product composes them (membership, leader, bundles by ephemeral nodes), five bookies with disks
under ledgers of 3/2/2, a metadata node with sessions, two client programs; everything that crosses nodes crosses the
simulated network. What must hold: one writer per topic (nobody acknowledges without a node of its session, but who can
not know that yet), nothing acknowledged is lost, order per producer (and key) is kept, what a consumer acknowledged
with a response comes to no later one (but from a broker that can not know that it lost the topic), every topic is
served in the end and no bundle is owned by two.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from geminga.runtime import spawn
from geminga.sim import SimWorld
from support.clusters.cluster_checks import (
    Excuses,
    check_bundles,
    check_cuts,
    check_lookups,
    check_order,
    check_owners,
    is_open_unknowingly,
    said,
    stored,
)
from support.clusters.cluster_faults import Faults
from support.clusters.cluster_traffic import Traffic
from support.clusters.cluster_world import NAMES, ClusterWorld

#: Virtual seconds of trouble, in which all must be well afterwards, and in which brokers look at everything once.
CHANGES_S: Final = 20.0
SETTLED_S: Final = 90.0
ROUNDS_S: Final = 25.0
#: Between two looks at who has what open.
LOOK_S: Final = 0.2


class ClusterStory:
    """See the module."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.cluster = ClusterWorld(world)
        self.excuses = Excuses(self.cluster)
        self.faults = Faults(self.cluster, self.excuses)
        self.is_over = False

    async def run(self) -> None:
        await self.cluster.start()
        until_s = self.world.now + CHANGES_S
        traffic = Traffic(self.cluster, until_s, partial(is_open_unknowingly, self.cluster, self.excuses))
        watching = spawn(self._watch(), name="who has what open")
        working = spawn(traffic.run(), name="traffic")
        await self.faults.run(until_s)
        await self.faults.calm_down()
        try:
            async with asyncio.timeout(SETTLED_S):
                await working
        except TimeoutError as error:
            raise AssertionError(f"clients did not follow: {traffic.told()}") from error
        await self.world.sleep(ROUNDS_S)
        self.is_over = True
        await watching
        await self._check(traffic)

    async def _watch(self) -> None:
        while not self.is_over:
            check_owners(self.cluster, self.excuses)
            await self.world.sleep(LOOK_S)

    async def _check(self, traffic: Traffic) -> None:
        check_bundles(self.cluster)
        check_cuts(self.cluster, self.faults.cuts)
        await check_lookups(self.cluster)
        found = {}
        for name in NAMES:
            log = await stored(self.cluster, name)
            if self.cluster.keeps or self.cluster.deduplicates:
                # Else the first copy of what was sent twice may be gone, and the second comes late.
                check_order(str(name), map(said, log.values()), deduplicates=self.cluster.deduplicates)
            found |= log
        there = set(map(said, found.values()))
        for line in traffic.lines:
            for message, place in line.receipts.items():
                is_trimmed = not self.cluster.keeps and message in line.consumed
                assert message in there or is_trimmed, f"{message} at {place} is lost"
                if place in found:
                    assert said(found[place]) == message, f"{place} is {found[place]!r}, and was {message}"
        check_owners(self.cluster, self.excuses)


async def cluster_story(world: SimWorld) -> None:
    """One story; raises where a promise was broken."""
    await ClusterStory(world).run()
