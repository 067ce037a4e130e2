"""What has to be alike in two clusters before topics are copied."""

from __future__ import annotations

import pytest

from geminga.broker.geo.core.alike import NamespaceTopics, made_by, mismatches

TOPIC = "persistent://a/b/t"
EVENTS = "persistent://a/b/__change_events"


def side(cluster: str = "west", made: tuple[str, int] = ("non-partitioned", 1), **partitions: int) -> NamespaceTopics:
    return NamespaceTopics(cluster, {f"persistent://a/b/{name}": count for name, count in partitions.items()}, *made)


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        (side(t=3, only_here=2), side(t=3, only_there=5), []),
        (side(t=0), side(t=0), []),
        (side(t=3), side(t=2), [f"for topic '{TOPIC}': local cluster has 3 partitions, remote cluster 'west' has 2"]),
        (side(t=3), side(t=0), ["has 3 partitions, remote cluster 'west' has 0 partitions"]),
        (side(t=0), side(t=2), ["a non-partitioned topic, but remote cluster 'west' has a partitioned topic with 2"]),
        (
            side(__change_events=0, t=1),
            side(__change_events=2, t=2),
            [f"Topic type mismatch for topic '{EVENTS}'", f"Partition count mismatch for topic '{TOPIC}'"],
        ),
        (side(__change_events=3), side(__change_events=2), [f"for __change_events system topic '{EVENTS}'"]),
        (
            side(made=("partitioned", 4)),
            side(),
            ["topicType: local=partitioned, remote=non-partitioned; defaultNumPartitions: local=4, remote=1."],
        ),
        (side(made=("partitioned", 4)), side(made=("partitioned", 5)), [": defaultNumPartitions: local=4, remote=5."]),
    ],
)
def test_what_differs_is_named(here: NamespaceTopics, there: NamespaceTopics, expected: list[str]) -> None:
    found = mismatches("a/b", here, there)
    assert len(found) == len(expected)
    assert all(part in text for part, text in zip(expected, found, strict=True)), found


@pytest.mark.parametrize(
    ("override", "made"),
    [
        (None, ("partitioned", 4)),
        ({"topicType": "partitioned", "defaultNumPartitions": 7}, ("partitioned", 7)),
        ({"topicType": "non-partitioned", "defaultNumPartitions": None}, ("non-partitioned", 4)),
        ({"allowAutoTopicCreation": False}, ("null", 4)),
    ],
)
def test_a_namespace_s_own_rules_come_before_the_broker_s(override: object, made: tuple[str, int]) -> None:
    assert made_by(override, "partitioned", 4) == made
