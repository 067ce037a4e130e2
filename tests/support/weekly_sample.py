"""Cases of which ``make test`` runs a few that change every week, and ``make test-long`` all.

Where many cases say the same of many combinations, a sample of them runs with every change, and another one next week:
in a quarter of a year nearly all have run with somebody's change. The others are marked ``long``. Each has its own id,
so that one that failed runs again by its name in any week: ``pytest "tests/...::test_some[that-case]"``.
``SAMPLE_WEEK=2026-W48`` draws the sample of that week; the end of a run says which week it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from random import Random
from typing import Any, Final

import pytest

#: Names the week whose sample is drawn.
WEEK_VARIABLE: Final = "SAMPLE_WEEK"


def week(today: date | None = None) -> str:
    """The ISO week that samples are drawn for, such as ``2026-W48``: the variable's, or that of today (UTC)."""
    if named := os.environ.get(WEEK_VARIABLE):
        return named
    year, number, _ = (today or datetime.now(UTC).date()).isocalendar()
    return f"{year}-W{number:02}"


def drawn(name: str, count: int, of: int, *, week: str) -> frozenset[int]:
    """Which ``count`` of the numbers 0 to ``of`` - 1 a week's sample holds; another draw for each name and week."""
    return frozenset(Random(f"{week} {name}").sample(range(of), min(count, of)))


def sampled(name: str, cases: Iterable[Any], count: int, *, ids: Sequence[str] | None = None) -> list[Any]:
    """``cases`` as parameters, all but this week's ``count`` of them marked ``long``.

    A case is a value, or a ``pytest.param``, which keeps its id and its marks; ``ids`` names those that are values.
    """
    listed = list(cases)
    chosen = drawn(name, count, len(listed), week=week())
    made = []
    for index, case in enumerate(listed):
        param = case if hasattr(case, "marks") and hasattr(case, "values") else pytest.param(case)
        marks = [*param.marks] if index in chosen else [*param.marks, pytest.mark.long]
        made.append(pytest.param(*param.values, id=ids[index] if ids else param.id, marks=marks))
    return made


def seed_blocks(name: str, seeds: range, size: int, count: int = 1) -> list[Any]:
    """``seeds`` in blocks of ``size``, each a ``range`` whose id says its seeds; ``count`` blocks are this week's."""
    blocks = [seeds[first : first + size] for first in range(0, len(seeds), size)]
    return sampled(name, blocks, count, ids=[f"seeds {block[0]}-{block[-1]}" for block in blocks])
