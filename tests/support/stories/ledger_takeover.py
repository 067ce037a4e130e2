"""A writer that is taken over while messages are late: one ledger, its writer, two recoverers, one who reads along.

Each client has a link of its own to each bookie, which keeps order, takes time, and is cut now and then: what was
sent arrives when it is whole again, however late. Bookies refuse adds and fail reads for a while, writers are killed.
All of it is within what the quorums promise: no bookie forgets anything.

What must hold: what the writer was told is stored is in the closed ledger, with its bytes, also without as many
bookies as the ack quorum lets go; all recoverers agree; a reader that reads along never sees more than the writer was
told, nor what the end does not have.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from geminga.bookkeeper import BookKeeper, BookKeeperConfig, LedgerHandle, LocalBookiePool, MemoryBookie
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataFaults
from geminga.model.bookie_port import Availability, AvailabilityListener, Bookie
from geminga.model.errors import DiskIOError, StorageError
from geminga.runtime import spawn
from geminga.sim import SimNode, SimWorld

QUORUMS = [(1, 1, 1), (3, 2, 2), (3, 3, 2), (5, 3, 2), (5, 5, 3)]
SPARES = 2
#: One way, seconds; after so long without an answer a call failed.
WAY_S = 0.004
ANSWER_S = 5.0
BATCHES = 14
#: When everything is over, at the latest.
ENDS_S = 1000.0


class Link:
    """One client's way to one bookie and back."""

    def __init__(self, world: SimWorld, bookie: MemoryBookie, rng: random.Random, way_s: float, refused: float) -> None:
        """``refused``: of the adds, by chance."""
        self.world = world
        self.bookie = bookie
        self.rng = rng
        self.way_s = way_s
        self.refused = refused
        self.is_cut = False
        self.is_ended = False
        self._held: list[Callable[[], None]] = []
        self._last = {True: 0.0, False: 0.0}

    def send(self, message: Callable[[], None], *, is_answer: bool = False) -> None:
        """Deliver it later, behind what was sent before."""
        if self.is_cut:
            if not self.is_ended:
                self._held.append(partial(self.send, message, is_answer=is_answer))
            return
        at = max(self._last[is_answer], self.world.loop.time() + self.rng.uniform(0, self.way_s))
        self._last[is_answer] = at
        self.world.loop.call_at(at, lambda: None if self.is_ended else message())

    def end(self) -> None:
        """Its client was killed: what did not arrive never will."""
        self.is_cut = self.is_ended = True
        self._held.clear()

    def mend(self) -> None:
        """What was held goes on its way."""
        if self.is_ended:
            return
        self.is_cut = False
        held, self._held = self._held, []
        for message in held:
            message()


class LinkedBookie:
    """A bookie as one client has it. Implements ``Bookie``."""

    def __init__(self, link: Link) -> None:
        self.bookie = link.bookie
        self.link = link

    def _call(
        self, name: str, *arguments: Any, failed: Callable[[StorageError], None], done: Any, **named: Any
    ) -> None:
        loop = self.link.world.loop
        answered = False

        def first(give: Callable[[], None]) -> None:
            nonlocal answered
            if not answered:
                answered = True
                timer.cancel()
                give()

        def answer(*result: Any) -> None:
            self.link.send(lambda: first(partial(done, *result)), is_answer=True)

        timer = loop.call_later(ANSWER_S, lambda: first(lambda: failed(StorageError("no answer in time"))))
        self.link.send(partial(getattr(self.bookie, name), *arguments, done=answer, **named))

    def add_entries(self, ledger_id, entry_ids, entries, *, master_key, recovery, done):
        if self.link.rng.random() < self.link.refused and not recovery:
            error = StorageError("refused by chance")
            self.link.send(lambda: self.link.send(partial(done, entry_ids, error), is_answer=True))
            return
        self._call(
            "add_entries",
            ledger_id,
            entry_ids,
            entries,
            master_key=master_key,
            recovery=recovery,
            done=done,
            failed=lambda error: done(entry_ids, error),
        )

    def read_entries(self, ledger_id, entry_ids, done, *, bytes_max=None):
        def failed(error: StorageError) -> None:
            done([error] * len(entry_ids))

        self._call("read_entries", ledger_id, entry_ids, bytes_max=bytes_max, done=done, failed=failed)

    def fence(self, ledger_id, *, master_key, done):
        self._call("fence", ledger_id, master_key=master_key, done=done, failed=done)

    def fence_and_read_lac(self, ledger_id, *, master_key, done):
        self._call("fence_and_read_lac", ledger_id, master_key=master_key, done=done, failed=done)

    def readmit(self, ledger_id, *, master_key, done):
        self._call("readmit", ledger_id, master_key=master_key, done=done, failed=done)

    def read_lac(self, ledger_id, *, done):
        self._call("read_lac", ledger_id, done=done, failed=done)

    def write_lac(self, ledger_id, lac, *, master_key, done):
        self._call("write_lac", ledger_id, lac, master_key=master_key, done=done, failed=done)

    def list_entries(self, ledger_id, *, done):
        self._call("list_entries", ledger_id, done=done, failed=done)

    def read_info(self, *, done):
        self._call("read_info", done=done, failed=done)

    @property
    def is_writable(self) -> bool:
        return self.bookie.is_writable

    @property
    def availability(self) -> Availability:
        return self.bookie.availability

    def watch(self, listener: AvailabilityListener) -> None:
        self.bookie.watch(listener)


