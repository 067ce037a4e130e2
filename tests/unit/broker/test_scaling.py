"""Four times as many of something cost four times as much: no step is taken for each of them with each of the others.

What is counted are calls of Python's functions, so that a figure is the same on every machine. With more, longer.
"""

from __future__ import annotations

import pytest

from support.house.python_calls import counted_calls
from support.house.weekly_sample import sampled
from support.stories.scaling_stories import STORIES, Story
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly

#: Four times the work is 4; a bit more, since some steps come with the first of many only.
GROWTH_MAX = 4.9
#: So many, and four times as many.
COUNT = 16
#: Where fewer do not meet at what one of them has read.
MORE = {"readers_come_and_go": 64, "subscriptions_get_messages": 64}
#: So many, and four times as many, where it takes longer.
VERY_MANY = 250
#: The locator of a topic's schemas names all versions, in Pulsar's format too: each is looked at when one comes.
FEWER = {"a_topic_has_schemas": 25}


def calls_of(story: Story, count: int) -> int:
    found = 0

    async def scenario(world: BrokerWorld) -> None:
        nonlocal found
        parts = story(world, count)
        await anext(parts)
        with counted_calls() as calls:
            assert await anext(parts, None) is None
            found = calls()

    run_quietly(scenario)
    return found


def require_linear(name: str, count: int) -> None:
    few, many = calls_of(STORIES[name], count), calls_of(STORIES[name], 4 * count)
    assert many <= GROWTH_MAX * few, f"{name}: {few} calls for {count}, {many} for {4 * count}: {many / few:.1f} times"


@pytest.mark.parametrize("name", sampled("stories of many", STORIES, 13))
def test_four_times_as_many_cost_four_times_as_much(name: str) -> None:
    require_linear(name, MORE.get(name, COUNT))


@pytest.mark.long
@pytest.mark.parametrize("name", STORIES)
def test_four_times_as_many_cost_four_times_as_much_of_very_many(name: str) -> None:
    require_linear(name, FEWER.get(name, VERY_MANY))
