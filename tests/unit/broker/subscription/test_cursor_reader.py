"""Reads of what is to be sent again: one at a time, past what is lost, and not for ever."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from geminga.broker.subscription.cursor_reader import ReplayReads
from geminga.model import Position
from geminga.model.errors import NoSuchLedgerError, StorageError
from support.worlds.subscriptions import RecordedTopic, settle, with_topic

BYTES_MAX = 1 << 20


class Story:
    """Nine entries in ledgers of three, and what is heard of reads of them."""

    def __init__(self, topic: RecordedTopic, positions: list[Position], cursor, *, keeps_order: bool) -> None:
        self.topic = topic
        self.positions = positions
        self.cursor = cursor
        self.read: list[list[Position] | type[Exception]] = []
        self.postponed: list[list[Position]] = []
        self.woken = 0
        self.replays = ReplayReads(
            cursor,
            topic.ledger,
            topic.services.config,
            topic,
            "topic subscription sub",
            keeps_order=keeps_order,
            done=self.done,
            postpone=self.postponed.append,
            wake=self.wake,
        )

    def done(self, result) -> None:
        assert not self.replays.is_busy
        self.read.append(type(result) if isinstance(result, StorageError) else [entry.position for entry in result])

    def wake(self) -> None:
        self.woken += 1

    def lose(self, index: int) -> None:
        """The ledger of that entry is gone."""
        self.topic.bookie._ledgers.pop(self.positions[index].ledger_id)


def told(scenario: Callable[[Story], Coroutine[object, object, None]], *, keeps_order: bool = False) -> None:
    async def on_topic(topic: RecordedTopic) -> None:
        subscription = await topic.create_subscription("sub")
        positions = []
        for number in range(9):
            positions += await topic.publish(f"m{number}")
        await scenario(Story(topic, positions, subscription.cursor, keeps_order=keeps_order))

    with_topic(on_topic, entries_per_ledger=3, cache_size_mb=0)


def test_what_is_acknowledged_meanwhile_is_left_out() -> None:
    async def scenario(story: Story) -> None:
        story.replays.read(story.positions[:3], BYTES_MAX)
        assert story.replays.is_busy
        story.cursor.acknowledge([story.positions[1]])
        await settle()
        assert story.read == [[story.positions[0], story.positions[2]]]
        assert story.postponed == [[]]

    told(scenario)


def test_what_does_not_fit_into_a_read_is_postponed() -> None:
    async def scenario(story: Story) -> None:
        story.replays.read(story.positions[:3], 1)
        await settle()
        assert (story.read, story.postponed) == ([story.positions[:1]], [story.positions[1:3]])

    told(scenario)


def test_a_lost_ledger_keeps_up_nothing_else_and_is_tried_again_later_each_time() -> None:
    async def scenario(story: Story) -> None:
        story.lose(3)
        wanted = story.positions[1:8]
        story.replays.read(wanted, BYTES_MAX)
        await settle()
        assert story.postponed == [story.positions[3:6]]
        assert story.read == [[*story.positions[1:3], *story.positions[6:8]]]
        assert story.replays.put_off is not None
        first = story.replays.put_off.when()
        await settle(15)
        assert (story.woken, story.replays.put_off) == (1, None)
        story.replays.read(story.positions[3:6], BYTES_MAX)
        await settle()
        assert story.replays.put_off is not None
        assert story.replays.put_off.when() > first
        story.replays.close()
        await settle(600)
        assert story.woken == 1

    told(scenario)


def test_where_keys_keep_their_order_the_error_is_told() -> None:
    async def scenario(story: Story) -> None:
        story.lose(3)
        story.replays.read(story.positions[1:8], BYTES_MAX)
        await settle()
        assert (story.read, story.postponed, story.replays.put_off) == ([NoSuchLedgerError], [], None)

    told(scenario, keeps_order=True)
