"""Compaction of a topic: what readers of compacted messages get, and what becomes of the log and the ledgers."""

from __future__ import annotations

import pytest

from support.stories.compaction_story import CompactionStory
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import SMALL_LEDGERS, run_quietly


def test_readers_get_the_newest_message_of_each_key_and_all_that_came_later() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish(("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("b", ""), (None, "none"))
        await story.publish(("a", "5"), ("d", "6"), ("c", ""), batched=True)
        part = await story.compact()
        assert (part.status, part.last_error) == ("SUCCESS", "")
        await story.publish(("a", "7"), ("b", "8"))
        got = await story.read()
        assert [(one.key, one.value) for one in got] == [("a", "5"), ("d", "6"), ("a", "7"), ("b", "8")]
        assert got == story.expected()
        # Who did not ask for it gets all.
        plain = await story.read(read_compacted=False)
        assert len(plain) == len(story.sent)

    run_quietly(scenario)


@pytest.mark.parametrize("restarts", [False, True])
def test_keys_whose_messages_are_trimmed_are_there(restarts: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.hold()
        for turn in range(6):
            await story.publish(*((f"k{number}", f"{turn}") for number in range(turn, 6)))
        await story.compact()
        assert await story.trim() == 0
        if restarts:
            await story.restart()
        assert await story.read() == story.expected()
        await story.publish(("k0", ""), ("k9", "9"))
        assert await story.read() == story.expected()
        await story.compact()
        await story.trim()
        if restarts:
            await story.restart()
        assert await story.read() == story.expected()
        assert [one.key for one in story.expected()] == ["k1", "k2", "k3", "k4", "k5", "k9"]

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)
