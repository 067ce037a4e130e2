"""docs/what-still-works.md: each cell of its table is what the broker does."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from support.house.weekly_sample import drawn, week
from support.worlds.dependency_features import DEPENDENCIES, FEATURES, PARTLY, WAITS, WORKS, outcomes, reasons

PAGE = Path(__file__).parents[3] / "docs" / "what-still-works.md"


def table() -> dict[tuple[str, str], str]:
    """The words of the page's table, by feature and dependency."""
    block = next(part for part in PAGE.read_text(encoding="utf-8").split("\n\n") if part.startswith("|"))
    lines = block.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, rows = rows[0], rows[2:]
    return {(row[0], name): cell for row in rows for name, cell in zip(head[1:], row[1:], strict=True)}


TABLE = table()
#: Of the dependencies: a broker that loses one tries all features, so that a column costs what a cell does.
COLUMNS_TRIED = 3


@cache
def this_week() -> set[str]:
    """The dependencies whose columns are tried; the other ones are long."""
    chosen = drawn("what is missing", COLUMNS_TRIED, len(DEPENDENCIES), week=week())
    return {name for number, name in enumerate(DEPENDENCIES) if number in chosen}


@cache
def found(dependency: str) -> dict[str, str]:
    return outcomes(dependency)


def test_the_page_has_a_row_for_each_feature_and_a_column_for_each_dependency() -> None:
    assert list(TABLE) == [(feature, dependency) for feature in FEATURES for dependency in DEPENDENCIES]
    assert set(TABLE.values()) == {WORKS, PARTLY, WAITS}
    assert len(FEATURES) >= 12
    assert len(DEPENDENCIES) >= 6


@pytest.mark.parametrize(
    ("feature", "dependency"),
    [
        pytest.param(
            *cell,
            id=f"{cell[0]}, without {cell[1]}",
            marks=[] if cell[1] in this_week() else [pytest.mark.long],
        )
        for cell in TABLE
    ],
)
def test_what_a_feature_does_without(feature: str, dependency: str) -> None:
    assert found(dependency)[feature] == TABLE[feature, dependency], reasons.get((dependency, feature))
