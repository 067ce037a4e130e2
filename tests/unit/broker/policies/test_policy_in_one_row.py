"""An example: a policy that Pulsar has not, in one row, and what comes of the row by itself."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import PolicyName, reading, writing
from geminga.broker.policies.core.avro_types import fitted, optional, record, written
from geminga.broker.policies.core.readers import count_of
from geminga.broker.policies.core.row import NamespaceLevel, Nothing, PolicyRow, Rest, TopicLevel
from geminga.broker.policies.core.values import limit_check
from geminga.broker.policies.rules import Levels, TopicRules
from geminga.broker.rest.namespace_routes import policies as namespace_policies
from geminga.broker.rest.topic_routes import policies as topic_policies

#: This is all: put into a file of ``policies/core/rows`` it is read, merged, served, stored and listed. An effect asks
#: ``topic.rules[MAX_HEADERS]``.
MAX_HEADERS: Final = PolicyRow(
    name="maxHeaders",
    policy=PolicyName.MAX_PRODUCERS,
    read=count_of,
    otherwise=0,
    check=limit_check("maxHeaders must be 0 or more"),
    keys=("maxHeaders",),
    namespace=NamespaceLevel("max_headers", Rest("maxHeaders", nothing=Nothing.IS_REFUSED)),
    topic=TopicLevel({"maxHeaders": optional("int")}, Rest("maxHeaders")),
    followed_by=("topic/headers.py",),
    text="Properties that a message has at most.",
)


def test_levels_come_together() -> None:
    settings = {"maxHeaders": 5}
    assert Levels(settings).value(MAX_HEADERS) == 5
    assert Levels(settings, namespace={"max_headers": 7}).value(MAX_HEADERS) == 7
    assert Levels(settings, namespace={"max_headers": 7}, topic={"maxHeaders": 0}).value(MAX_HEADERS) == 0
    assert Levels(settings, namespace={"max_headers": "many"}, topic_global={"maxHeaders": 9}).value(MAX_HEADERS) == 9
    assert TopicRules({MAX_HEADERS: 3})[MAX_HEADERS] == 3
    assert TopicRules()[MAX_HEADERS] == 0


def test_both_levels_are_served_each_behind_its_decision() -> None:
    namespace, topic = MAX_HEADERS.namespace, MAX_HEADERS.topic
    assert namespace is not None
    assert namespace.rest is not None
    assert topic is not None
    assert topic.rest is not None
    routes = [
        *namespace_policies.routes_of(MAX_HEADERS, namespace, namespace.rest),
        *topic_policies.routes_of(MAX_HEADERS, topic, topic.rest),
    ]
    assert [route.path.rpartition("/")[2] for route in routes] == ["maxHeaders"] * 6
    for route in routes:
        is_read = "GET" in (route.methods or ())
        assert route.needs == (reading if is_read else writing)(PolicyName.MAX_PRODUCERS)


def test_it_has_its_field_in_the_events() -> None:
    level = MAX_HEADERS.topic
    assert level is not None
    kind = record("a.TopicPolicies", level.avro)
    assert written(kind) == {
        "type": "record",
        "name": "TopicPolicies",
        "namespace": "a",
        "fields": [{"name": "maxHeaders", "type": ["null", "int"], "default": None}],
    }
    assert fitted(level.changed({}, 4), kind) == {"maxHeaders": 4}
