"""Properties of topics as labels of metrics: which, of whom, and what can be none."""

from __future__ import annotations

import re

import pytest

from geminga.broker.composition.metric_labels import READ_AGAIN_S, TopicLabels
from geminga.broker.composition.metric_levels import MetricLevels
from geminga.broker.composition.metrics import Metrics
from geminga.broker.core.coercion import BodyError
from geminga.broker.policies.core.record_rows import METRIC_LABELS
from geminga.broker.statistics.topics import TopicStatistics
from geminga.model.topic_name import TopicName
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import NAME, run_quietly, seconds, set_namespace

KEYS = "allowed_topic_property_keys_for_metrics"


def test_properties_that_a_policy_names_are_labels() -> None:
    """Of a topic and a partition, by what namespace and broker name together; not where they are not wanted."""

    async def scenario(world: BrokerWorld) -> None:
        await world.broker.registry.create(NAME, {"team": 'a "b"', "tier": "gold", "secret": "no"})
        parts = TopicName.parse("persistent://public/default/parts")
        await world.broker.partitions.create(parts, 2, {"team": "c"})
        await world.broker.registry.get(parts.with_partition(1), create=True)
        await world.broker.registry.get(TopicName.parse("persistent://public/default/bare"), create=True)
        await set_namespace(world, KEYS, ["team", "topic", "odd name"])
        statistics = TopicStatistics(world.broker.runtime.clock, world.broker)

        async def lines(levels: MetricLevels) -> list[str]:
            page = await Metrics(world.broker, statistics, cluster="c", levels=levels).page()
            return re.findall(r"^pulsar_producers_count\{(.*)\}", page.decode(), re.MULTILINE)

        common = 'cluster="c",namespace="public/default",topic="persistent://public/default/'
        found = await lines(MetricLevels(properties=True))
        assert sorted(line.removeprefix(common) for line in found if line.startswith(common)) == [
            'bare"',
            'parts-partition-1",team="c"',
            'topic",team="a \\"b\\"",tier="gold"',
        ]
        assert "team" not in "".join(await lines(MetricLevels()))

    run_quietly(scenario, metric_property_keys=("tier",))


def test_labels_of_partitions_stay_while_they_can_not_be_read() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await world.broker.partitions.create(NAME, 1, {"team": "c"})
        await world.broker.registry.get(NAME.with_partition(0), create=True)
        await set_namespace(world, KEYS, ["team"])
        labels = TopicLabels(world.broker)
        expected = {str(NAME.with_partition(0)): (("team", "c"),)}
        assert await labels.now() == expected
        await world.resources.partitioned_topics.set_properties(NAME, {"team": "d"})
        assert await labels.now() == expected
        await seconds(READ_AGAIN_S)
        assert await labels.now() == {str(NAME.with_partition(0)): (("team", "d"),)}

    run_quietly(scenario)


@pytest.mark.parametrize("name", ["with space", "9", "topic", "__name__", "a-b"])
def test_what_can_be_no_label_is_refused(name: str) -> None:
    with pytest.raises(BodyError, match="can not be a label of metrics"):
        METRIC_LABELS.check(["team", name])


def test_nothing_is_no_label() -> None:
    assert METRIC_LABELS.check(["", "team_2"]) == ["", "team_2"]
    assert METRIC_LABELS.value_of([None, []]) == ()
    assert METRIC_LABELS.value_of([["b", "a"], ["a", "c"]]) == ("b", "a", "c")
