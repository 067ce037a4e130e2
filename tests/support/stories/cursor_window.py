"""How old an acknowledgment that nobody waits for can be, and come again after a crash: a second at the most.

``window_story`` acknowledges all over a topic at seeded times, cuts the power at a seeded moment, and looks what a
restart finds. The disk is slow, but not so slow that it could not keep the promise.
"""

from __future__ import annotations

from geminga.managed_ledger import ManagedCursor, ManagedLedger, ManagedLedgerConfig
from geminga.managed_ledger.shared import crash_points as points
from geminga.metadata.core.faults import MetadataFaults
from geminga.model.position import EARLIEST, Position
from geminga.runtime import is_halted
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.stories.cursor_crash import TopicStory

WINDOW_S = 1.0
ENTRIES = 600
#: A sync of the journal, at most. An acknowledgment may come just after a group of the journal and a write of the
#: cursor began, and its own write then waits for both: four syncs, beside the half second until it is begun at all.
SYNC_S_MAX = 0.1


class WindowStory(TopicStory):
    """See the module; its ``now`` is that of the world."""

    def __init__(self, world: SimWorld, config: ManagedLedgerConfig) -> None:
        super().__init__(world, config=config)
        self.faults = MetadataFaults(delay_ms_max=20)
        #: When each entry was acknowledged.
        self.acknowledged: dict[Position, float] = {}
        self.answered: set[Position] = set()

    async def acknowledge_all_over(self, node: SimNode) -> None:
        """Until the power goes."""
        _bookie, factory = await self.open(node)
        ml = await factory.open("public/default/persistent/story")
        cursor = await ml.open_cursor("s", initial=EARLIEST)
        while ml.ledgers.entry_count < ENTRIES:
            ml.append([b"entry"] * 20, lambda _result: None)
            await self.world.sleep(0.2)
        positions = self.entries(ml)
        self.rng.shuffle(positions)
        sync_s = self.rng.choice((0.0, SYNC_S_MAX / 4, SYNC_S_MAX, SYNC_S_MAX))
        node.disk.slow("sync", "*", sync_s)
        if sync_s:
            # Almost without memory every acknowledgment waits for a write, and on such a disk for those before it.
            factory.cursor_memory.limit_bytes = 1 << 20
        self.world.loop.call_later(self.rng.uniform(2.0, 5.0), self.crash_in_a_write, sync_s)
        pause_s = self.rng.choice((0.01, 0.05, 0.3))
        # Whoever waits makes the cursor write for the others too.
        waiting_part = self.rng.choice((0.0, 0.0, 0.1))
        for position in positions:
            self.acknowledge_one(cursor, position, is_waiting=self.rng.random() < waiting_part)
            await self.world.sleep(self.rng.uniform(0, 2 * pause_s))

    def acknowledge_one(self, cursor: ManagedCursor, position: Position, *, is_waiting: bool) -> None:
        self.acknowledged[position] = self.world.now

        def done(error: object) -> None:
            if not is_halted() and error is None:
                self.answered.add(position)

        cursor.acknowledge([position], None, done if is_waiting else None)

    def crash_in_a_write(self, sync_s: float) -> None:
        """Now, or in the middle of the next write of the cursor: the oldest that is not durable is oldest then."""
        before = self.world.points.hits[points.CURSOR_MARKER_APPENDED]

        def watch() -> None:
            if self.world.points.hits[points.CURSOR_MARKER_APPENDED] > before:
                self.world.loop.call_later(self.rng.uniform(0, sync_s), self.world.crash, self.node)
            else:
                self.world.loop.call_later(0.001, watch)

        if self.rng.random() < 0.3:
            self.world.crash(self.node)
        else:
            watch()

    async def look(self, node: SimNode, limit_s: float) -> None:
        """What was acknowledged before ``limit_s``, or answered, is acknowledged still."""
        _bookie, factory = await self.open(node)
        factory.cursor_memory.limit_bytes = 1 << 30
        ml: ManagedLedger = await factory.open("public/default/persistent/story")
        cursor = ml.cursors["s"]
        lost = {p for p in self.acknowledged if not cursor.state.is_acknowledged(p)}
        assert not lost & self.answered, f"{sorted(lost & self.answered)} were answered"
        ages = sorted(round(limit_s + WINDOW_S - at, 3) for p, at in self.acknowledged.items() if p in lost)
        old = [age for age in ages if age > WINDOW_S]
        assert not old, f"acknowledged {old} s before the crash, and lost"

    async def run(self) -> None:
        self.node.start()
        try:
            await self.node.run(self.acknowledge_all_over)
        except NodeCrashedError:
            pass
        limit_s = self.world.now - WINDOW_S
        self.node.disk.clear_faults()
        self.node.start()
        await self.node.run(lambda node: self.look(node, limit_s))


async def window_story(world: SimWorld) -> None:
    """The scenario with the settings as they are."""
    await WindowStory(world, ManagedLedgerConfig(max_entries_per_ledger=50, min_rollover_minutes=0)).run()


async def window_story_of_pulsar(world: SimWorld) -> None:
    """A planted fault: a write a second, which ends after more than that."""
    config = ManagedLedgerConfig(max_entries_per_ledger=50, min_rollover_minutes=0, mark_delete_rate_limit=1.0)
    await WindowStory(world, config).run()
