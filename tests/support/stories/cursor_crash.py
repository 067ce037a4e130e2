"""A seeded life of one topic: publishing, acknowledging in every way, seeking, rolling, trimming, cut off by crashes.

``TopicStory`` keeps, outside of the node, plain dicts of what every cursor should hold after each operation. After
a crash a cursor must be exactly in one of the states it had since the newest one that was called durable; every
entry that was called durable must be there with its bytes, and nothing else in between.
"""

from __future__ import annotations

import asyncio
import errno

from geminga.bookie import LocalBookie
from geminga.bookkeeper import BookKeeper, LocalBookiePool, MetadataLiveLedgers
from geminga.managed_ledger import (
    ManagedCursor,
    ManagedLedger,
    ManagedLedgerConfig,
    ManagedLedgerFactory,
    Persistence,
)
from geminga.managed_ledger.rules.batch_acks import bits_of_words, words_of_bits
from geminga.managed_ledger.shared import crash_points as points
from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import LedgerClosedError, StorageError
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.runtime import is_halted
from geminga.sim import SimNode, SimWorld
from support.house.orphans import collect_now
from support.stories.lives import crashed_life, last_life
from support.worlds.bookies import FLUSHED_OFTEN

NAME = "public/default/persistent/story"
#: Messages in every entry; an unacknowledged entry has all of these bits.
BATCH = 3
FULL = (1 << BATCH) - 1
LIVES = 4
STEPS = 70
#: Crash points that a life passes once at the most, mostly.
RARE = (points.FAILED_LEDGER_CLOSED, points.CURSOR_SEGMENTS_COPIED, points.CURSOR_STATE_IN_NODE)

TINY = ManagedLedgerConfig(
    max_entries_per_ledger=9,
    min_rollover_minutes=0,
    cursor_max_entries_per_ledger=6,
    max_ranges_in_metadata=4,
)

Acks = dict[Position, int]


class CursorOracle:
    """What a cursor should hold: unacknowledged bits by entry (missing: all of them), after each operation."""

    def __init__(self, acks: Acks) -> None:
        self.now = acks
        #: (number of the operation, state after it), from the newest durable one on.
        self.states: list[tuple[int, Acks]] = [(0, dict(acks))]
        self.operation = 0

    def left(self, position: Position) -> int:
        return self.now.get(position, FULL)

    def changed(self) -> int:
        """Call after every operation; returns its number."""
        self.operation += 1
        self.states.append((self.operation, dict(self.now)))
        return self.operation

    def durable(self, operation: int) -> None:
        """Everything up to the operation was called durable."""
        self.states = [item for item in self.states if item[0] >= operation]

    def recovered(self, acks: Acks) -> None:
        """The state found after a crash is the truth from now on."""
        self.now = acks
        self.states = [(self.operation, dict(acks))]


