"""Delayed messages of one subscription: what need not be read, what is due, and one timer for the next."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import pytest

from geminga.broker.core.delayed.delivery import TopicDelays
from geminga.broker.core.dispatch.redelivery import RedeliveryTracker
from geminga.broker.core.dispatch.shared import DispatchLimits, SharedDispatcher
from geminga.broker.subscription import due_messages
from geminga.broker.subscription.due_messages import DueMessages, forget_acknowledged
from geminga.model import LATEST, Position
from support.worlds.subscriptions import RecordedTopic, settle, with_topic

TICK_MS = 1000


class Story:
    """Ten entries in a log, and a subscription's cursor that has read none of them."""

    def __init__(self, topic: RecordedTopic, positions: list[Position], cursor) -> None:
        self.topic = topic
        self.positions = positions
        self.cursor = cursor
        self.clock = topic.services.runtime.clock
        self.delays = TopicDelays(tick_ms=TICK_MS, is_strict=False)
        self.core = SharedDispatcher(DispatchLimits(), RedeliveryTracker())
        self.is_kept_up = False
        self.woken_ms: list[int] = []
        self.due = DueMessages(
            self.delays,
            self.core,
            cursor,
            topic.ledger,
            topic,
            now_ms=self.clock.wall_ms,
            is_kept_up=lambda: self.is_kept_up,
            on_due=self.wake,
        )
        self.due.attach(TICK_MS)

    def wake(self) -> None:
        self.woken_ms.append(self.clock.wall_ms())
        self.due.take()

    def wait(self, entry_ids: range, delay_ms: int) -> int:
        """These entries wait; when they are due."""
        deliver_at = self.clock.wall_ms() + delay_ms
        for entry_id in entry_ids:
            assert self.due.reader is not None
            assert self.due.reader.must_wait(Position(self.positions[0].ledger_id, entry_id), deliver_at)
        return deliver_at


def told(scenario: Callable[[Story], Coroutine[object, object, None]]) -> None:
    async def on_topic(topic: RecordedTopic) -> None:
        positions = await topic.publish(*(f"m{number}" for number in range(10)))
        subscription = await topic.create_subscription("sub")
        await scenario(Story(topic, positions, subscription.cursor))

    with_topic(on_topic)


def test_what_is_due_is_sent_again_after_one_timer() -> None:
    async def scenario(story: Story) -> None:
        first, last = story.wait(range(2), 5_000), story.wait(range(2, 4), 8_000)
        story.cursor.reading.skip_to(story.positions[4])
        story.due.arm()
        story.due.arm()
        assert (story.due.count, story.due.is_any_due) == (4, False)
        await settle(20)
        early_ms = [due - at for due, at in zip((first, last), story.woken_ms, strict=True)]
        assert all(0 <= each <= TICK_MS for each in early_ms), early_ms
        assert story.core.replay.positions() == story.positions[:4]
        assert story.due.count == 0

    told(scenario)


def test_no_timer_runs_for_what_something_else_wakes_or_when_nobody_is_there() -> None:
    async def scenario(story: Story) -> None:
        story.wait(range(1), 2_000)
        story.cursor.reading.skip_to(story.positions[1])
        await settle(5)
        assert story.due.is_any_due
        story.is_kept_up = True
        story.due.arm()
        await settle(5)
        assert story.woken_ms == []
        story.is_kept_up = False
        story.due.arm()
        story.due.close()
        story.due.arm()
        await settle(60)
        assert story.woken_ms == []
        assert (story.due.count, story.due.memory_bytes, story.due.is_any_due) == (0, 0, False)
        assert story.delays.reader_count == 0

    told(scenario)


@pytest.mark.uncompiled("another limit in a module")
def test_the_replay_queue_takes_no_more_than_it_has_room_for(monkeypatch) -> None:
    async def scenario(story: Story) -> None:
        monkeypatch.setattr(due_messages, "DUE_MAX", 3)
        story.wait(range(8), 1_000)
        story.cursor.reading.skip_to(story.positions[8])
        await settle(5)
        story.due.take()
        story.due.take()
        assert story.core.replay.positions() == story.positions[:3]
        assert story.due.count == 5

    told(scenario)


def test_entries_that_are_known_to_wait_are_passed_over() -> None:
    async def scenario(story: Story) -> None:
        assert story.due.last_to_read(5) == LATEST
        story.wait(range(4), 600_000)
        story.wait(range(6, 300), 600_000)  # long enough to be worth another read
        reader = story.due.reader
        assert reader is not None
        assert reader.may_skip
        story.due.skip_waiting()
        assert story.cursor.read_position == story.positions[4]
        assert story.due.last_to_read(2) == LATEST
        assert story.due.last_to_read(5) == story.positions[5]

    told(scenario)


def test_what_all_acknowledged_waits_no_more() -> None:
    async def scenario(story: Story) -> None:
        story.wait(range(6), 600_000)
        assert story.due.memory_bytes > 0
        story.cursor.acknowledge_cumulative(story.positions[3])
        forget_acknowledged(story.delays, story.topic.ledger, [story.cursor], story.topic)
        await settle()
        assert len(story.delays) == 2
        forget_acknowledged(story.delays, story.topic.ledger, [], story.topic)
        assert len(story.delays) == 0

    told(scenario)
