"""Policies that could not be followed at that moment are followed later, without anybody asking again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from geminga import sim
from geminga.broker.policies import retries
from geminga.broker.policies.retries import ATTEMPTS_PER_TURN, RETRY_S_MAX, RETRY_S_MIN, PolicyRetries
from geminga.model.errors import MetadataUnavailableError, SessionExpiredError
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, set_strict, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import NAME, NAMESPACE, run_quietly, seconds, set_topic, topic_of

EVENTS = TopicName.parse(f"persistent://{NAMESPACE}/__change_events")


class Topic:
    """Follows at the attempt with this number; earlier ones fail, or raise what is not expected."""

    def __init__(self, follows_at: int = 1, name: str = "persistent://public/default/t", *, breaks: bool = False):
        self.name = TopicName.parse(name)
        self.is_closing = False
        self.breaks = breaks
        self.follows_at = follows_at
        #: When each attempt was made, by the loop's clock.
        self.attempts_s: list[float] = []

    async def apply_policies(self) -> None:
        self.attempts_s.append(asyncio.get_running_loop().time())
        if len(self.attempts_s) < self.follows_at:
            raise MetadataUnavailableError("not now")
        if self.breaks:
            raise ValueError("a fault of ours")

    def broke(self, what: str, error: BaseException) -> None:
        self.is_closing = True


class Whole:
    """The broker, which hears of what was not expected."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def broke(self, what: str, error: BaseException) -> None:
        self.heard.append(f"{what}: {error}")


def run(scenario: Callable[[PolicyRetries, Whole], Awaitable[None]], *, is_strict: bool = True) -> None:
    async def main(_: sim.SimWorld) -> None:
        set_strict(asyncio.get_running_loop(), is_strict)
        whole = Whole()
        tried = PolicyRetries(whole, asyncio.get_running_loop().time)
        await scenario(tried, whole)
        tried.close()

    sim.run(main)


def test_a_topic_is_tried_again_by_a_doubling_delay_until_it_follows(caplog) -> None:
    caplog.set_level(logging.INFO, "geminga")

    async def scenario(tried: PolicyRetries, _: Whole) -> None:
        topic = Topic(follows_at=9)
        error = await tried.follow(topic)
        assert isinstance(error, MetadataUnavailableError)
        assert tried.count == 1
        await seconds(1_000)
        began_s = topic.attempts_s[0]
        gaps = [round(after - before) for before, after in zip(topic.attempts_s, topic.attempts_s[1:], strict=False)]
        assert gaps == [1, 2, 4, 8, 16, 32, 60, RETRY_S_MAX]
        assert topic.attempts_s[-1] - began_s < 200
        assert tried.count == 0

    run(scenario)
    lines = [record.getMessage() for record in caplog.records if record.name == retries.__name__]
    assert lines[0] == (
        "persistent://public/default/t: changed policies could not be applied, it is tried again in 1 s: not now"
    )
    assert lines[-1] == "persistent://public/default/t: its policies are followed"
    # One warning a minute, whatever fails.
    assert len(lines) < 7


def test_who_follows_is_not_tried_again_and_one_that_follows_meanwhile_neither() -> None:
    async def scenario(tried: PolicyRetries, _: Whole) -> None:
        topic = Topic()
        assert await tried.follow(topic) is None
        assert tried.count == 0
        late = Topic(follows_at=2, name="persistent://public/default/late")
        await tried.follow(late)
        assert await tried.follow(late) is None
        await seconds(100)
        assert (len(topic.attempts_s), len(late.attempts_s)) == (1, 2)
        # A series that ended begins small again.
        late.follows_at = 4
        await tried.follow(late)
        await seconds(1.5)
        assert len(late.attempts_s) == 4

    run(scenario)


def test_a_topic_that_closes_is_tried_no_more_and_nothing_after_the_close() -> None:
    async def scenario(tried: PolicyRetries, _: Whole) -> None:
        closing, left = Topic(follows_at=9), Topic(follows_at=9, name="persistent://public/default/left")
        await tried.follow(closing)
        await tried.follow(left)
        closing.is_closing = True
        await seconds(10)
        assert len(closing.attempts_s) == 1
        assert tried.count == 1
        tried.close()
        attempts = len(left.attempts_s)
        await tried.follow(left)
        await seconds(100)
        assert len(left.attempts_s) == attempts + 1
        assert tried.count == 0

    run(scenario)


