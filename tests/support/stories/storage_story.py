"""All that can go wrong with storage in one story: ledgers of all quorums on bookies with disks, behind a network.

Bookies lose their power at any step of their disks, stall, are cut off, have slow, failing, full and rotting disks;
the writer stalls, dies, and is taken over while it writes, at times in a corner: of an entry's bookies it reaches one,
and another is back just when the recovery reads; auto-recovery dies and comes back; as many bookies as the quorums
allow never come back. What must hold is :class:`RepairStory`'s (everything acknowledged is read with its
bytes, one end for all, all copies there in the end), and of :mod:`support.stories.ledger_takeover` that one who reads
along is shown nothing that was not acknowledged.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from geminga.bookie.serving.server import BOOKIE_PORT
from geminga.bookkeeper import BookKeeper, BookKeeperConfig, LedgerHandle, LocalBookiePool
from geminga.bookkeeper.core.distribution import Distribution
from geminga.bookkeeper.remote import RemoteBookie
from geminga.metadata import MemoryMetadataStore, MetadataFaults
from geminga.model.errors import NotEnoughBookiesError, StorageError
from geminga.runtime import spawn
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from geminga.sim.network import DELAY_RANGE_DEFAULT
from support.clusters.bookie_ensemble import FarBookie, completed
from support.stories.repair_story import RepairStory
from support.worlds.ledgers import payloads

QUORUMS = [(1, 1, 1), (3, 2, 2), (3, 3, 2), (5, 3, 2), (5, 5, 3)]
#: Steps of the writer, and virtual seconds of trouble.
STEPS = 30
TROUBLE_S = 20.0
#: In which a ledger can be opened once nobody disturbs, virtual seconds.
OPENED_S = 300.0
#: What happens, by name; each is counted.
KINDS = ("crash", "power", "stall", "cut off", "reset", "slow", "error", "full", "rot", "writer stall")
#: How long a taker waits for the writer's next entry before it goes on without a corner, virtual seconds.
CORNER_S = 1.0


class StorageStory(RepairStory):
    """See the module."""

    def __init__(self, world: SimWorld) -> None:
        super().__init__(world)
        self.quorums = self.rng.choice(QUORUMS)
        self.count = min(self.quorums[0] + 1, len(self.ensemble.names))
        self.takers = [world.node(f"taker-{number}") for number in range(2)]
        self.follower = world.node("follower")
        self.pause_s = self.rng.choice((0.2, 1.0, 4.0))
        #: Ledger id -> where one who reads along saw it end.
        self.shown: dict[int, int] = {}
        #: What the writer appended to last, and that it did.
        self.writing: LedgerHandle | None = None
        self.appended = asyncio.Event()
        self._coming_back: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> list[str]:
        """Of the bookies that take part."""
        return self.ensemble.names[: self.count]

    async def run(self) -> None:
        for far in self.ensemble.far.values():
            far.node.on_fatal = partial(self._bookie_failed, far)
        for name in self.names:
            await self.ensemble.far[name].start()
            await self.register(name)
        self.ensemble.pool.unavailable.update(self.ensemble.names[self.count :])
        repairing = [asyncio.ensure_future(self.keep_repairing(node)) for node in self.repairers]
        troubling = asyncio.ensure_future(self.trouble_all())
        taking = [asyncio.ensure_future(self.alone(node, self.take_over)) for node in self.takers]
        following = asyncio.ensure_future(self.alone(self.follower, self.follow))
        dies_s = self.rng.choice((None, self.rng.uniform(0, TROUBLE_S)))
        if dies_s is not None:
            self.world.loop.call_later(dies_s, self.world.crash, self.writer)
        await self.alone(self.writer, self.write)
        await asyncio.gather(*taking, following, troubling)
        self.world.crash(self.writer)
        await self.calm_down()
        await self.check()
        self.is_over = True
        for node in self.repairers:
            self.world.crash(node)
        await asyncio.gather(*repairing)

    async def check(self) -> None:
        """Everything is there, and in the end on as many bookies as it should be."""
        await self.world.restart(self.reader, self.read)
        await self.restored()
        await self.world.restart(self.reader, self.read)
        await self.world.restart(self.reader, self.check_copies)

    async def alone(self, node: SimNode, what: Callable[[SimNode], Coroutine[Any, Any, None]]) -> None:
        """On a node that may die of it."""
        try:
            await self.world.restart(node, what)
        except NodeCrashedError:
            self.world.points.hits[f"{node.name} died"] += 1

    def _bookie_failed(self, far: FarBookie, part: str, error: BaseException) -> None:
        """What its program does when the disk fails; anything else that is fatal is a bug."""
        assert isinstance(error, OSError | StorageError), f"{part}: {error!r}"
        self.world.points.hits["bookie ended itself"] += 1
        far.crash()

    # ---- trouble

    async def trouble_all(self) -> None:
        """One thing after the other, several at a time."""
        kinds: dict[str, Callable[[str], None]] = {
            "crash": self._crash,
            "power": self._power,
            "stall": self._stall,
            "cut off": self._cut_off,
            "reset": self._reset,
            "slow": self._slow,
            "error": self._error,
            "full": self._full,
            "rot": self._rot,
            "writer stall": self._writer_stall,
        }
        while self.world.now < TROUBLE_S:
            await self.world.sleep(self.rng.uniform(0, self.pause_s))
            kind, name = self.rng.choice(KINDS), self.rng.choice(self.names)
            if self.ensemble.far[name].node.is_up and name not in self.away:
                self.world.points.hits[kind] += 1
                kinds[kind](name)
        await asyncio.gather(*self._coming_back)

    def _later(self, name: str, what: str) -> None:
        self.away.add(name)
        task = spawn(self._come_back(name), name=f"{what}: {name} comes back")
        self._coming_back.add(task)

    async def _come_back(self, name: str) -> None:
        """With what was durable. Meanwhile its session may end, or not."""
        away_s = self.rng.choice((0.05, 1.0, 6.0))
        if away_s > 1 and self.rng.random() < 0.5:
            await self.unregister(name)
        await self.world.sleep(self.rng.uniform(0, away_s))
        await self._start(name)
        self.away.discard(name)

    async def _start(self, name: str) -> None:
        far = self.ensemble.far[name]
        far.node.disk.clear_faults()
        far.node.disk.on_step = None
        self.world.resume(far.node)
        far.crash()
        await far.start()
        if name not in self.sessions:
            await self.register(name)

    def _crash(self, name: str) -> None:
        self.ensemble.take_down(name)
        self._later(name, "crash")

    def _power(self, name: str) -> None:
        """At one of the next steps of its disk."""
        far = self.ensemble.far[name]
        self.world.crash_at_disk_step(far.node, self.rng.randrange(1, 40))
        self._later(name, "power")

    def _stall(self, name: str) -> None:
        self.world.pause(self.ensemble.far[name].node, self.rng.choice((0.05, 1.0, 8.0)))

    def _writer_stall(self, name: str) -> None:
        self.world.pause(self.writer, self.rng.choice((0.05, 1.0, 8.0)))

    def _cut_off(self, name: str) -> None:
        """From one client or from all, in one direction or both."""
        nodes = [self.writer, *self.takers, self.follower]
        far = self.ensemble.far[name].node
        for node in self.rng.sample(nodes, self.rng.choice((1, 1, 2, len(nodes)))):
            self.world.network.partition(node, far, one_way=self.rng.random() < 0.3)
        self.world.loop.call_later(self.rng.choice((0.1, 1.0, 7.0)), self.world.network.heal)

    def _reset(self, name: str) -> None:
        self.world.network.reset_connections(self.ensemble.far[name].node)

    def _slow(self, name: str) -> None:
        disk = self.ensemble.far[name].node.disk
        fault = disk.slow(self.rng.choice(("sync", "write", "read")), "*", self.rng.choice((0.02, 0.5, 4.0)))
        self.world.loop.call_later(self.rng.uniform(0, 5), fault.remove)

    def _error(self, name: str) -> None:
        """A bookie that can not write its journal ends; it is started again."""
        disk = self.ensemble.far[name].node.disk
        disk.inject(self.rng.choice(("write", "sync", "read")), "*", error=errno.EIO, after=self.rng.randrange(20))
        self._later(name, "error")

    def _full(self, name: str) -> None:
        fault = self.ensemble.far[name].node.disk.inject("write", "*", error=errno.ENOSPC, times=None)
        self.world.loop.call_later(self.rng.uniform(0, 5), fault.remove)

    def _rot(self, name: str) -> None:
        """Some reads give a wrong bit."""
        fault = self.ensemble.far[name].node.disk.flip_bits("*.log", times=None, percent=20)
        self.world.loop.call_later(self.rng.uniform(0, 5), fault.remove)

    async def calm_down(self) -> None:
        """Nobody disturbs any more; as many bookies as the quorums allow never come back, others take their place."""
        self.is_calm = True
        self.world.network.heal()
        for name in self.names:
            self.world.network.refuse(self.ensemble.far[name].node, refuse=False)
        lost = self.rng.sample(self.names, self._lost_count())
        for name in self.names:
            if name in lost:
                self.ensemble.take_down(name)
                self.world.points.hits["bookie lost"] += 1
                if name in self.sessions:
                    await self.unregister(name)
            else:
                await self._start(name)
        spares = self.ensemble.names[self.count :][: len(lost)]
        self.count += len(spares)
        for name in spares:
            self.ensemble.pool.unavailable.discard(name)
            await self.ensemble.far[name].start()
            await self.register(name)

    def _lost_count(self) -> int:
        return self.rng.randrange(self.quorums[2])

    # ---- clients, each behind connections of its own

    def client(self, node: SimNode) -> BookKeeper:
        rough = MetadataFaults(unknown_before_percent=3, unknown_after_percent=3, delay_ms_max=10)
        store = MemoryMetadataStore(node.runtime, self.server, None if self.is_calm else rough)
        bookies = {name: RemoteBookie(node.runtime, name, name, BOOKIE_PORT) for name in self.names}
        return BookKeeper(node.runtime, store, LocalBookiePool(bookies), BookKeeperConfig(recovery_read_batch_size=3))

    async def write(self, node: SimNode) -> None:
        client = self.client(node)
        handle: LedgerHandle | None = None
        for _ in range(STEPS):
            await self.world.sleep(self.rng.choice((0, 0.005, self.rng.uniform(0, 2))))
            if handle is None or not handle.is_writable:
                handle = await self._create(client) or handle
            elif self.rng.random() < 0.05:
                await self.close(handle)
                handle = None
            else:
                self.append(handle)

    async def _create(self, client: BookKeeper) -> LedgerHandle | None:
        size, write, ack = self.quorums
        try:
            handle = await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
        except (NotEnoughBookiesError, StorageError):
            return None
        self.acknowledged[handle.ledger_id] = 0
        return handle

    def append(self, handle: LedgerHandle) -> None:
        super().append(handle)
        self.writing = handle
        self.appended.set()

    async def take_over(self, node: SimNode) -> None:
        """Recovers the newest ledger now and then, whoever writes it."""
        client = self.client(node)
        while self.world.now < TROUBLE_S:
            await self.world.sleep(self.rng.uniform(0, self.rng.choice((0.3, 1, 8))))
            if not self.acknowledged:
                continue
            if self.rng.random() < 0.8:
                await self._corner(node)
            ledger_id = max(self.acknowledged)
            try:
                reader = await client.open_ledger(ledger_id)
            except StorageError:
                continue
            self.world.points.hits["taken over"] += 1
            self.told(ledger_id, reader.last_add_confirmed)

    async def _corner(self, taker: SimNode) -> None:
        """The writer reaches one bookie of its next entry, which ``taker`` hears late, and ``taker`` another one late.

        Both are right about what they hear, and the bookie that came late holds what was sent to it.
        """
        handle, network, loop = self.writing, self.world.network, self.world.loop
        if handle is None or not handle.is_writable or handle.metadata.write_quorum < 2:
            return
        ensemble = handle.metadata.last_fragment.ensemble
        write_set = Distribution.of(*self.quorums).write_set(handle.last_add_pushed + 1)
        kept, late = self.rng.sample([ensemble[index] for index in write_set], 2)
        nodes = {name: self.ensemble.far[name].node for name in ensemble}
        for name in ensemble:
            if name != kept:
                network.partition(self.writer, nodes[name])
        network.refuse(nodes[late])
        network.reset_connections(taker, nodes[late])
        network.set_delay(taker, nodes[kept], 0.02, 0.05)
        self.appended.clear()
        try:
            async with asyncio.timeout(CORNER_S):
                await self.appended.wait()
        except TimeoutError:
            pass
        else:
            self.world.points.hits["cornered"] += 1
        back_s = self.rng.uniform(0.01, 0.15)
        loop.call_later(back_s, partial(network.refuse, nodes[late], refuse=False))

        def mend() -> None:
            network.set_delay(taker, nodes[kept], *DELAY_RANGE_DEFAULT)
            network.heal()

        loop.call_later(back_s + self.rng.uniform(0.1, 3), mend)
        await self.world.sleep(self.rng.uniform(0, 0.005))

    async def follow(self, node: SimNode) -> None:
        client = self.client(node)
        while self.world.now < TROUBLE_S:
            await self.world.sleep(self.rng.uniform(0, 2))
            if not self.acknowledged:
                continue
            ledger_id = self.rng.choice(sorted(self.acknowledged))
            try:
                reader = await client.open_ledger(ledger_id, recover=False)
                last = reader.last_add_confirmed
                if not reader.is_closed:
                    told = self.acknowledged[ledger_id]
                    assert last < told, f"ledger {ledger_id} is read up to {last}, and {told} were acknowledged"
                    self.shown[ledger_id] = max(last, self.shown.get(ledger_id, -1))
                if last >= 0:
                    assert list(await reader.read_entries(0, last)) == payloads(0, last + 1)
                    self.world.points.hits["read along"] += 1
            except StorageError:
                continue

    def told(self, ledger_id: int, end: int) -> None:
        super().told(ledger_id, end)
        shown = self.shown.get(ledger_id, -1)
        assert shown <= end, f"ledger {ledger_id} was shown up to {shown}, and ends at {end}"


async def storage_story(world: SimWorld) -> None:
    """The scenario."""
    await StorageStory(world).run()


class BeyondStory(StorageStory):
    """More bookies never come back than the quorums allow: errors, and never other bytes or another end."""

    def _lost_count(self) -> int:
        return self.rng.randrange(self.quorums[2], self.quorums[0] + 1)

    async def check(self) -> None:
        await self.world.restart(self.reader, self.read_what_is_left)
        await self.world.sleep(self.rng.uniform(0, 200))
        await self.world.restart(self.reader, self.read_what_is_left)

    async def read_what_is_left(self, node: SimNode) -> None:
        client = self.client(node)
        hits = self.world.points.hits
        for ledger_id in sorted(self.acknowledged):
            try:
                reader = await completed(asyncio.ensure_future(client.open_ledger(ledger_id)), self.world, OPENED_S)
            except StorageError:
                hits["no end is told"] += 1
                continue
            self.told(ledger_id, reader.last_add_confirmed)
            for entry_id in range(reader.last_add_confirmed + 1):
                try:
                    found = list(await reader.read_entries(entry_id, entry_id))
                except StorageError:
                    hits["no entry is told"] += 1
                    continue
                assert found == payloads(entry_id, 1), f"{ledger_id}:{entry_id}"
                hits["entry of what is left"] += 1


async def beyond_story(world: SimWorld) -> None:
    """The scenario beyond the promise."""
    await BeyondStory(world).run()
