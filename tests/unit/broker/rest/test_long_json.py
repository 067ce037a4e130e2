"""JSON of any length, in pieces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.steps import drained
from geminga.broker.rest.calls.long_json import PIECE_VALUES_MAX, json_steps, long_json_response
from geminga.broker.rest.calls.requests import json_response
from geminga.runtime import Turns
from geminga.sim import SimWorld, run

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.just([1] * PIECE_VALUES_MAX)
)


def steps_of(value: Any) -> int:
    return sum(1 for _ in json_steps(value))


@given(VALUES)
def test_it_is_the_same_in_pieces(value: Any) -> None:
    assert drained(json_steps(value)) == json_response(value).body


@pytest.mark.parametrize("count", [PIECE_VALUES_MAX - 1, PIECE_VALUES_MAX, 5 * PIECE_VALUES_MAX])
def test_what_has_few_values_is_one_piece_and_no_piece_has_more(count: int) -> None:
    flat = dict.fromkeys(map(str, range(count)), 1)
    assert (steps_of(flat) == 1) == (count < PIECE_VALUES_MAX)
    # Each of the members is small enough by itself.
    members = {name: [1] * 100 for name in flat}
    assert steps_of(members) == 2 * count + 1


def test_others_are_served_in_between() -> None:
    async def story(world: SimWorld) -> None:
        turns = Turns(world.node("a").runtime.clock, steps_max=10)
        value = [[1] * 200 for _ in range(95)]
        answer = await long_json_response(value, turns)
        assert turns.count >= 10
        expected = json_response(value)
        assert (answer.status_code, answer.body, answer.media_type) == (200, expected.body, expected.media_type)

    run(story, seed=1)
