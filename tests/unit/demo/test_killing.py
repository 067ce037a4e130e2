"""When what is killed: a plan from a seed."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from collections import Counter

import pytest
from demo.killing import CLOSING_SHARE, KINDS, ROWS_SHARE, kinds_of, plan_kills


@pytest.mark.parametrize("kills", [0, 1, 3, 4, 20, 21])
def test_every_kill_is_planned_once_and_some_for_the_closing(kills: int) -> None:
    kinds = kinds_of(kills)
    assert max(Counter(kinds).values(), default=0) - min((Counter(kinds)[kind] for kind in KINDS), default=0) <= 1
    early, closing = plan_kills(random.Random(3), kinds, 1000)
    assert Counter([*(kind for _, kind in early), *closing]) == Counter(kinds)
    assert len(closing) == int(kills * CLOSING_SHARE)
    moments = [at for at, _ in early]
    assert moments == sorted(moments)
    assert all(0 <= at <= 1000 * ROWS_SHARE for at in moments)


def test_the_seed_decides() -> None:
    plans = [plan_kills(random.Random(seed), kinds_of(20), 1000) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
