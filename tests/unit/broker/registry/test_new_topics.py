"""A topic made a moment ago is wanted unless namespace or partitioned topic are deleted."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from geminga.broker.registry.new_topics import may_be_new, may_have_partitions
from geminga.model.errors import ConflictError, NotAllowedError, TopicNotFoundError
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn
from support.worlds.broker_world import BrokerWorld, run_with_broker


@pytest.mark.parametrize(
    ("text", "is_wanted"),
    [
        ("persistent://public/default/one", True),
        ("persistent://public/default/one-partition-0", True),
        ("persistent://public/default/whole", False),
        ("persistent://public/default/going", False),
        ("persistent://public/default/whole-partition-0", True),
        ("persistent://public/default/going-partition-0", False),
        ("persistent://public/going/one", False),
        ("persistent://public/gone/one", False),
    ],
)
def test_what_is_deleted_takes_no_new_topics(text: str, is_wanted: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        resources = world.broker.resources
        for local in ("whole", "going"):
            await world.broker.partitions.create(TopicName.parse(f"persistent://public/default/{local}"), 2)
        going = TopicName.parse("persistent://public/default/going")
        await resources.partitioned_topics.mark_deleted(going, True, partitions=2)
        await resources.namespaces.create("public/going", {"replication_clusters": ["standalone"]})
        await resources.namespaces.set_policy("public/going", "deleted", True)
        name = TopicName.parse(text)
        assert await may_be_new(resources, name) is is_wanted
        if name.is_partition:
            whole = name.partitioned_topic
            assert await may_have_partitions(resources, whole) is (whole.local_name == "whole")

    run_with_broker(scenario)


@pytest.mark.parametrize("properties", [None, {"key": "value"}])
def test_topic_is_either_partitioned_or_not_though_two_make_it_at_once(properties: dict[str, str] | None) -> None:
    async def scenario(world: BrokerWorld) -> None:
        async def make(name: TopicName, turns: int, *, partitions: int) -> bool:
            for _ in range(turns):
                await next_turn()
            with suppress(ConflictError, TopicNotFoundError, NotAllowedError):
                if partitions:
                    await world.broker.partitions.create(name, partitions)
                elif properties is None:
                    await world.broker.registry.get(name, create=True)
                else:
                    await world.broker.registry.create(name, properties)
                return True
            return False

        for turns in range(-10, 10):
            name = TopicName.parse(f"public/default/topic{turns}")
            whole, plain = await asyncio.gather(make(name, turns, partitions=2), make(name, -turns, partitions=0))
            found = await world.broker.resources.partitioned_topics.find(name)
            assert (found is not None, await world.broker.registry.exists(name)) == (whole, plain)
            # With properties both may go back.
            assert whole is not plain or (properties and not whole)

    run_with_broker(scenario)
