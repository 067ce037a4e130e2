"""Lives of a whole broker with random policies: clients come and go, time passes, sweeps run, the power fails.

What a client was promised is kept in :mod:`support.stories.broker_model`, outside of the node, and compared with what
the broker says and delivers. Background work runs by the broker's own timers while virtual time passes; nothing is
called by hand.

A story is one object in layers: who is there (:mod:`.story_ground`), what is compared (:mod:`.story_judging`), what
producers, consumers and administrators do (:mod:`.story_publishing`, :mod:`.story_consuming`, :mod:`.story_policies`),
and here, which of it happens when, and how lives end.
"""

from __future__ import annotations

from typing import Final

from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookkeeper import MetadataLiveLedgers
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.memory import MemoryMetadataStore
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.stories.broker_model import ENTRIES_PER_LEDGER
from support.stories.lives import tell
from support.stories.story_consuming import StoryConsuming
from support.stories.story_ground import SUBSCRIPTIONS, TOPICS
from support.stories.story_policies import StoryPolicies
from support.stories.story_publishing import StoryPublishing
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import seconds

LIVES: Final = 4
STEPS: Final = 26
#: Milliseconds after which it is durable that a consumer came, and by which that may be older.
NOTED_MS: Final = 1000
STALE_NOTE_MS: Final = 60_000
#: How long nothing happens; most background work looks every one to five minutes.
PAUSES_S: Final = (0.01, 0.5, 4, 70, 200, 700, 4000)

LEDGERS: Final = ManagedLedgerConfig(
    max_entries_per_ledger=ENTRIES_PER_LEDGER, min_rollover_minutes=0, cursor_max_entries_per_ledger=20
)
BOOKIE: Final = BookieConfig(flush_interval_ms=20_000, gc_wait_time_ms=300_000, journal_pre_alloc_size_mb=0.01)


class BrokerStory(StoryPublishing, StoryConsuming, StoryPolicies):
    """See the module's docstring."""

    # ---- one life

    async def live(self, node: SimNode, *, is_last: bool) -> None:
        store = MemoryMetadataStore(node.runtime, self.server, self.faults)
        bookie = await LocalBookie.open(node.runtime, "/data", BOOKIE, ledgers=MetadataLiveLedgers(store))
        config = BrokerConfig(
            keep_alive_interval_s=1_000_000,
            deduplication=self.deduplicates,
            is_delayed_delivery_deliver_at_time_strict=True,
            delete_inactive_topics_mode=(
                "delete_when_subscriptions_caught_up" if self.deletes_caught_up else "delete_when_no_subscriptions"
            ),
            dispatcher_read_failure_backoff_initial_ms=100,
            dispatcher_read_failure_backoff_max_ms=1000,
        )
        self.broker_world = BrokerWorld(node.runtime, config, LEDGERS, bookie=bookie, store=store)
        self.clock = node.runtime.clock
        await self.broker_world.start()
        for _ in range(STEPS):
            await self.step()
        if is_last:
            await self.part_from_everyone()
            for name in TOPICS:
                await self.check_everything(name)
        if is_last or self.rng.random() < 0.4:
            await self.part_from_everyone()
            await self.broker_world.stop()
            await bookie.close()
            self.settle_plain_acks(None)

    async def step(self) -> None:
        self.lapse()
        self.notice_departures()
        name = self.rng.choice(TOPICS)
        roll = self.rng.random()
        if roll < 0.24:
            await self.publish(name)
        elif roll < 0.36:
            await self.subscribe(name)
        elif roll < 0.52:
            await self.consume()
        elif roll < 0.60:
            await self.leave()
        elif roll < 0.64:
            await self.unsubscribe()
        elif roll < 0.68:
            await self.seek()
        elif roll < 0.72:
            await self.unload(name)
        elif roll < 0.80:
            await self.change_policies(name)
        elif roll < 0.83:
            await self.read_everything(name)
        elif roll < 0.87:
            await self.drain(name, self.rng.choice(sorted(SUBSCRIPTIONS)))
        elif roll < 0.90:
            await self.part_from_everyone()
            await seconds(self.rng.choice((130, 400)))
        elif roll < 0.93:
            await self.expire(name)
        else:
            await seconds(self.rng.choice(PAUSES_S))
        self.lapse()
        for each in TOPICS:
            await self.check_existence(each)

    async def check_everything(self, name: str) -> None:
        """Readers and every subscription get what was promised."""
        await self.read_everything(name)
        await self.check_subscriptions(name)
        for subscription in sorted(self.topics[name].subscriptions):
            await self.drain(name, subscription)

    # ---- the story

    def plan(self) -> None:
        """Decide where this life ends."""
        self.faults = MetadataFaults(delay_ms_max=self.rng.choice((0, 0, 3)))
        if self.rng.random() < 0.2:
            self.faults.unknown_before_percent = self.faults.unknown_after_percent = 4.0
        roll = self.rng.random()
        if roll < 0.35:
            self.world.crash_at_disk_step(self.node, self.rng.randint(5, 150))
        elif roll < 0.7:
            boot = self.node.boot
            self.world.loop.call_later(self.rng.choice((1, 30, 600)) * self.rng.random(), self.cut, boot)

    def cut(self, boot: object) -> None:
        if self.node.boot is boot:
            self.world.crash(self.node, reason="cut off")

    async def run(self) -> None:
        """Some lives, most of which end in a crash, then one that must find everything."""
        for _ in range(LIVES - 1):
            self.node.start()
            self.plan()
            try:
                await self.node.run(lambda node: self.live(node, is_last=False))
            except NodeCrashedError:
                pass
            self.crashed()
            await self.world.sleep(self.rng.choice((0.01, 1, 2000)))
        self.node.disk.on_step = None
        self.faults = MetadataFaults()
        self.node.start()
        await self.node.run(lambda node: self.live(node, is_last=True))

    def crashed(self) -> None:
        """Connections are gone, and acknowledgments without a response may be."""
        self.world.crash(self.node, power_loss=self.rng.random() < 0.7, reason="end of life")
        self.node.disk.on_step = None
        self.producers.clear()
        self.tell("crashed")
        self.plain_acks.clear()
        for consumer in self.consumers:
            subscription = consumer.subscription
            subscription.has_consumer = False
            # That it came is known; how long it stayed need not be.
            if self.node.clock.wall_ms() - consumer.since_ms >= NOTED_MS:
                subscription.last_used_ms = consumer.since_ms
        self.consumers.clear()
        for model in self.topics.values():
            for subscription in model.subscriptions.values():
                subscription.last_used_ms -= STALE_NOTE_MS


async def broker_story(world: SimWorld) -> None:
    """The scenario; a failure tells its story."""
    await tell(BrokerStory(world))