class TopicStory:
    """See the module's docstring."""

    def __init__(self, world: SimWorld, *, config: ManagedLedgerConfig = TINY) -> None:
        self.world = world
        self.rng = world.rng("topic story")
        self.node = world.node("broker")
        self.server = MemoryMetadata()
        self.config = config
        self.counter = 0
        #: Entries called durable, and every payload handed in.
        self.confirmed: dict[Position, bytes] = {}
        self.tried: set[bytes] = set()
        #: Ledgers that every cursor had passed at some time.
        self.trimmable: set[int] = set()
        self.cursors: dict[str, CursorOracle] = {}
        #: Cursors whose creation or deletion was cut off.
        self.uncertain: dict[str, CursorOracle | None] = {}
        self.may_fail = False
        #: The last life has begun to delete everything.
        self.is_deleting = False

    # ---- one life

    async def open(self, node: SimNode) -> tuple[LocalBookie, ManagedLedgerFactory]:
        store = MemoryMetadataStore(node.runtime, self.server, self.faults)
        bookie = await LocalBookie.open(node.runtime, "/data", FLUSHED_OFTEN, ledgers=MetadataLiveLedgers(store))
        bookkeeper = BookKeeper(node.runtime, store, LocalBookiePool({"b": bookie}))
        factory = ManagedLedgerFactory(node.runtime, store, bookkeeper, self.config)
        # Often so little that acknowledgments are put away and brought back all the time.
        factory.cursor_memory.limit_bytes = self.rng.choice((0, 0, 1500, 4000, 1 << 20))
        return bookie, factory

    async def live(self, node: SimNode, *, is_last: bool) -> None:
        bookie, factory = await self.open(node)
        if self.is_deleting:
            await self.delete(node, bookie, factory)
            return
        ml = await factory.open(NAME)
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await self.check(ml)
        for _ in range(0 if is_last else STEPS):
            try:
                await self.step(ml)
            except StorageError as error:
                self.excuse(error)
            # Without cursors nothing holds a ledger.
            self.note_trimmable(ml)
        if is_last or self.rng.random() < 0.5:
            await factory.close()
            await bookie.close()
        if is_last:
            await self.live_again(node)

    async def live_again(self, node: SimNode) -> None:
        """After an orderly end nothing that was in memory is lost, and garbage can be told."""
        bookie, factory = await self.open(node)
        for oracle in self.cursors.values():
            oracle.durable(oracle.operation)
        ml = await factory.open(NAME)
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await self.check(ml)
        await collect_now(node.runtime, factory.metadata, factory.bookkeeper)
        await self.check(ml)
        named = await factory.named_ledgers(NAME)
        live = await MetadataLiveLedgers(MemoryMetadataStore(node.runtime, self.server)).live_ledger_ids()
        assert live is not None and live <= named, f"ledgers nobody names: {sorted(live - named)}"
        self.is_deleting = True
        await self.delete(node, bookie, factory)

    async def delete(self, node: SimNode, bookie: LocalBookie, factory: ManagedLedgerFactory) -> None:
        """Delete everything, perhaps after a crash that cut that off, and see that nothing is left."""
        await factory.delete(NAME)
        await collect_now(node.runtime, factory.metadata, factory.bookkeeper)
        assert not await factory.exists(NAME)
        live = await MetadataLiveLedgers(MemoryMetadataStore(node.runtime, self.server)).live_ledger_ids()
        assert not live
        await factory.close()
        await bookie.close()

    def excuse(self, error: StorageError) -> None:
        """Closing fails what waits; on a full disk anything may fail."""
        if not self.may_fail and not isinstance(error, LedgerClosedError):
            raise error

    # ---- steps

    async def step(self, ml: ManagedLedger) -> None:
        roll = self.rng.random()
        cursor = self.pick(ml)
        if cursor is None and roll < 0.7:
            await self.open_or_delete_cursor(ml)
        elif roll < 0.25 or cursor is None:
            self.publish(ml)
        elif roll < 0.45:
            self.acknowledge(ml, cursor)
        elif roll < 0.55:
            self.acknowledge_indexes(ml, cursor)
        elif roll < 0.61:
            self.acknowledge_cumulative(ml, cursor)
        elif roll < 0.72:
            await self.read(ml, cursor)
        elif roll < 0.75:
            await self.reset(ml, cursor)
        elif roll < 0.77:
            await self.clear(ml, cursor)
        elif roll < 0.81:
            await self.open_or_delete_cursor(ml)
        elif roll < 0.84:
            await ml.trimmer.trim()
        elif roll < 0.86:
            await ml.roll()
        elif roll < 0.87:
            await self.truncate(ml)
        elif roll < 0.89:
            # How often cursors are written that nobody waits for changes no promise to who does.
            ml.stored_as.set(Persistence(1, 1, 1, self.rng.choice((0, 0.01, 1, 1000))))
        elif roll < 0.94:
            await self.world.sleep(self.rng.uniform(0, 0.02))
        else:
            await self.world.sleep(self.rng.choice((0.3, 1.1)))

    def pick(self, ml: ManagedLedger) -> ManagedCursor | None:
        names = sorted(ml.cursors)
        return ml.cursors[self.rng.choice(names)] if names else None

    def publish(self, ml: ManagedLedger) -> None:
        payloads = []
        for _ in range(self.rng.randint(1, 6)):
            self.counter += 1
            payloads.append(b"%08d" % self.counter)
        self.tried.update(payloads)

        def done(result):
            if is_halted():
                return
            if result.error is not None:
                self.excuse(result.error)
                return
            for i in range(result.count):
                position = Position(result.ledger_id, result.first_entry_id + i)
                assert position not in self.confirmed
                assert position <= ml.extent.last_confirmed_position
                self.confirmed[position] = payloads[result.index + i]
            self.note_trimmable(ml)

        ml.append(payloads, done)

    def changed(self, ml: ManagedLedger, oracle: CursorOracle) -> int:
        """Every operation on a cursor, before it is done: it may let ledgers go."""
        operation = oracle.changed()
        self.note_trimmable(ml)
        return operation

    def some(self, ml: ManagedLedger, count: int) -> list[Position]:
        entries = self.entries(ml)
        if not entries:
            return []
        start = self.rng.randrange(len(entries))
        if self.rng.random() < 0.5:
            return entries[start : start + count]
        return [self.rng.choice(entries) for _ in range(count)]

    def entries(self, ml: ManagedLedger) -> list[Position]:
        return [Position(info.ledger_id, e) for info in ml.ledgers.infos for e in range(info.entries)]

    def ack_done(self, oracle: CursorOracle):
        """A ``done`` in half of the cases; call after the operation is in the oracle."""
        operation = oracle.operation
        if self.rng.random() < 0.5:
            return None

        def done(error):
            if is_halted():
                return
            if error is not None:
                self.excuse(error)
            else:
                oracle.durable(operation)

        return done

    def acknowledge(self, ml: ManagedLedger, cursor: ManagedCursor) -> None:
        positions = self.some(ml, self.rng.randint(1, 8))
        oracle = self.cursors[cursor.name]
        for position in positions:
            oracle.now[position] = 0
        self.changed(ml, oracle)
        if positions:
            cursor.acknowledge(positions, None, self.ack_done(oracle))

    def acknowledge_indexes(self, ml: ManagedLedger, cursor: ManagedCursor) -> None:
        positions = self.some(ml, self.rng.randint(1, 4))
        oracle = self.cursors[cursor.name]
        sets = []
        for position in positions:
            bits = self.rng.randrange(FULL + 1)
            oracle.now[position] = oracle.left(position) & bits
            sets.append(words_of_bits(bits))
        self.changed(ml, oracle)
        if positions:
            cursor.acknowledge(positions, sets, self.ack_done(oracle))

    def acknowledge_cumulative(self, ml: ManagedLedger, cursor: ManagedCursor) -> None:
        positions = self.some(ml, 1)
        if not positions:
            return
        oracle = self.cursors[cursor.name]
        bits = self.rng.choice((0, 0, 1, 6))
        for position in self.entries(ml):
            if position < positions[0]:
                oracle.now[position] = 0
        oracle.now[positions[0]] = oracle.left(positions[0]) & bits
        self.changed(ml, oracle)
        cursor.acknowledge_cumulative(positions[0], words_of_bits(bits) if bits else None, self.ack_done(oracle))

    async def reset(self, ml: ManagedLedger, cursor: ManagedCursor) -> None:
        oracle = self.cursors[cursor.name]
        target = self.rng.choice([EARLIEST, LATEST, *self.some(ml, 2)])
        entries = self.entries(ml)
        lac = ml.extent.last_confirmed_position
        oracle.now = {position: 0 for position in entries if position < target and position <= lac}
        operation = self.changed(ml, oracle)
        await cursor.reset(target)
        if not is_halted():
            oracle.durable(operation)

    async def clear(self, ml: ManagedLedger, cursor: ManagedCursor) -> None:
        oracle = self.cursors[cursor.name]
        count = self.rng.choice((1, 3, 1000))
        left = [position for position in self.entries(ml) if oracle.left(position)]
        oracle.now.update(dict.fromkeys(left[:count], 0))
        operation = self.changed(ml, oracle)
        await (cursor.clear_backlog() if count == 1000 else cursor.skip(count))
        if not is_halted():
            oracle.durable(operation)

    async def truncate(self, ml: ManagedLedger) -> None:
        if ml.appender is not None and ml.appender.pending_entries:
            return
        for oracle in self.cursors.values():
            oracle.now.update(dict.fromkeys(self.entries(ml), 0))
            self.changed(ml, oracle)
        self.note_trimmable(ml)
        await ml.trimmer.truncate()

    async def open_or_delete_cursor(self, ml: ManagedLedger) -> None:
        name = self.rng.choice(("a", "b%2F", "c+d", "d"))
        if name in ml.cursors:
            self.uncertain[name] = self.cursors.pop(name)
            self.note_trimmable(ml)
            await ml.delete_cursor(name)
        else:
            initial = self.rng.choice([EARLIEST, LATEST, *self.some(ml, 1)])
            before = set(self.entries(ml))
            self.uncertain[name] = None
            cursor = await ml.open_cursor(name, initial=initial)
            if not is_halted():
                mark_delete = cursor.mark_delete_position
                if initial == LATEST:
                    assert all(p <= mark_delete for p in before.intersection(self.entries(ml)))
                else:
                    assert ml.ledgers.next_position(mark_delete) == ml.ledgers.next_position(
                        ml.ledgers.previous_position(initial)
                    )
                self.cursors[name] = CursorOracle({p: 0 for p in self.entries(ml) if p <= mark_delete})
        if not is_halted():
            self.uncertain.pop(name)

    async def read(self, ml: ManagedLedger, cursor: ManagedCursor) -> None:
        oracle = self.cursors[cursor.name]
        if self.rng.random() < 0.3:
            cursor.reading.rewind()
        start = cursor.read_position
        future = asyncio.get_running_loop().create_future()
        cursor.reading.read_entries(self.rng.randint(1, 12), self.rng.choice((8, 40, 10_000)), future.set_result)
        result = await future
        if isinstance(result, StorageError):
            self.excuse(result)
            return
        positions = [entry.position for entry in result]
        assert positions == sorted(set(positions))
        for entry in result:
            assert entry.position >= start
            assert entry.position <= ml.extent.last_confirmed_position
            assert oracle.left(entry.position), f"{entry} was acknowledged"
            assert self.confirmed.get(entry.position, entry.data) == entry.data
        if result:
            behind = cursor.read_position
            missed = [p for p in self.entries(ml) if start <= p < behind and oracle.left(p) and p not in positions]
            assert not missed, f"read from {start} to {behind} gave {positions} and passed over {missed}"

    # ---- checks

    def note_trimmable(self, ml: ManagedLedger) -> None:
        for info in ml.ledgers.infos:
            entries = [Position(info.ledger_id, e) for e in range(info.entries)]
            if all(not oracle.left(p) for oracle in self.cursors.values() for p in entries):
                self.trimmable.add(info.ledger_id)

    async def check(self, ml: ManagedLedger) -> None:
        """Everything promised is there."""
        entries = self.entries(ml)
        read = await ml.reader.read(entries)
        assert [entry.position for entry in read] == entries
        payloads = [entry.data for entry in read]
        assert payloads == sorted(payloads), "out of order"
        assert set(payloads) <= self.tried
        there = dict(zip(entries, payloads, strict=True))
        for position, payload in self.confirmed.items():
            if position in there:
                assert there[position] == payload
            else:
                assert position.ledger_id in self.trimmable, f"{position} is lost"
        expected = there.keys() - self.confirmed.keys()
        assert not expected & set(self.confirmed.values())
        self.confirmed.update(there)
        assert ml.extent.last_confirmed_position == (entries[-1] if entries else ml.ledgers.last_position)
        self.check_names(ml)
        for name, cursor in sorted(ml.cursors.items()):
            ledger_ids = {position.ledger_id for position in entries}
            await self.in_memory(
                cursor, ledger_ids, lambda name=name, cursor=cursor: self.check_cursor(ml, name, cursor, entries)
            )

    async def in_memory(self, cursor: ManagedCursor, ledger_ids: set[int], check) -> None:
        """Carry out ``check`` with the cursor's whole state in memory; counts are the same as without."""
        future = asyncio.get_running_loop().create_future()
        backlog = cursor.backlog_count

        def checked() -> None:
            try:
                assert cursor.backlog_count == backlog, f"{cursor.backlog_count} in memory, {backlog} put away"
                check()
                future.set_result(None)
            except AssertionError as error:
                future.set_exception(error)

        cursor.when_loaded(ledger_ids, checked, future.set_exception)
        await future

    def check_names(self, ml: ManagedLedger) -> None:
        for name, oracle in self.uncertain.items():
            if name in ml.cursors:
                self.cursors[name] = oracle or CursorOracle({})
                if oracle is None:
                    self.cursors[name].states.clear()
        self.uncertain.clear()
        assert sorted(ml.cursors) == sorted(self.cursors), f"{sorted(ml.cursors)}, expected {sorted(self.cursors)}"

    def check_cursor(self, ml: ManagedLedger, name: str, cursor: ManagedCursor, entries: list[Position]) -> None:
        cursor.state.check_invariants()
        found: Acks = {}
        for position in entries:
            if cursor.state.is_acknowledged(position):
                found[position] = 0
            elif (words := cursor.state.ack_set(position)) is not None:
                found[position] = bits_of_words(words)
        oracle = self.cursors[name]
        allowed = [{p: bits for p in entries if (bits := s.get(p, FULL)) != FULL} for _, s in oracle.states]
        seen = {p: bits for p, bits in found.items() if bits != FULL}
        assert not allowed or seen in allowed, (
            f"cursor {name} came back as {seen}, expected one of {len(allowed)}: {allowed[0]} ... {allowed[-1]}"
        )
        backlog = len(entries) - sum(not bits for bits in found.values())
        assert cursor.backlog_count == backlog, (
            f"backlog of {name} is {cursor.backlog_count}, not {backlog}: {cursor.mark_delete_position}, "
            f"{cursor.state.acked.ranges(100)}, {ml.ledgers.infos}"
        )
        oracle.recovered(found)

    # ---- the story

    def plan(self) -> None:
        """Decide where this life ends, and what goes wrong before."""
        self.faults = MetadataFaults(delay_ms_max=self.rng.choice((0, 0, 3)))
        if self.rng.random() < 0.3:
            self.faults.unknown_before_percent = self.faults.unknown_after_percent = 8.0
        roll, fails_write = self.rng.random(), False
        if roll < 0.7:
            label = self.rng.choice(points.ALL)
            # Passed only after a failed write of an entry.
            fails_write = label == points.FAILED_LEDGER_CLOSED
            self.world.crash_at(label, 1 if label in RARE else self.rng.choice((1, 1, 2, 3, 8)), node=self.node)
        elif roll < 0.9:
            self.world.crash_at_disk_step(self.node, self.rng.choice((3, 20, 80)) + self.rng.randint(0, 60))
        self.node.disk.clear_faults()
        self.may_fail = fails_write or self.rng.random() < 0.2
        if self.may_fail:
            self.node.disk.inject(
                "write",
                "*.journal",
                error=errno.ENOSPC,
                after=self.rng.randint(5, 15 if fails_write else 60),
                times=1 if fails_write else self.rng.choice((1, 3, 10)),
            )

    async def run(self) -> None:
        """Some lives that end in a crash, then one without faults that must find everything."""
        for _ in range(LIVES - 1):
            self.plan()
            excused = (OSError, StorageError) if self.may_fail else ()
            await crashed_life(self.node, lambda node: self.live(node, is_last=False), self.rng, excused=excused)
        self.node.disk.on_step = None
        self.node.disk.clear_faults()
        self.faults = MetadataFaults()
        self.may_fail = False
        await last_life(self.node, lambda node: self.live(node, is_last=True))


async def topic_story(world: SimWorld) -> None:
    """The scenario with a sound managed ledger."""
    await TopicStory(world).run()
