"""Ends of transactions: markers behind what they end, together where they come together, and what nobody can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace

import pytest

from geminga.broker.topic.publish import PublishBatch
from geminga.broker.topic.transaction_ends import TransactionEnds
from geminga.model.errors import GemingaError, NotAllowedError, TopicClosingError, UnavailableError
from geminga.model.position import Position
from geminga.model.txn_id import TxnId
from geminga.runtime import spawn
from geminga.transaction.core.buffer import TransactionBufferState
from geminga.transaction.core.visible_end import VisibleEnd
from geminga.transaction.ports import BufferSnapshot
from support.worlds.subscriptions import RecordedTopic, settle, with_topic

ONE, TWO = TxnId(0, 1), TxnId(0, 2)


class Story:
    """Transactions with a message each in a topic's log, and what is heard of their ends."""

    def __init__(self, topic: RecordedTopic, first: Position) -> None:
        self.topic = topic
        topic.is_closing = False
        topic.publishing = SimpleNamespace(append_own=topic.ledger.append)
        topic.parts = SimpleNamespace(
            limit_moved=lambda: self.heard.append("limit"),
            transaction_ended=lambda txn_id, *, is_committed: self.heard.append((txn_id, is_committed)),
        )
        self.heard: list[object] = []
        self.saved: list[BufferSnapshot] = []
        self.state = TransactionBufferState()
        for txn_id in (ONE, TWO):
            self.state.stored(txn_id, first)
        self.visible: VisibleEnd[PublishBatch] = VisibleEnd(first)
        self.ends = TransactionEnds(
            topic,
            self.visible,
            save=self.save,
            ended=self.ended,
            hide=lambda: self.heard.append("hide"),
            lost=self.lost,
        )

    async def save(self, snapshot: BufferSnapshot) -> None:
        self.saved.append(snapshot)

    def ended(self, txn_id: TxnId, commit: bool, marker: Position) -> None:
        self.heard.append((txn_id.number, commit, marker.entry_id))
        if commit:
            self.state.committed(txn_id)
        else:
            self.state.was_aborted(txn_id, marker)

    def lost(self, error: GemingaError) -> None:
        self.heard.append(type(error).__name__)
        self.ends.lose()

    async def end(self, txn_id: TxnId, *, commit: bool = True, has_gaps: bool = False) -> None:
        await self.ends.end(self.state, txn_id, commit=commit, has_gaps=has_gaps)


def told(scenario: Callable[[Story], Coroutine[object, object, None]]) -> None:
    async def on_topic(topic: RecordedTopic) -> None:
        (first,) = await topic.publish("a message")
        await scenario(Story(topic, first))

    with_topic(on_topic)


def test_ends_of_a_turn_are_one_append() -> None:
    async def scenario(story: Story) -> None:
        calls = story.topic.bookie.add_calls
        await asyncio.gather(story.end(ONE), story.end(TWO, commit=False))
        assert story.topic.bookie.add_calls == calls + 1
        assert story.heard == [(1, True, 1), (2, False, 2)]
        await story.end(ONE)
        assert story.topic.bookie.add_calls == calls + 1, "once is enough"

    told(scenario)


def test_an_end_waits_for_what_is_still_coming() -> None:
    async def scenario(story: Story) -> None:
        batch = PublishBatch(object(), [b"entry"], [(0, 0)], 1)
        story.visible.comes(batch, ONE)
        ending = spawn(story.end(ONE), name="end")
        await settle()
        with pytest.raises(NotAllowedError, match="is being ended"):
            story.ends.check_is_taking(ONE)
        with pytest.raises(UnavailableError):
            await story.end(ONE)
        assert story.heard == []
        story.ends.has_come(batch)
        await ending
        assert story.heard == [(1, True, 1)]

    told(scenario)


def test_who_waits_is_told_when_nobody_knows_what_is_stored() -> None:
    async def scenario(story: Story) -> None:
        story.visible.comes(PublishBatch(object(), [b"entry"], [(0, 0)], 1), ONE)

        async def wait() -> None:
            with pytest.raises(TopicClosingError):
                await story.end(ONE)

        waiting = spawn(wait(), name="end")
        await settle()
        story.ends.lose()
        await waiting
        with pytest.raises(TopicClosingError):
            story.ends.check_is_taking(TWO)
        assert story.heard == []

    told(scenario)


def test_a_marker_of_which_nobody_knows_whether_it_is_stored_is_no_end() -> None:
    async def scenario(story: Story) -> None:
        await story.topic.ledger.close()
        with pytest.raises(UnavailableError, match="nobody knows"):
            await story.end(ONE)
        assert story.ends.is_lost
        assert ONE in story.state.open

    told(scenario)


def test_what_is_not_here_has_ended_unless_entries_can_not_be_read() -> None:
    async def scenario(story: Story) -> None:
        stranger, calls = TxnId(0, 9), story.topic.bookie.add_calls
        await story.end(stranger)
        assert (story.heard, story.topic.bookie.add_calls) == ([], calls)
        await story.end(stranger, has_gaps=True)
        assert story.heard == [(9, True, 1)]

    told(scenario)


def test_on_a_terminated_topic_a_snapshot_says_how_all_of_them_ended() -> None:
    async def scenario(story: Story) -> None:
        end = await story.topic.ledger.terminate()
        with pytest.raises(UnavailableError, match="is terminated"):
            await story.end(ONE, commit=False)
        assert story.saved == []
        await story.end(TWO)
        behind = Position(end.ledger_id, end.entry_id + 1)
        assert story.saved == [BufferSnapshot(end, ((ONE, behind),))]
        assert (story.heard, story.state.open, list(story.state.aborted)) == (
            ["hide", (ONE, False), (TWO, True), "limit"],
            {},
            [ONE],
        )

    told(scenario)