def test_a_new_failure_does_not_wait_for_the_long_delay_of_another() -> None:
    async def scenario(tried: PolicyRetries, _: Whole) -> None:
        old, new = Topic(follows_at=100), Topic(follows_at=2, name="persistent://public/default/new")
        await tried.follow(old)
        await seconds(130)
        await tried.follow(new)
        await seconds(1.5)
        assert len(new.attempts_s) == 2
        before = len(old.attempts_s)
        await seconds(2 * RETRY_S_MAX)
        assert len(old.attempts_s) >= before + 1

    run(scenario)


def test_many_are_tried_in_many_turns_and_each_of_them() -> None:
    async def scenario(tried: PolicyRetries, _: Whole) -> None:
        topics = [
            Topic(follows_at=2, name=f"persistent://public/default/t{n}") for n in range(3 * ATTEMPTS_PER_TURN + 1)
        ]
        for topic in topics:
            await tried.follow(topic)
        turns: list[int] = []

        async def count() -> None:
            before = len(topics)
            while before < 2 * len(topics) and len(turns) < 1000:
                await next_turn()
                after = sum(len(topic.attempts_s) for topic in topics)
                turns.append(after - before)
                before = after

        asyncio.get_running_loop().call_later(RETRY_S_MIN, lambda: spawn(count(), name="count attempts"))
        await seconds(10)
        assert turns[-2:] == [ATTEMPTS_PER_TURN, 1]
        assert {len(topic.attempts_s) for topic in topics} == {2}
        assert tried.count == 0

    run(scenario)


def test_what_is_not_expected_closes_the_topic_or_is_the_broker_s_and_the_others_are_tried() -> None:
    async def scenario(tried: PolicyRetries, whole: Whole) -> None:
        broken, other = Topic(breaks=True), Topic(follows_at=3, name="persistent://public/default/other")
        assert await tried.follow(broken) is None
        assert broken.is_closing

        async def breaks() -> None:
            raise ValueError("no topic's")

        tried.failed("public/default", "read", MetadataUnavailableError("not now"), breaks)
        await tried.follow(other)
        await seconds(10)
        assert len(other.attempts_s) == 3
        assert whole.heard == ["following policies again: no topic's"]
        assert tried.count == 0

    run(scenario, is_strict=False)


# ---- in a broker


def lose_metadata(world: BrokerWorld, outage_s: float) -> None:
    """Its session is over, and a new one comes only later."""
    world.metadata.expire_session(int(outage_s * 1000))


@pytest.mark.parametrize("outage_s", [0.5, 90])
def test_topics_follow_their_namespace_once_its_policies_can_be_read_again(outage_s: float) -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await world.resources.namespaces.set_policy(NAMESPACE, "max_producers_per_topic", 7)
        lose_metadata(world, outage_s)
        await world.broker.policies_changed(NAMESPACE)
        assert topic.limits.producers == 0
        assert world.broker.policies.topics.retries.count == 2  # the topic, and whether its namespace lives here
        await seconds(outage_s + 2 * RETRY_S_MAX)
        assert topic.limits.producers == 7
        assert world.broker.policies.topics.retries.count == 0

    run_quietly(scenario)


def test_a_topic_s_own_policies_are_stored_and_followed_later_and_who_set_them_is_told() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_topic(world, "maxProducerPerTopic", 3)
        events = await world.broker.registry.get(EVENTS, create=False)
        before = events.last_position
        world.metadata.faults.delay_ms_max = 1_000

        async def set_to_four() -> None:
            with pytest.raises(SessionExpiredError):
                await set_topic(world, "maxProducerPerTopic", 4)

        setting = spawn(set_to_four(), name="set")
        while events.last_position == before:
            world.broker.namespaces.forget(NAMESPACE)
            await seconds(0.001)
        # It is stored, and the topic reads what its namespace says.
        lose_metadata(world, 5)
        await setting
        assert topic.limits.producers == 3
        await seconds(30)
        assert topic.limits.producers == 4
        assert world.broker.policies.topics.retries.count == 0

    run_quietly(scenario)


def test_events_of_others_that_could_not_be_read_are_read_later() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await set_topic(world, "maxProducerPerTopic", 3)
        events = await world.broker.registry.get(EVENTS, create=False)
        removed = pb.MessageMetadata(
            producer_name="other", sequence_id=1, publish_time=1, partition_key=str(NAME), null_value=True
        )
        stored: list[object] = []
        events.ledger.append([encode_entry(removed, b"")], stored.append)
        await seconds(0.1)
        assert stored
        await world.broker.registry.unload(EVENTS)
        lose_metadata(world, 5)
        world.broker.policies.topics.told(NAMESPACE)
        await seconds(0.5)
        assert topic.limits.producers == 3
        await seconds(30)
        assert topic.limits.producers == 0
        assert world.broker.policies.topics.retries.count == 0

    run_quietly(scenario)
