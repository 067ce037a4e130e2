"""Compaction of a topic: what readers of compacted messages get, and what becomes of the log and the ledgers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from geminga.bookkeeper import MemoryBookie
from geminga.broker.compaction import paced, run
from geminga.broker.compaction.part import compact
from geminga.broker.core.compaction import newest
from geminga.broker.subscription import seek
from geminga.managed_ledger.shared import catch_up_turns
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.stories.compaction_story import CompactionStory, compacted, only_compacted
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import SMALL_LEDGERS, run_quietly, seconds


class SlowToAdd(MemoryBookie):
    """A bookie that reads for everybody, and keeps what is added until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.held: list[Callable[[], None]] = []

    def add_entries(self, *arguments, **more) -> None:
        add = partial(super().add_entries, *arguments, **more)
        if self.holds:
            self.held.append(add)
        else:
            add()

    def let_go(self) -> None:
        self.holds = False
        for add in self.held:
            add()


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


def test_more_than_one_read_of_each_is_taken_in_both_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await compacted(world, *((f"k{number}", "1") for number in range(7)))
        await story.publish(*((f"k{number}", "2") for number in range(5, 12)))
        await story.compact()
        assert await story.read() == story.expected()
        assert len(story.expected()) == 12

    monkeypatch.setattr(run, "READ_ENTRIES", 2)
    run_quietly(scenario)


@pytest.mark.parametrize("is_limited", [True, False])
def test_a_bookie_that_hangs_is_given_no_more_than_a_window(is_limited: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = SlowToAdd()

    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish(*((f"k{number}", "1") for number in range(100)))
        if not is_limited:
            await seconds(60)  # Somebody published before that.
        bookie.holds = True
        await compact(await story.topic())
        await seconds(20)
        assert 1 <= len(bookie.held) < 25
        bookie.let_go()
        await story.over()
        story.compacted = len(story.sent)
        assert await story.read() == story.expected()

    name = "PACED_WINDOW_BYTES" if is_limited else "WINDOW_BYTES"
    other = "WINDOW_BYTES" if is_limited else "PACED_WINDOW_BYTES"
    monkeypatch.setattr(run, name, 500)
    monkeypatch.setattr(run, other, 1 << 30)
    monkeypatch.setattr(run, "READ_ENTRIES", 2)
    run_quietly(scenario, bookie=bookie)


def test_what_is_published_while_it_runs_stays_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    # Phase two ran past phase one's last message in Pulsar, and dropped what came meanwhile (20988).
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish(*((f"k{number}", "1") for number in range(6)))
        before = len(story.sent)
        await compact(await story.topic())
        await story.publish(("k0", "2"), ("k9", "2"))
        await story.over()
        story.compacted = before
        assert await story.read() == story.expected()

    monkeypatch.setattr(paced, "STEPS_PER_TURN", 1)
    monkeypatch.setattr(catch_up_turns, "BATCHES_MAX", 1)
    monkeypatch.setattr(run, "READ_ENTRIES", 4)
    run_quietly(scenario)


def test_keys_that_do_not_fit_into_memory_go_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await compacted(world, *((f"k{number % 40}", f"{number}") for number in range(100)))
        assert await story.read() == story.expected()

    monkeypatch.setattr(newest, "KEY_BYTES", 1 << 16)
    run_quietly(scenario, compaction_keys_mb=1)


@pytest.mark.parametrize("keeps", [False, True])
def test_messages_without_a_key_go_unless_they_are_wanted(keeps: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish((None, "1"), ("a", "2"), (None, "3"))
        await story.publish((None, "4"), ("a", "5"), batched=True)
        await story.compact()
        wanted = ["1", "3", "4", "5"] if keeps else ["5"]
        assert [one.value for one in await story.read()] == wanted

    run_quietly(scenario, compaction_retains_null_keys=keeps)


def test_consumers_acknowledge_and_go_on_after_a_restart() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await (await story.topic()).create_subscription("sub", EARLIEST)
        await story.publish(*((f"k{number % 4}", f"{number}") for number in range(12)))
        await story.compact()
        durable = {"subscription": "sub", "durable": True}
        assert await story.read(**durable) == story.expected()
        cursor = (await story.topic()).subscriptions["sub"].cursor
        cursor.acknowledge([story.sent[9].position])
        await cursor.flush()
        await story.restart()
        assert [one.value for one in await story.read(**durable)] == ["8", "10", "11"]
        cursor = (await story.topic()).subscriptions["sub"].cursor
        cursor.acknowledge_cumulative(story.sent[10].position)
        await cursor.flush()
        assert [one.value for one in await story.read(**durable)] == ["11"]
        # Shared consumers are sent everything, as Pulsar's.
        await story.publish(("k0", "12"))
        shared = await story.read(**durable, subType=pb.CommandSubscribe.Shared, read_compacted=False)
        assert [one.value for one in shared] == ["11", "12"]

    run_quietly(scenario)


@pytest.mark.parametrize("position", [EARLIEST, LATEST])
def test_a_subscription_made_when_the_log_is_empty_begins_where_it_asked_to(position: Position) -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = await only_compacted(world, ("a", "1"), ("b", "2"))
        await (await story.topic()).create_subscription("sub", position)
        await story.restart()
        durable = {"subscription": "sub", "durable": True}
        wanted = ["1", "2"] if position == EARLIEST else []
        assert [one.value for one in await story.read(**durable)] == wanted
        subscription = (await story.topic()).subscriptions["sub"]
        for target, values in ((LATEST, []), (EARLIEST, ["1", "2"]), (LATEST, [])):
            await seek.seek(subscription, target)
            assert [one.value for one in await story.read(**durable)] == values
        await story.publish(("c", "3"))
        assert [one.value for one in await story.read(**durable)] == ["3"]

    run_quietly(scenario, ledger_config=SMALL_LEDGERS)


def test_an_encrypted_batch_stays_whole_and_encrypted_nothing_deletes_its_key() -> None:
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish(("a", "1"), ("b", "2"))
        await story.publish(("a", "3"), ("c", ""), batched=True, encrypted=True)
        await story.publish(("b", ""), encrypted=True)
        await story.compact()
        assert [(one.key, one.value) for one in await story.read()] == [("a", "1"), ("a", "3"), ("c", "")]

    run_quietly(scenario)


@pytest.mark.parametrize("batched", [False, True])
def test_a_deletion_is_told_until_it_is_old_enough(batched: bool) -> None:
    # Pulsar forgets it with the next compaction: who was away, and has the key, never learns that it is gone.
    async def scenario(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        await story.publish(("a", "1"), ("b", "2"), ("c", "3"), batched=batched)
        await story.publish(("a", ""), (None, ""), ("b", ""), batched=batched)
        await story.compact()
        assert [(one.key, one.value) for one in await story.read()] == [("c", "3"), ("a", ""), ("b", "")]
        await seconds(50)
        await story.publish(("b", "4"), ("d", ""), batched=batched)
        await story.compact()
        kept = [(one.key, one.value) for one in await story.read()]
        assert kept == [("c", "3"), ("a", ""), ("b", "4"), ("d", "")]
        await seconds(51)
        # One that deletes "c" is young, that of "a" is not any more.
        await story.publish(("c", ""), batched=batched)
        await story.compact()
        assert [(one.key, one.value) for one in await story.read()] == [("b", "4"), ("d", ""), ("c", "")]
        assert await story.read() == story.expected()

    run_quietly(scenario, compaction_tombstones_s=100)
