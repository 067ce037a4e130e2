"""Limits of unacknowledged messages set, changed and removed at three levels while consumers are connected."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.broker.subscription.dispatch_shared import SharedDispatch
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import Publisher, run_quietly, seconds, set_namespace, set_topic, topic_of

BROKER = (7, 11)
KEYS = (
    ("max_unacked_messages_per_consumer", "maxUnackedMessagesOnConsumer"),
    ("max_unacked_messages_per_subscription", "maxUnackedMessagesOnSubscription"),
)
MESSAGES = 30
#: Whether the namespace's, which of the two limits, and its value; None removes it.
changes = st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.none() | st.integers(0, 24)), min_size=5, max_size=25)


@settings(max_examples=20)
@given(changes)
def test_whatever_is_set_and_removed_the_most_particular_level_holds_for_who_is_connected(history) -> None:
    at_namespace: list[int | None] = [None, None]
    at_topic: list[int | None] = [None, None]

    def expected(index: int) -> int:
        for level in (at_topic, at_namespace):
            found = level[index]
            if found is not None:
                return found
        return BROKER[index]

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await world.subscriber(subType=pb.CommandSubscribe.Shared)
        publisher = await Publisher.open(world)
        for _ in range(MESSAGES):
            await publisher.publish()
        dispatch = topic.subscriptions["sub"].dispatch
        assert isinstance(dispatch, SharedDispatch)
        assert dispatch.core.unacked_count == min(BROKER)
        for is_namespace, index, value in history:
            if is_namespace:
                await set_namespace(world, KEYS[index][0], value)
                at_namespace[index] = value
            else:
                await set_topic(world, KEYS[index][1], value)
                at_topic[index] = value
            before = dispatch.core.unacked_count
            await seconds(0.1)
            limits = expected(0), expected(1)
            assert topic.unacked_limits == limits
            # Nothing is acknowledged: as much is out as the least limit lets, and what is out stays out.
            room = min([limit for limit in limits if limit] or [MESSAGES])
            assert dispatch.core.unacked_count == max(before, min(room, MESSAGES))
            assert dispatch.consumers[0].was_blocked == (0 < limits[0] <= dispatch.core.unacked_count)
            assert dispatch.core.is_blocked == (0 < limits[1] <= dispatch.core.unacked_count)
        await world.restart()
        assert (await topic_of(world)).unacked_limits == (expected(0), expected(1))

    run_quietly(
        scenario,
        max_unacked_messages_per_consumer=BROKER[0],
        max_unacked_messages_per_subscription=BROKER[1],
    )
