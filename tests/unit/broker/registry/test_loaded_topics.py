"""Topics that are open are found by their own names and by those of what they are partitions of."""

from __future__ import annotations

from geminga.broker.registry.loaded_topics import LoadedTopics
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly

WHOLE = TopicName.parse("persistent://public/default/whole")


def test_partitions_are_found_while_they_are_open() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.resources.create_partitioned_topic(WHOLE, 3)
        names = [WHOLE.with_partition(index) for index in range(3)]
        other = TopicName.parse("persistent://public/default/whole-partition-x")
        first, second, third = [await world.broker.registry.get(name, create=True) for name in names]
        apart = await world.broker.registry.get(other, create=True)
        registry = world.broker.registry
        assert registry.loaded_of(WHOLE) == [first, second, third]
        assert registry.loaded_of(names[1]) == [second]
        assert registry.loaded_of(other) == [apart]
        await registry.unload(names[1])
        assert registry.loaded_of(WHOLE) == [first, third]
        again = await world.broker.registry.get(names[1], create=False)
        assert registry.loaded_of(WHOLE) == [first, third, again]
        for name in names:
            await registry.unload(name)
        assert registry.loaded_of(WHOLE) == registry.loaded_of(names[1]) == []
        assert list(registry.loaded) == [str(other)]

    run_quietly(scenario)


def test_a_name_that_is_a_topic_and_has_partitions_is_both() -> None:
    async def scenario(world: BrokerWorld) -> None:
        loaded = LoadedTopics()
        alone = await world.broker.registry.get(WHOLE, create=True)
        part = await world.broker.registry.get(TopicName.parse("non-persistent://public/default/x"), create=True)
        loaded.add(alone)
        loaded.add(part)
        loaded.add(alone)
        assert loaded.of(WHOLE) == [alone]
        loaded.discard(WHOLE.with_partition(0))
        loaded.discard(WHOLE)
        loaded.discard(WHOLE)
        assert loaded.of(WHOLE) == []
        assert list(loaded.by_name.values()) == [part]

    run_quietly(scenario)
