"""What the statistics of a topic tell of its past: over an unload, and over acknowledgments."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from geminga.broker.core.steps import drained
from geminga.broker.rest.topic_routes.internal_stats import internal_info, internal_stats, log_steps
from geminga.broker.statistics.topics import TopicStatistics, add_stored
from geminga.broker.subscription.stats import iso_time
from geminga.runtime import Turns, next_turn, spawn
from geminga.wire._generated.pulsar_api_pb2 import CommandSubscribe as Sub
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.policy_levels import NAME, Publisher, seconds, topic_of


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (1_700_000_000_040, "2023-11-14T22:13:20.04Z"),
        (1_700_000_000_100, "2023-11-14T22:13:20.1Z"),
        (1_700_000_010_000, "2023-11-14T22:13:30Z"),
        (0, "1970-01-01T00:00:00Z"),
    ],
)
def test_times_have_as_many_digits_as_javas_formatter_prints(time_ms: int, text: str) -> None:
    assert iso_time(time_ms) == text
    assert datetime.fromisoformat(text).timestamp() * 1000 == pytest.approx(time_ms)


async def _stats(world: BrokerWorld) -> dict:
    topic = await topic_of(world)
    turns = Turns(world.broker.runtime.clock)
    stats = await TopicStatistics(world.broker.runtime.clock, world.broker).of_topic(topic, turns)
    await add_stored(topic, stats, turns, for_each=True)
    return stats


def test_rates_begin_anew_with_a_topic_that_was_unloaded() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(TOPIC)
        await _stats(world)
        for sequence_id in range(20):
            await client.publish(sequence_id)
        await seconds(10)
        stats = await _stats(world)
        assert stats["msgRateIn"] == stats["publishers"][0]["msgRateIn"] == pytest.approx(2.0, rel=0.1)
        await world.broker.registry.unload(NAME)
        await seconds(10)
        stats = await _stats(world)
        assert (stats["msgInCounter"], stats["msgRateIn"], stats["averageMsgSize"]) == (0, 0.0, 0.0)
        await seconds(10)
        assert (await _stats(world))["msgRateIn"] == 0.0

    run_with_broker(scenario)


def test_creation_and_newest_message_are_known_after_a_restart() -> None:
    async def scenario(world: BrokerWorld) -> None:
        created_ms = world.runtime.clock.wall_ms()
        publisher = await Publisher.open(world)
        await seconds(5)
        await publisher.publish(claimed_ms=1234)
        assert (await _stats(world))["lastPublishTimeStamp"] >= created_ms + 5000
        await seconds(100)
        await world.restart()
        stats = await _stats(world)
        assert stats["topicCreationTimeStamp"] - created_ms < 1000
        # The broker's own time is gone; the message says when its producer published it.
        assert stats["lastPublishTimeStamp"] == 1234
        assert (await topic_of(world)).loaded_ms >= created_ms + 100_000

    run_with_broker(scenario)


def test_a_fresh_topic_is_open_and_has_a_ledger() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        for _ in range(2):
            stats = await internal_stats(world.broker.schemas, topic, Turns(world.broker.runtime.clock))
            (ledger,) = stats["ledgers"]
            assert (stats["state"], ledger["entries"]) == ("LedgerOpened", 0)
            assert stats["lastConfirmedEntry"] == f"{ledger['ledgerId']}:-1"
        client = await world.publisher(TOPIC)
        assert await client.publish(0) == (ledger["ledgerId"], 0)

    run_with_broker(scenario)


def test_internal_statistics_follow_the_current_ledger() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(TOPIC)
        await client.subscribe(TOPIC)
        opened_ms = world.runtime.clock.wall_ms()
        for sequence_id in range(3):
            await client.publish(sequence_id)
        stats = await internal_stats(world.broker.schemas, await topic_of(world), Turns(world.broker.runtime.clock))
        assert (stats["state"], stats["currentLedgerEntries"], stats["entriesAddedCounter"]) == ("LedgerOpened", 3, 3)
        (cursor,) = stats["cursors"].values()
        assert (stats["waitingCursorsCount"], cursor["waitingReadOp"], cursor["active"]) == (1, True, True)
        await seconds(50)
        await world.broker.registry.unload(NAME)
        topic = await topic_of(world)
        stats = await internal_stats(world.broker.schemas, topic, Turns(world.broker.runtime.clock))
        told = stats["state"], stats["currentLedgerEntries"], stats["entriesAddedCounter"], stats["numberOfEntries"]
        # To ask is to open, as where a topic is loaded for the question.
        assert told == ("LedgerOpened", 0, 0, 3)
        assert [ledger["entries"] for ledger in stats["ledgers"]] == [3, 0]
        made = datetime.fromisoformat(stats["lastLedgerCreatedTimestamp"])
        assert made.timestamp() * 1000 >= opened_ms + 50_000
        info = await world.broker.ledgers.info(NAME.managed_ledger_name)
        assert info is not None
        document = internal_info(info, now_ms=7)
        first, last = document["ledgers"]
        assert (first["entries"], first["timestamp"]) == (3, topic.ledger.ledgers.infos[0].closed_ms)
        assert (last.get("entries"), last["timestamp"]) == (None, 7)
        assert list(document["cursors"]) == list(topic.subscriptions)

    run_with_broker(scenario)


def test_a_topic_of_many_clients_is_told_in_turns() -> None:
    """It was in one: with some thousand subscriptions nobody was served for a second, at each question."""

    async def scenario(world: BrokerWorld) -> None:
        client, shared = await world.client(), await world.client()
        for number in range(30):
            await client.subscribe(consumer_id=number, subscription=f"s{number:02}")
            await client.create_producer(TOPIC, producer_id=100 + number)
            await shared.subscribe(consumer_id=number, subscription="shared", subType=Sub.Shared)
        topic, clock = await topic_of(world), world.broker.runtime.clock
        statistics = TopicStatistics(clock, world.broker)
        turns = Turns(clock, steps_max=10)
        stats: Any = await statistics.of_topic(topic, turns)
        assert turns.count >= 9
        assert [len(stats[member]) for member in ("subscriptions", "publishers")] == [31, 30]
        assert len(stats["subscriptions"]["shared"]["consumers"]) == 30
        assert [*drained(log_steps(topic))["cursors"]] == [*topic.ledger.cursors]
        assert sum(1 for _ in log_steps(topic)) == 31 + (len(topic.ledger.ledgers.infos) > 0)
        # What comes and goes meanwhile ends nothing.
        asked = spawn(statistics.of_topic(topic, Turns(clock, steps_max=10)), name="asks")
        await next_turn()
        client.lose()
        shared.lose()
        assert not asked.done()
        assert len((await asked)["subscriptions"]) == 31

    run_with_broker(scenario)
