"""Remembered policies and patterns."""

from __future__ import annotations

import pytest

from geminga.broker.namespaces import compile_pattern, matches
from support.broker_world import BrokerWorld, run_with_broker


def test_policies_are_remembered_until_they_change() -> None:
    async def scenario(world: BrokerWorld) -> None:
        namespaces = world.broker.namespaces
        first = await namespaces.policies("public/default")
        assert first is not None
        assert await namespaces.policies("public/default") is first
        assert await namespaces.policies("public/missing") is None
        await world.resources.namespaces.create("public/missing", {})
        assert await namespaces.policies("public/missing") is not None
        namespaces.forget("public/default")
        assert await namespaces.policies("public/default") is not first

    run_with_broker(scenario)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("persistent://public/default/a.*", "persistent://public/default/abc", True),
        ("public/default/a.*", "non-persistent://public/default/abc", True),
        ("public/default/a", "persistent://public/default/abc", False),
        ("public/default/abc", "persistent://public/default/abc-partition-3", True),
    ],
)
def test_patterns_match_names_without_domain_and_partition(pattern: str, topic: str, expected: bool) -> None:
    compiled = compile_pattern(pattern)
    assert compiled is not None
    assert matches(compiled, topic) == expected


@pytest.mark.parametrize("pattern", ["(", "(a+)+b", "(a|a)*b", ".*.*.*.*b", "a{2}{3}{4}{5}"])
def test_what_is_no_pattern_or_could_take_for_ever_is_none(pattern: str) -> None:
    assert compile_pattern(pattern) is None
