"""One of five bookies at a time loses its power, stalls or is full, the writer dies too: what was acknowledged is read.

Quorums are those that keep an entry while any one bookie is away. What must hold: an
acknowledged entry is read with its bytes by whoever opens the ledger, whichever single bookie is away then; the end
that one reader was told is the end for all; nothing is completed out of order.
"""

from __future__ import annotations

import os
from contextvars import copy_context

import pytest

from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.model.errors import NotEnoughBookiesError, StorageError
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.clusters.bookie_ensemble import Ensemble, read_whole
from support.house.weekly_sample import run_share, run_week
from support.worlds.ledgers import payloads

SEEDS = int(os.environ.get("GEMINGA_ENSEMBLE_SEEDS", "6"))
SEEDS_LONG = int(os.environ.get("GEMINGA_ENSEMBLE_SEEDS_LONG", "600"))
LABELS = ("writer died", "trouble", "read with one away")
QUORUMS = [(5, 3, 2), (5, 3, 2), (5, 5, 3), (5, 4, 3), (3, 3, 2), (5, 4, 2)]
LIVES = 2
STEPS = 30


class EnsembleStory:
    """Survives the writer: what was acknowledged, and where each ledger was told to end."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("ensemble story")
        self.ensemble = Ensemble(world, "far", 5)
        self.node = world.node("broker")
        #: Of no node: timers in it outlive the writer.
        self.outside = copy_context()
        #: The one that is away.
        self.away: str | None = None
        self.quickest = ""
        self.acknowledged: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    async def run(self) -> None:
        await self.ensemble.start()
        # In half of the worlds one bookie has everything long before the others.
        self.quickest = self.rng.choice(self.ensemble.names)
        slow_s = self.rng.choice((0.002, 0.1))
        for name, bookie in self.ensemble.far.items():
            bookie.way_s_max = 0.001 if name == self.quickest else slow_s
        for _ in range(LIVES):
            last = self.rng.uniform(0.05, 1) if self.rng.random() < 0.7 else 3600
            crash = self.world.loop.call_later(last, self.world.crash, self.node)
            try:
                await self.world.restart(self.node, self.live)
            except NodeCrashedError:
                self.world.points.hits["writer died"] += 1
            crash.cancel()
            self.world.crash(self.node)
            # Whoever alone has what was acknowledged last may go at the same moment.
            if self.rng.random() < 0.7:
                await self.bring_back()
                self.away = self.rng.choice((self.quickest, self.rng.choice(self.ensemble.names)))
                self.ensemble.take_down(self.away)
            await self.world.restart(self.node, self.check)
        await self.bring_back()
        await self.world.restart(self.node, self.check)

    # ---- trouble

    async def trouble(self) -> None:
        """One bookie goes, or the one that is away comes back."""
        if self.away is not None:
            await self.bring_back()
            return
        name = self.away = self.rng.choice(self.ensemble.names)
        drawn = self.rng.random()
        self.world.points.hits["trouble"] += 1
        if drawn < 0.6:
            self.ensemble.take_down(name)
        elif drawn < 0.8:
            self.ensemble.stall(name)
            # Nobody gives up on one that stalls yet, so it does not do so for ever.
            stalled_s = self.rng.uniform(0.1, 2)
            node = self.world.node(name)
            self.world.loop.call_later(stalled_s, self.world.resume, node, context=self.outside.copy())
        else:
            await self.ensemble.fill_up(name)

    async def bring_back(self) -> None:
        if self.away is not None:
            away = self.away
            await self.ensemble.bring_back(away)
            self.away = None

    # ---- a writer's life

    async def live(self, node: SimNode) -> None:
        client = self.ensemble.client(node)
        handles: list[LedgerHandle] = []
        for _ in range(STEPS):
            drawn = self.rng.random()
            if drawn < 0.12:
                await self.trouble()
            elif drawn < 0.25 or not handles:
                await self.create(client, handles)
            elif drawn < 0.3:
                handle = handles.pop(self.rng.randrange(len(handles)))
                await handle.close()
                self.told(handle.ledger_id, handle.last_add_confirmed)
            else:
                self.append(self.rng.choice(handles))
                if self.rng.random() < 0.6:
                    await self.world.sleep(self.rng.uniform(0, 0.05))

    async def create(self, client: BookKeeper, handles: list[LedgerHandle]) -> None:
        size, write, ack = self.rng.choice(QUORUMS)
        try:
            handle = await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
        except NotEnoughBookiesError:
            assert self.away is not None
            assert size == 5
            return
        self.acknowledged[handle.ledger_id] = 0
        handles.append(handle)

    def append(self, handle: LedgerHandle) -> None:
        count = self.rng.choice((1, 1, 3, 20))
        first = handle.last_add_pushed + 1

        def done(done_first: int, done_count: int, error: StorageError | None) -> None:
            if error is None:
                assert done_first == self.acknowledged[handle.ledger_id], "completed out of order"
                self.acknowledged[handle.ledger_id] += done_count
            else:
                # Only where one entry met two: a bookie that is away now, and one that was when the entry came.
                self.world.points.hits["add failed"] += 1

        handle.append([payload * self.rng.choice((1, 30)) for payload in payloads(first, count)], done)

    def told(self, ledger_id: int, end: int) -> None:
        assert self.ends.setdefault(ledger_id, end) == end, f"ledger {ledger_id} ended at {self.ends[ledger_id]}"
        assert end >= self.acknowledged[ledger_id] - 1, f"ledger {ledger_id} was cut at {end}"

    # ---- what must hold

    async def check(self, node: SimNode) -> None:
        """Open everything, with whoever is away now."""
        client = self.ensemble.client(node)
        for ledger_id in sorted(self.acknowledged):
            reader, entries = await read_whole(client, ledger_id, self.world, 60, self.told)
            for entry_id, entry in enumerate(entries):
                [payload] = payloads(entry_id, 1)
                assert entry in (payload, payload * 30), f"{ledger_id}:{entry_id}"
            assert sum(map(len, entries)) == reader.length_bytes
            if self.away is not None:
                self.world.points.hits["read with one away"] += 1


async def ensemble_story(world: SimWorld) -> None:
    """The scenario."""
    await EnsembleStory(world).run()


def test_any_one_of_five_bookies_may_go_and_everything_acknowledged_is_read():
    run_week(ensemble_story, range(600), least=SEEDS, most=60, hits_min=5, labels=LABELS)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_any_one_of_five_bookies_may_go_over_many_seeds():
    run_share(ensemble_story, range(10_000, 10_000 + SEEDS_LONG), hits_min=100, labels=LABELS)
