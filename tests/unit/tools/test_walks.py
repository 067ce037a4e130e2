"""Walks are drawn from their seeds alone, do all there is to do, and part where they differ."""

from __future__ import annotations

import json

from tools.interop.walks.programs import walk
from tools.interop.walks.recording import recorded
from tools.interop.walks.running import first_difference
from tools.interop.walks.walking import STEPS


def test_a_walk_is_that_of_its_seed_and_can_be_written_down() -> None:
    assert walk(7) == walk(7) != walk(8)
    assert json.loads(json.dumps(walk(7))) == walk(7)


def test_walks_take_every_kind_of_step() -> None:
    assert {step[0] for seed in range(200) for step in walk(seed)} == set(STEPS)


def test_where_two_brokers_part() -> None:
    assert first_difference(["done", [1, 2]], ["done", [1, 2]]) is None
    assert first_difference(["done", [1, 2], 3], ["done", [2, 1], 4]) == 1
    assert first_difference([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]) is None


def test_what_was_recorded_are_walks_that_do_something() -> None:
    shown = recorded()
    assert len(shown) >= 40
    assert all(len(one.steps) == len(one.seen) for one in shown)
    kinds = {step[0] for one in shown for step, seen in zip(one.steps, one.seen, strict=True) if seen not in ("", [])}
    assert kinds >= set(STEPS) - {"policy", "redeliver", "seek", "seek time", "begin", "commit", "abort", "expire to"}