class Takeover:
    """One life of one ledger."""

    def __init__(self, world: SimWorld, node: SimNode) -> None:
        self.world = world
        self.node = node
        self.rng = world.rng("takeover")
        self.quorums = self.rng.choice(QUORUMS)
        self.server = MemoryMetadata()
        self.bookies = {f"b{i}": MemoryBookie() for i in range(self.quorums[0] + SPARES)}
        self.links: list[Link] = []
        self.sent: list[bytes] = []
        #: Entries that the writer was told are stored.
        self.acknowledged = 0
        #: Where it ended for who closed or recovered it, and the last entries that readers were shown before.
        self.ends: list[int] = []
        self.shown: list[int] = []
        self.is_over = False
        self.is_killed = False
        #: How often links are cut, and how long it is from one trouble to the next.
        self.cuts = self.rng.choice([0.0, 0.3, 0.8])
        self.way_s = self.rng.choice([WAY_S, 5 * WAY_S])
        #: Whether the writer is alone with a few bookies now and then, and how many adds are refused by themselves.
        self.has_partitions = self.rng.random() < 0.5
        self.refused = self.rng.choice([0.0, 0.0, 0.2])
        self.pause_s = self.rng.choice([0.002, 0.03, 0.3])

    def client(self) -> BookKeeper:
        def linked(name: str, bookie: MemoryBookie) -> Bookie:
            rng = self.world.rng("link", str(len(self.links)), name)
            self.links.append(Link(self.world, bookie, rng, self.way_s, self.refused))
            return LinkedBookie(self.links[-1])

        pool = LocalBookiePool({name: linked(name, bookie) for name, bookie in self.bookies.items()})
        faults = MetadataFaults(unknown_before_percent=5, unknown_after_percent=5, delay_ms_max=8)
        store = MemoryMetadataStore(self.node.runtime, self.server, faults)
        return BookKeeper(self.node.runtime, store, pool, BookKeeperConfig(recovery_read_batch_size=3))

    async def run(self) -> None:
        writer = self.client()
        self.writer_links = tuple(self.links)
        size, write, ack = self.quorums
        handle = await writer.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
        troubling = spawn(self.trouble(), name="trouble")
        tasks = [spawn(self.write(handle), name="writer"), spawn(self.follow(handle), name="reader")]
        for number in range(self.rng.randrange(1, 3)):
            tasks.append(spawn(self.take_over(handle), name=f"recoverer {number}"))
        for task in tasks:
            await task
        self.is_over = True
        await troubling
        await self.world.sleep(2 * ANSWER_S)
        await self.check(handle)

    async def write(self, handle: LedgerHandle) -> None:
        unanswered = 0
        all_answered = asyncio.Event()

        def done(first: int, count: int, error: StorageError | None) -> None:
            nonlocal unanswered
            unanswered -= 1
            if self.is_killed:
                return
            if error is None:
                assert first == self.acknowledged, "acknowledged out of order"
                self.acknowledged += count
            if not unanswered:
                all_answered.set()

        for _ in range(BATCHES):
            if not handle.is_writable:
                break
            first = handle.last_add_pushed + 1
            batch = [b"%d" % (first + i) for i in range(self.rng.randrange(1, 4))]
            self.sent[first:] = batch
            unanswered += 1
            all_answered.clear()
            handle.append(batch, done)
            if self.rng.random() < 0.7:
                await self.world.sleep(self.rng.uniform(0, 3 * WAY_S))
            if self.rng.random() < 0.05:
                await self.world.sleep(self.rng.uniform(0, 1))
            if self.rng.random() < 0.04:
                await self.world.sleep(self.rng.uniform(0, 3 * self.way_s))
                self.is_killed = True
                for link in self.writer_links:
                    link.end()
                return
        if unanswered:
            await all_answered.wait()
        if self.rng.random() < 0.3:
            try:
                await handle.close()
            except StorageError:
                return
            self.ends.append(handle.last_add_confirmed)

    async def follow(self, handle: LedgerHandle) -> None:
        client = self.client()
        for _ in range(4):
            await self.world.sleep(self.rng.uniform(0, 0.1))
            try:
                reader = await client.open_ledger(handle.ledger_id, recover=False)
                last = reader.last_add_confirmed
                if not reader.is_closed:
                    assert last < self.acknowledged, f"read up to {last} of {self.acknowledged} acknowledged"
                    self.shown.append(last)
                if last >= 0:
                    assert list(await reader.read_entries(0, last)) == self.sent[: last + 1]
            except StorageError:
                continue

    async def take_over(self, handle: LedgerHandle) -> None:
        await self.world.sleep(self.rng.uniform(0, 0.12))
        client = self.client()
        if self.has_partitions:
            self.partition()
            await self.world.sleep(self.rng.uniform(0, 2 * self.way_s))
        while self.world.loop.time() < ENDS_S:
            try:
                reader = await client.open_ledger(handle.ledger_id)
            except StorageError:
                await self.world.sleep(self.rng.uniform(0, 2))
                continue
            self.ends.append(reader.last_add_confirmed)
            return
        raise AssertionError(f"the ledger could not be recovered in {ENDS_S:g} s")

    async def trouble(self) -> None:
        """Links are cut and bookies fail, one after the other, until all is over; then everything is mended."""
        while not self.is_over and self.world.loop.time() < ENDS_S / 2:
            await self.world.sleep(self.rng.uniform(0, self.pause_s))
            is_cut, drawn = self.rng.random() < self.cuts, self.rng.random()
            bookie = self.bookies[self.rng.choice(sorted(self.bookies))]
            if is_cut:
                link = self.rng.choice(self.links)
                link.is_cut = True
                self.world.loop.call_later(self.rng.choice([0.01, 0.03, 0.1, 1.0, 2 * ANSWER_S]), link.mend)
            elif drawn < 0.4:
                bookie.add_error = None if bookie.add_error else StorageError("takes nothing now")
                bookie.stores_before_error = self.rng.random() < 0.5
            elif drawn < 0.7:
                bookie.read_error = None if bookie.read_error else DiskIOError("can not be read now")
            else:
                bookie.fence_error = None if bookie.fence_error else StorageError("fences nothing now")
            if self.rng.random() < 0.4:
                for each in self.bookies.values():
                    each.fail(None)
        for link in self.links:
            link.mend()
        for each in self.bookies.values():
            each.fail(None)

    def partition(self) -> None:
        """The writer reaches one bookie, which can not be read for a while, and later one that fenced nobody."""
        loop, way_s = self.world.loop, self.way_s
        kept, late, *others = self.rng.sample(self.writer_links, len(self.writer_links))
        for link, bookie, spread in (kept, "read_error", 12), (late, "fence_error", 6):
            setattr(link.bookie, bookie, DiskIOError("not now"))
            loop.call_later(self.rng.uniform(way_s, spread * way_s), link.bookie.fail, None)
        for link in (late, *others):
            link.is_cut = True
            loop.call_later(self.rng.uniform(4 * way_s, (30 if link is late else 90) * way_s), link.mend)

    async def check(self, handle: LedgerHandle) -> None:
        for link in self.links:
            link.mend()
        reader = await self.client().open_ledger(handle.ledger_id)
        last = reader.last_add_confirmed
        assert reader.is_closed
        assert last >= self.acknowledged - 1, f"{self.acknowledged} were acknowledged, the ledger ends at {last}"
        assert {*self.ends} <= {last}, f"it ended at {self.ends} for some, at {last} for another"
        assert max(self.shown, default=-1) <= last, f"a reader was shown {self.shown}, the ledger ends at {last}"
        # As many as the ack quorum lets go are gone.
        for name in self.rng.sample(sorted(self.bookies), self.quorums[2] - 1):
            self.bookies[name].fail(StorageError("gone"))
        if last >= 0:
            assert list(await reader.read_entries(0, last)) == self.sent[: last + 1]
            assert reader.length_bytes == sum(map(len, self.sent[: last + 1]))


async def ledger_takeover(world: SimWorld) -> None:
    """The scenario."""
    await world.node("client").run(lambda node: Takeover(world, node).run())
