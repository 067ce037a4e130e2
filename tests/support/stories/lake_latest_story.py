"""A topic of keys is offloaded, trimmed, and read as compacted from the lake, by the model of compaction."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from geminga.broker.compaction.lake_latest import LakeLatest
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.topic.offload import Offload
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.offload.offloading import Offloading
from geminga.model.errors import StorageError
from geminga.model.position import Position
from geminga.sim import SimNode, SimWorld
from support.stories.compaction_story import READER, STEPS, CompactionLives, CompactionStory, Got
from support.stories.lake_crash import POINTS
from support.worlds.broker_world import ENDPOINTS, BrokerWorld, Type
from support.worlds.lake_world import POLICY, MemoryLakeStore

#: Ledgers of a few entries, and a lake to which they go when a story says so.
LAKE_LEDGERS = ManagedLedgerConfig(
    max_entries_per_ledger=4, min_rollover_minutes=0, offload_driver="filesystem", offload_directory="/lake"
)


class LakeLatestStory(CompactionStory):
    """See the module. ``compacted``: how many messages lie up to the horizon of what is read now."""

    async def offloading(self) -> Offloading:
        """Of the topic; nothing goes by itself."""
        part = (await self.topic()).parts.find(Offload)
        assert part is not None
        return part.offloading

    async def latest(self) -> LakeLatest:
        """The part that is judged."""
        part = (await self.topic()).parts.find(LakeLatest)
        assert part is not None
        return part

    async def offload(self, *, lag_ms: int = 0) -> None:
        """What there is goes to the lake, and after the lag from the bookies."""
        await (await self.topic()).ledger.roll()
        offloading = await self.offloading()
        offloading.policy = POLICY._replace(deletion_lag_ms=lag_ms)
        await offloading.look()
        offloading.policy = POLICY._replace(threshold_bytes=-1, deletion_lag_ms=lag_ms)

    async def horizon(self) -> Position:
        """Of what is served now."""
        view = (await self.latest()).view
        return view.horizon if view is not None else Position(-1, -1)

    async def expect(self, *, start: int = 0) -> list[Got]:
        """What a reader must get that begins at the ``start``-th message, by the horizon of now."""
        horizon, first = await self.horizon(), (await self.topic()).ledger.ledgers.first_position
        self.compacted = sum(one.position <= horizon for one in self.sent)
        return [one for one in self.expected(start) if one.position >= first]

    async def shorten(self) -> None:
        """The oldest ledger is trimmed, if there are others."""
        log = (await self.topic()).ledger
        kept = sum(info.size_bytes for info in log.ledgers.infos[1:])
        if kept:
            log.trimmer.set_retention(retention_ms=-1, retention_bytes=kept)
            await log.trimmer.trim()
            log.trimmer.set_retention(retention_ms=-1, retention_bytes=-1)

    async def refusal(self) -> str:
        """Why a new reader of compacted messages is refused; empty: it is not."""
        client = await self.world.client()
        client.request_subscribe(subscription="refused", **READER)
        await client.wait_for_news()
        command, _ = client.received.popleft()
        client.lose()
        return command.error.message if command.type == Type.ERROR else ""


#: Nothing is trimmed by itself.
FOREVER: Final = {"default_retention_minutes": -1, "default_retention_mb": -1}


class LakeLatestLives(CompactionLives):
    """Some lives of a broker over one storage and one lake; most end in a crash while something goes there."""

    points = POINTS

    def __init__(self, world: SimWorld) -> None:
        super().__init__(world)
        self.tombstones_s = 0
        self.lake = MemoryLakeStore()
        self.lake.is_torn = True
        #: A file that is away, with what is in it.
        self.away: dict[str, bytes] = {}

    async def live(self, node: SimNode, *, is_first: bool, is_last: bool) -> None:
        """One life."""
        self.bring_back()  # the one before may have ended while a file was away
        config = BrokerConfig(
            keep_alive_interval_s=1_000_000, delete_inactive_topics=False, reads_compacted_from_lake=True, **FOREVER
        )
        ledgers = replace(LAKE_LEDGERS, max_entries_per_ledger=self.rng.choice((2, 5, 50)))
        world = BrokerWorld(node.runtime, config, ledgers, server=self.server, bookie=self.bookie, lake_store=self.lake)
        if is_first and not self.sent:
            await world.start()
        else:
            await world.broker.start(ENDPOINTS)
        story = LakeLatestStory(world)
        story.sent = self.sent
        await self.learn(story)
        await self.check(story)
        for _ in range(STEPS):
            await self.step(story)
        await self.check(story)
        if is_last or self.rng.random() < 0.5:
            await world.stop()

    async def step(self, story: CompactionStory) -> None:
        """Anything."""
        assert isinstance(story, LakeLatestStory)
        roll = self.rng.random()
        if roll < 0.45:
            await self.publish(story)
        elif roll < 0.7:
            with suppress(StorageError):  # of what a crash cut off
                await story.offload(lag_ms=self.rng.choice((0, 0, -1)))
        elif roll < 0.75:
            await story.shorten()
        elif roll < 0.8:
            await (await story.offloading()).restore()
        elif roll < 0.85:
            await self.lose_a_file(story)
        else:
            await self.check(story)

    async def check(self, story: CompactionStory) -> None:
        """Readers get what the model says, from the beginning and from anywhere."""
        assert isinstance(story, LakeLatestStory)
        got, wanted = await story.read(), await story.expect()
        assert got == wanted, f"a reader got {got}, wanted {wanted}, up to {await story.horizon()}"
        if self.sent:
            start, at = self.anywhere()
            got, wanted = await story.read(start_message_id=at), await story.expect(start=start)
            assert got == wanted, f"a reader from {start} got {got}, wanted {wanted}"

    async def lose_a_file(self, story: LakeLatestStory) -> None:
        """A file that is away: whoever asks for what was compacted is refused, or gets what he should as far as that
        goes without the file, which may be one of the log behind the horizon."""
        view = (await story.latest()).view
        paths = sorted(path for path in self.lake.files if path.endswith(".parquet"))
        if view is None or not paths:
            return
        path = self.rng.choice(paths)
        self.away[path] = self.lake.files.pop(path)
        refused = await story.refusal()
        got = [] if refused else await story.read()
        # The model goes by the view that was served, while it is.
        wanted = [] if refused else await story.expect()
        self.bring_back()
        assert refused or got == wanted[: len(got)], f"{path} was away, and a reader got {got}, wanted {wanted}"

    def bring_back(self) -> None:
        """No file is away."""
        self.lake.files.update(self.away)
        self.away.clear()


async def lake_latest_lives(world: SimWorld) -> None:
    """The story of one seed."""
    await LakeLatestLives(world).run()
