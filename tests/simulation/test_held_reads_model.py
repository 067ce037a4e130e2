"""Whatever happens to a topic, subscriptions get what its parts let through: all of it, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

from geminga.broker.subscription import seek
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.position import EARLIEST
from geminga.runtime import SystemRng
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.weekly_sample import sampled
from support.stories.held_story import Story
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly, seconds, set_namespace
from support.worlds.subscriptions import settle

T = TypeVar("T")
Sub = pb.CommandSubscribe
SUBSCRIPTIONS = {1: ("one", Sub.Exclusive), 2: ("many", Sub.Shared), 3: ("by key", Sub.Key_Shared)}
STEPS = 60


class Model:
    """What is readable is a number: that of the first messages."""

    def __init__(self, story: Story, rng: SystemRng) -> None:
        self.story = story
        self.rng = rng
        #: How many messages the part lets through as it was last told, and how many could be read so far.
        self.limit = 0
        self.readable = 0
        #: The most that could be read at any time; a limit may have been set back over it.
        self.ever_readable = 0
        #: By subscription: what it received, what was skipped for it, and how much of each was looked at.
        self.received: dict[int, set[int]] = {consumer_id: set() for consumer_id in SUBSCRIPTIONS}
        self.skipped: dict[int, set[int]] = {consumer_id: set() for consumer_id in SUBSCRIPTIONS}

    def any_of(self, choices: Sequence[T]) -> T:
        return choices[self.rng.below(len(choices))]

    async def connect(self) -> None:
        await self.story.client.create_producer()
        await self.story.subscribe(SUBSCRIPTIONS)

    async def check(self) -> None:
        await self.story.take()
        self.readable = max(self.readable, min(self.limit, self.story.sent))
        for consumer_id in SUBSCRIPTIONS:
            new = {int(text[1:]) for text in self.story.texts.pop(consumer_id, [])}
            assert all(number < self.readable for number in new), (consumer_id, sorted(new), self.readable)
            self.received[consumer_id] |= new
            cursor = self.story.topic.subscriptions[SUBSCRIPTIONS[consumer_id][0]].cursor
            assert cursor.backlog_count <= self.readable
        ledger = self.story.topic.ledger
        self.ever_readable = max(self.ever_readable, self.readable)
        for position in self.story.positions[self.ever_readable :]:
            info = ledger.ledgers.find(position.ledger_id)
            assert info is not None, f"{position} was trimmed before anybody could read it"

    # ---- steps

    async def publish(self) -> None:
        await self.story.publish(1 + self.rng.below(4))

    async def move(self) -> None:
        first = max(0, self.limit - 2)
        self.limit = first + self.rng.below(self.story.sent - first + 1)
        await self.story.hold_at(self.limit)

    async def acknowledge(self) -> None:
        consumer_id = self.any_of(list(SUBSCRIPTIONS))
        ids = self.story.ids.get(consumer_id, [])
        known = [self.any_of(ids) for _ in range(self.rng.below(6))] if ids else []
        if consumer_id == 1 and known and self.rng.random() < 0.5:
            self.story.acknowledge([max(known, key=lambda at: (at.ledgerId, at.entryId))], cumulative=True)
        elif known:
            self.story.acknowledge(known, consumer_id)

    async def acknowledge_ahead(self) -> None:
        """A client names what it can not have."""
        ahead = [
            pb.MessageIdData(ledgerId=p.ledger_id, entryId=p.entry_id) for p in self.story.positions[self.readable :]
        ]
        if ahead:
            self.story.acknowledge(ahead, self.any_of(list(SUBSCRIPTIONS)))

    async def clear(self) -> None:
        consumer_id = self.any_of(list(SUBSCRIPTIONS))
        self.skipped[consumer_id] |= set(range(self.readable))
        await seek.clear_backlog(self.story.topic.subscriptions[SUBSCRIPTIONS[consumer_id][0]])

    async def expire(self) -> None:
        consumer_id = self.any_of(list(SUBSCRIPTIONS))
        self.skipped[consumer_id] |= set(range(self.readable))
        await seconds(2)
        await seek.expire(self.story.topic.subscriptions[SUBSCRIPTIONS[consumer_id][0]], 1000)

    async def trim(self) -> None:
        await self.story.topic.ledger.trimmer.trim()

    async def reload(self) -> None:
        await self.check()
        await self.story.reload()
        self.story.ids.clear()
        self.readable = min(self.limit, self.story.sent)
        await self.connect()


@pytest.mark.parametrize("seed", sampled("held reads model", range(12), 5))
def test_subscriptions_get_all_that_is_let_through_and_nothing_else(seed: int) -> None:
    play(seed)


@pytest.mark.long
def test_subscriptions_get_all_that_is_let_through_and_nothing_else_in_many_lives() -> None:
    for seed in range(1000, 1300):
        play(seed)


def play(seed: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await set_namespace(world, "retention_policies", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
        story = await Story.begin(world)
        model = Model(story, SystemRng(seed))
        for name, _ in SUBSCRIPTIONS.values():
            await story.topic.create_subscription(name, EARLIEST)
        await story.hold_at(0)
        await story.client.close_producer()
        await model.connect()
        steps = [model.publish] * 4 + [model.move] * 3 + [model.acknowledge] * 3
        steps += [model.acknowledge_ahead, model.clear, model.expire, model.trim, model.reload]
        for _ in range(STEPS):
            await model.any_of(steps)()
            await model.check()
        model.limit = story.sent
        await story.hold_at(None)
        await model.check()
        for consumer_id, (name, _) in SUBSCRIPTIONS.items():
            missing = set(range(story.sent)) - model.received[consumer_id] - model.skipped[consumer_id]
            assert not missing, (name, missing)
            story.acknowledge(story.ids.get(consumer_id, []), consumer_id)
        await settle()
        # What was received before a reload and not acknowledged came again, and is acknowledged with the rest.
        for name, _ in SUBSCRIPTIONS.values():
            assert story.topic.subscriptions[name].cursor.backlog_count == 0

    config = ManagedLedgerConfig(max_entries_per_ledger=5, min_rollover_minutes=0)
    run_quietly(scenario, ledger_config=config, active_consumer_failover_delay_ms=0, deduplication=seed % 2 == 0)
