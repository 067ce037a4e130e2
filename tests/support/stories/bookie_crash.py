"""A seeded life of one bookie: adds, fences, flushes, deletions and garbage collection, cut off by crashes.

``BookieStory`` remembers what was promised (acknowledged entries, completed fences and deletions) outside of the
node, and checks after each start that it was kept. Everything follows from the world's seed.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence

from geminga.bookie import BookieConfig, LocalBookie, crash_points
from geminga.model.bookie_port import LacResult
from geminga.model.errors import (
    DiskFullError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    StorageError,
)
from geminga.runtime import is_halted
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.stories.lives import last_life
from support.worlds.bookies import Listed

MASTER_KEY = b"key"
#: Lives of the bookie in one story, the last one without a crash.
LIVES = 4
#: Steps of the workload in one life.
STEPS = 60

#: Files so small that every life rolls journals and logs, flushes, merges and collects.
TINY = BookieConfig(
    journal_pre_alloc_size_mb=0.006,
    write_cache_max_size_mb=0.008,
    read_cache_max_size_mb=0.004,
    log_size_limit=3000,
    open_file_limit=2,
    flush_interval_ms=500,
    gc_wait_time_ms=3_600_000,
    disk_check_interval_ms=200,
)


class BookieStory:
    """See the module's docstring."""

    def __init__(self, world: SimWorld, *, config: BookieConfig = TINY) -> None:
        self.world = world
        self.rng = world.rng("bookie story")
        self.node = world.node("bookie")
        self.node.on_fatal = self.stop_process
        self.config = config
        self.metadata = Listed(set())
        self.next_ledger_id = 1
        #: (ledger, entry) -> every value it was ever given.
        self.tried: dict[tuple[int, int], set[bytes]] = {}
        #: Those acknowledged.
        self.acked: set[tuple[int, int]] = set()
        self.next_entry: dict[int, int] = {}
        self.fence_started: set[int] = set()
        self.fenced: set[int] = set()
        self.deleted: set[int] = set()
        #: Listed again, and maybe deleted on the bookie still.
        self.readmitting: set[int] = set()
        #: ledger -> how often it was. What was under way when it was deleted was told to a ledger that is no more.
        self.readmissions: dict[int, int] = {}
        self.disk_full = False
        #: Adds of this life without an answer.
        self.outstanding = 0
        self.bookie: LocalBookie | None = None

    def stop_process(self, part: str, error: BaseException) -> None:
        """What the program does after a failed sync; anything else that is fatal is a bug."""
        assert isinstance(error, OSError) and error.errno == errno.EIO, (part, error)
        self.world.crash(self.node, power_loss=self.rng.random() < 0.5, reason=f"fatal: {part}")

    # ---- one life ---------------------------------------------------------------------------------------------

    async def open(self) -> LocalBookie:
        self.bookie = await LocalBookie.open(self.node.runtime, "/data", self.config, ledgers=self.metadata)
        return self.bookie

    async def live(self, node: SimNode) -> None:
        """Start, check, work, and sometimes stop in order."""
        self.outstanding = 0
        bookie = await self.open()
        await self.check(bookie)
        for _ in range(STEPS):
            await self.step(bookie)
        if self.rng.random() < 0.5:
            await self.settle(bookie)
        if self.rng.random() < 0.5:
            await bookie.close()

    async def settle(self, bookie: LocalBookie) -> None:
        """Every add gets its answer, and space that came back is noticed."""
        for _ in range(600):
            if not self.outstanding and bookie.is_writable:
                break
            await self.world.sleep(0.1)
        if not is_halted():
            assert not self.outstanding, f"{self.outstanding} adds without an answer"
            assert bookie.is_writable, "still read-only, although there is space again"

    async def live_and_end(self, node: SimNode) -> None:
        """Start without faults, check, stop in order."""
        bookie = await self.open()
        await self.check(bookie)
        await bookie.close()

    async def step(self, bookie: LocalBookie) -> None:
        roll = self.rng.random()
        if roll < 0.55:
            self.add(bookie, self.rng.random() < 0.3)
        elif roll < 0.62:
            self.fence(bookie)
        elif roll < 0.70:
            await self.read_some(bookie)
        elif roll < 0.78:
            await self.world.sleep(self.rng.uniform(0, 0.02))
        elif roll < 0.84:
            await self.quiet(bookie.flush())
        elif roll < 0.90:
            self.delete_one()
            await self.collect(bookie)
        elif roll < 0.93:
            await self.readmit(bookie)
        else:
            await self.world.sleep(self.rng.uniform(0, 0.004))

    async def quiet(self, awaitable: object) -> None:
        """Await something that a full disk may refuse."""
        try:
            await awaitable  # type: ignore[misc]
        except DiskFullError:
            assert self.disk_full

    def pick(self) -> int:
        """A ledger that exists, often a new one."""
        live = sorted(self.metadata.live - self.readmitting)
        if not live or self.rng.random() < 0.08:
            ledger_id = self.next_ledger_id
            self.next_ledger_id += self.rng.randint(1, 3)
            self.metadata.live.add(ledger_id)
            self.next_entry[ledger_id] = 0
            return ledger_id
        return self.rng.choice(live[-6:])

    def add(self, bookie: LocalBookie, again: bool) -> None:
        ledger_id = self.pick()
        recovery = ledger_id in self.fence_started
        first = self.next_entry[ledger_id]
        count = self.rng.randint(1, 6)
        if again and first:
            first = self.rng.randrange(first)
            count = self.rng.randint(1, self.next_entry[ledger_id] - first) if self.rng.random() < 0.5 else 1
            count = min(count, 6)
            recovery = True
        entry_ids = self.ids(ledger_id, first, count)
        entries = [self.value(ledger_id, entry_id) for entry_id in entry_ids]
        for entry_id, entry in zip(entry_ids, entries, strict=True):
            self.tried.setdefault((ledger_id, entry_id), set()).add(entry)
        self.next_entry[ledger_id] = max(self.next_entry[ledger_id], max(entry_ids) + 1)

        self.outstanding += len(entry_ids)
        readmissions = self.readmissions.get(ledger_id)

        def done(answered: Sequence[int], error: StorageError | None) -> None:
            if is_halted():
                return
            self.outstanding -= len(answered)
            assert set(answered) <= set(entry_ids), answered
            if error is None:
                if self.readmissions.get(ledger_id) != readmissions:
                    return
                self.acked.update((ledger_id, entry_id) for entry_id in answered)
            elif isinstance(error, DiskFullError):
                assert self.disk_full, error
            elif isinstance(error, LedgerFencedError):
                assert ledger_id in self.fence_started
            elif isinstance(error, NoSuchLedgerError):
                assert ledger_id not in self.metadata.live
            else:
                raise error

        bookie.add_entries(ledger_id, entry_ids, entries, master_key=MASTER_KEY, recovery=recovery, done=done)

    def ids(self, ledger_id: int, first: int, count: int) -> Sequence[int]:
        """Consecutive ids; of every third ledger this bookie gets some entries only, at times in another order."""
        if ledger_id % 3:
            return range(first, first + count)
        some = self.rng.sample(range(first, first + 2 * count), count)
        return some if self.rng.random() < 0.3 else sorted(some)

    def value(self, ledger_id: int, entry_id: int) -> bytes:
        """What to write: again the same bytes, as our ledger client does, or (BookKeeper's recovery) others."""
        known = self.tried.get((ledger_id, entry_id))
        if known and self.rng.random() < 0.8:
            return min(known)
        head = f"{ledger_id}:{entry_id}:".encode()
        return head + bytes(self.rng.randrange(256) for _ in range(8)) * self.rng.choice((1, 1, 4, 40))

    def fence(self, bookie: LocalBookie) -> None:
        ledger_id = self.pick()
        self.fence_started.add(ledger_id)

        def done(error: StorageError | None) -> None:
            if is_halted():
                return
            if error is None:
                self.fenced.add(ledger_id)
            elif not isinstance(error, NoSuchLedgerError):
                assert isinstance(error, DiskFullError) and self.disk_full, error

        bookie.fence(ledger_id, master_key=MASTER_KEY, done=done)

    async def readmit(self, bookie: LocalBookie) -> None:
        """A deleted ledger is listed again and taken: empty and fenced, or, for as long as that failed, not at all."""
        wanted = sorted(self.readmitting or self.deleted)
        if not wanted:
            return
        ledger_id = self.rng.choice(wanted)
        if ledger_id in self.deleted:
            self.deleted.discard(ledger_id)
            self.acked = {key for key in self.acked if key[0] != ledger_id}
            self.tried = {key: values for key, values in self.tried.items() if key[0] != ledger_id}
            self.fenced.discard(ledger_id)
            self.next_entry[ledger_id] = 0
            self.readmitting.add(ledger_id)
            self.readmissions[ledger_id] = self.readmissions.get(ledger_id, 0) + 1
            self.fence_started.add(ledger_id)
            self.metadata.live.add(ledger_id)
        answer: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        bookie.readmit(ledger_id, master_key=MASTER_KEY, done=answer.set_result)
        error = await answer
        if is_halted():
            return
        if error is None:
            self.readmitting.discard(ledger_id)
            self.fenced.add(ledger_id)
        else:
            assert isinstance(error, DiskFullError) and self.disk_full, error

    def delete_one(self) -> None:
        live = sorted(self.metadata.live - self.readmitting)
        if len(live) > 2:
            self.metadata.live.discard(self.rng.choice(live))

    async def collect(self, bookie: LocalBookie) -> None:
        # A ledger whose first add or fence is still under way may come after the round: the next one has it.
        gone = (self.fenced | {ledger_id for ledger_id, _ in self.acked}) - self.metadata.live
        try:
            await bookie.collect_garbage(compact_below=self.rng.choice((0.0, 0.5, 0.95)))
        except DiskFullError:
            assert self.disk_full
            return
        if not is_halted():
            self.deleted |= gone

    # ---- checks -----------------------------------------------------------------------------------------------

    async def read(self, bookie: LocalBookie, ledger_id: int, ids: Sequence[int]) -> Sequence[bytes | StorageError]:
        future: asyncio.Future[Sequence[bytes | StorageError]] = asyncio.get_running_loop().create_future()
        bookie.read_entries(ledger_id, ids, future.set_result)
        return await future

    def check_result(self, ledger_id: int, entry_id: int, result: bytes | StorageError) -> None:
        key = (ledger_id, entry_id)
        if isinstance(result, bytes):
            assert result in self.tried.get(key, ()), f"{key} was served as {result!r}, which was never written"
        else:
            assert isinstance(result, NoSuchEntryError | NoSuchLedgerError), f"{key}: {result!r}"
            assert key not in self.acked, f"{key} was acknowledged and is gone: {result!r}"

    async def read_some(self, bookie: LocalBookie) -> None:
        live = [i for i in sorted(self.metadata.live - self.readmitting) if self.next_entry[i]]
        if not live:
            return
        ledger_id = self.rng.choice(live)
        first = self.rng.randrange(self.next_entry[ledger_id])
        ids = range(first, min(first + 10, self.next_entry[ledger_id] + 2))
        acked = {i for i in ids if (ledger_id, i) in self.acked}
        for entry_id, result in zip(ids, await self.read(bookie, ledger_id, ids), strict=True):
            if isinstance(result, bytes) or entry_id in acked:
                self.check_result(ledger_id, entry_id, result)

    async def check(self, bookie: LocalBookie) -> None:
        """Every promise, of every ledger."""
        for run in bookie.storage.index.runs:
            run.check_invariants()
        for ledger_id in sorted(self.metadata.live):
            ids = range(self.next_entry[ledger_id] + 1)
            for entry_id, result in zip(ids, await self.read(bookie, ledger_id, ids), strict=True):
                self.check_result(ledger_id, entry_id, result)
            await self.check_end(bookie, ledger_id)
            if ledger_id in self.fenced:
                assert isinstance(await self.try_add(bookie, ledger_id), LedgerFencedError), f"{ledger_id} unfenced"
        for ledger_id in sorted(self.readmitting):
            error = await self.try_add(bookie, ledger_id)
            assert isinstance(error, NoSuchLedgerError | LedgerFencedError), f"{ledger_id} is taken and not fenced"
        for ledger_id in sorted(self.deleted):
            (result,) = await self.read(bookie, ledger_id, (0,))
            assert isinstance(result, NoSuchLedgerError), f"deleted ledger {ledger_id}: {result!r}"
            assert isinstance(await self.try_add(bookie, ledger_id), NoSuchLedgerError), f"{ledger_id} lives again"

    async def check_end(self, bookie: LocalBookie, ledger_id: int) -> None:
        future: asyncio.Future[LacResult | StorageError] = asyncio.get_running_loop().create_future()
        bookie.read_lac(ledger_id, done=future.set_result)
        result = await future
        last_acked = max((entry for ledger, entry in self.acked if ledger == ledger_id), default=-1)
        if isinstance(result, LacResult):
            assert result.last_entry_id >= last_acked
            if result.last_entry_id >= 0:
                assert result.last_entry in self.tried[ledger_id, result.last_entry_id]
        else:
            assert isinstance(result, NoSuchLedgerError) and last_acked < 0 and ledger_id not in self.fenced, result

    async def try_add(self, bookie: LocalBookie, ledger_id: int) -> StorageError | None:
        future: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        bookie.add_entries(
            ledger_id,
            range(1 << 40, (1 << 40) + 1),
            [b"never"],
            master_key=MASTER_KEY,
            recovery=False,
            done=lambda _, error: future.set_result(error),
        )
        return await future

    # ---- the story --------------------------------------------------------------------------------------------

    def plan_crash(self) -> None:
        """Decide where this life ends."""
        roll = self.rng.random()
        if roll < 0.55:
            label = self.rng.choice(crash_points.ALL)
            self.world.crash_at(label, self.rng.choice((1, 1, 2, 3, 8)), node=self.node)
        elif roll < 0.9:
            self.world.crash_at_disk_step(self.node, self.rng.choice((3, 20, 80, 200)) + self.rng.randint(0, 60))

    def plan_faults(self) -> None:
        """In some lives the disk is full for a while; in some a sync fails and the process stops."""
        self.node.disk.clear_faults()
        if self.rng.random() < 0.1:
            after = self.rng.randint(5, 60)
            self.node.disk.inject("sync", self.rng.choice(("*.journal", "*.log", "*")), error=errno.EIO, after=after)
        self.disk_full = self.rng.random() < 0.25
        if self.disk_full:
            op = self.rng.choice(("write", "preallocate", "create", "*"))
            self.node.disk.inject(
                "write" if op == "*" else op,
                self.rng.choice(("*", "*.journal", "*.log", "*.index.tmp", "*checkpoint*")),
                error=errno.ENOSPC,
                after=self.rng.randint(5, 40),
                times=self.rng.choice((1, 3, 10)),
            )

    async def run(self) -> None:
        """Some lives that end in a crash, then one without faults that must find everything."""
        for _ in range(LIVES - 1):
            self.plan_crash()
            self.plan_faults()
            self.node.start()
            try:
                await self.node.run(lambda node: self.live(node))
            except NodeCrashedError:
                continue
            except OSError as error:
                # Starting needs a disk: one that is full or fails refuses with its own error and harms nothing.
                assert error.errno == errno.EIO or (self.disk_full and error.errno == errno.ENOSPC), error
            await self.world.sleep(self.rng.uniform(0, 0.01))
            self.world.crash(self.node, power_loss=self.rng.random() < 0.7, reason="end of life")
        self.node.disk.on_step = None
        self.node.disk.clear_faults()
        self.disk_full = False
        await last_life(self.node, self.live_and_end)


async def bookie_story(world: SimWorld) -> None:
    """The scenario with a sound bookie."""
    await BookieStory(world).run()
