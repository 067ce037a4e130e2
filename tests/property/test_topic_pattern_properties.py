"""Patterns that the broker evaluates mean what Python's ``re`` says, and watchers know the topics that match."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from geminga.broker.core.watched_topics import WatchedTopics
from geminga.wire.pulsar.commands import topics_hash
from geminga.wire.pulsar.topic_pattern import LinearPattern
from support.house.examples import many

ATOMS = [*"ab.^$|()[]{}*+?,-&:1U", "\\", "\\d", "\\w", "\\s", "\\Q", "\\E", "\\.", "\\b", "\\x41", "\\-", "\\A", "\\1"]
ATOMS += [
    "[^",
    "(?:",
    "(?i)",
    "(?P<n>",
    "(?U)",
    "(?=",
    "{2}",
    "{1,2}",
    "{,1}",
    "[a-b]",
    "[[:alpha:]]",
    "&&",
    "\\v",
    "\\C",
]


@settings(max_examples=many(500))
@given(
    st.lists(st.sampled_from(ATOMS), min_size=1, max_size=7).map("".join),
    st.lists(st.text("abAU1-.:,{&[]\\^", max_size=5), min_size=1, max_size=8),
)
def test_evaluated_patterns_match_what_python_matches(text: str, names: list[str]) -> None:
    compiled = LinearPattern.compile(text)
    assume(compiled is not None and "://" not in text)
    assert compiled is not None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            oracle = re.compile(text, re.ASCII)
    except re.error:
        assume(False)
        return
    for name in names:
        assert compiled.matches(f"persistent://{name}") == (oracle.fullmatch(name) is not None), (text, name)


NAMES = st.sets(st.sampled_from([f"t{index}" for index in range(12)]))


@given(NAMES, st.lists(NAMES, max_size=8))
def test_who_follows_the_changes_knows_the_list(first: set[str], later: list[set[str]]) -> None:
    topics = WatchedTopics(sorted(first))
    told, before = set(first), set(first)
    for now in later:
        change = topics.change(now - before, before - now)
        assert (change is None) == (now == before)
        if change is not None:
            assert not set(change.came) & told
            assert set(change.went) <= told
            told = (told | set(change.came)) - set(change.went)
            assert change.hash == topics_hash(sorted(told))
        assert told == now
        assert topics.names == sorted(now)
        before = now


def test_pattern_that_needs_much_memory_is_left_to_the_client():
    assert LinearPattern.compile("public/default/" + "x{1000}" * 10) is None
    assert (
        LinearPattern.compile("public/default/(" + "|".join(f"alternative{i:03}" for i in range(100)) + ")") is not None
    )


@pytest.mark.parametrize("text", ["[[:alpha:]]x", "[a&&[b]]", "a{,2}", r"(a)\1", r"\C", r"\v", "(?U)a", "(?-iU)a"])
def test_pattern_that_would_mean_something_else_is_left_to_the_client(text):
    assert LinearPattern.compile(f"public/default/{text}") is None
