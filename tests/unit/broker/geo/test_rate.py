"""``replicatorDispatchRate``: of topic, namespace or broker, for each other cluster apart; an entry counts as one."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import Json
from geminga.broker.geo.watch import STANDSTILL_S, StandstillWatch
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.other_cluster import OtherCluster, join, replicate
from support.worlds.policy_levels import seconds, set_topic

ONE_A_SECOND: Json = {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}


async def several(world: BrokerWorld, count: int) -> OtherCluster:
    """So many entries of a topic that is copied from its beginning."""
    other = join(world)
    other.starts_at_earliest = True
    client = await world.publisher(producer_name="producer")
    for number in range(count):
        await client.publish(number, b"%d" % number)
    return other


@pytest.mark.parametrize("level", ["topic", "namespace", "broker"])
def test_no_more_is_copied_than_the_rate_of_any_level_allows(level: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = await several(world, 10)
        if level == "topic":
            await set_topic(world, "replicatorDispatchRate", ONE_A_SECOND)
        elif level == "namespace":
            rates: Json = {"standalone": ONE_A_SECOND}
            await world.resources.namespaces.set_policy("public/default", "replicatorDispatchRate", rates)
        await replicate(world, "standalone", "west", "north")
        await seconds(3.5)
        counts = {each.cluster: 10 - each.backlog for each in other.replicators if not each.topic_name.is_system}
        assert counts == {"west": 4, "north": 4}
        await seconds(7)
        assert other.payloads.count(b"9") == 2

    broker = {"replicator_dispatch_rate_messages": 1} if level == "broker" else {}
    run_with_broker(scenario, delete_inactive_topics=False, **broker)


def test_a_resource_group_holds_what_all_its_topics_copy_together() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = await several(world, 10)
        await world.resources.resource_groups.put("g", {"replicationDispatchRateInMsgs": 1})
        await world.resources.namespaces.set_policy("public/default", "resource_group_name", "g")
        await replicate(world, "standalone", "west", "north")
        await seconds(3.5)
        # Of both together: each may go on where there is room, and what it had too much is owed.
        copied = sum(10 - each.backlog for each in other.replicators if not each.topic_name.is_system)
        assert 4 <= copied <= 5
        assert world.broker.groups.groups is not None
        assert world.broker.groups.groups.groups["g"].totals()["replicationDispatchRateInMsgs"] == copied
        assert (("resource_group", "g"), ("monitoring_class", "ReplicationDispatch")) in dict(
            world.broker.groups.rows()
        )
        await seconds(17)
        assert other.payloads.count(b"9") == 2

    run_with_broker(scenario, delete_inactive_topics=False)


def test_bytes_are_counted_and_another_rate_holds_within_a_second() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = await several(world, 10)
        await set_topic(
            world,
            "replicatorDispatchRate",
            {
                **ONE_A_SECOND,
                "dispatchThrottlingRateInMsg": -1,
                "dispatchThrottlingRateInByte": 1,
                "ratePeriodInSecond": 1000,
            },
        )
        await replicate(world, "standalone", "west")
        await seconds(60)
        assert other.payloads == [b"0"]
        await set_topic(world, "replicatorDispatchRate", None)
        await world.broker.policies_changed("public/default")
        await seconds(1.5)
        assert len(other.payloads) == 10

    run_with_broker(scenario, delete_inactive_topics=False)


def test_who_waits_for_its_rate_does_not_stand_still() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other, watch = await several(world, 3), StandstillWatch()
        await set_topic(world, "replicatorDispatchRate", {**ONE_A_SECOND, "ratePeriodInSecond": 1000})
        await replicate(world, "standalone", "west")
        await seconds(1)
        clock = world.topic.services.runtime.clock
        watch.add(other.replicators[0], clock.monotonic())
        await seconds(STANDSTILL_S + 1)
        watch.look(clock.monotonic())
        assert (watch.restarts, other.replicators[0].backlog) == (0, 2)

    run_with_broker(scenario, delete_inactive_topics=False)
