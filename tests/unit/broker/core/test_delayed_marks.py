"""Where a mark lies among entries, and among groups of them."""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from geminga.broker.core.delayed.marks import LAST, groups_through, index_after

IDS = [3, 5, 9]


@pytest.mark.parametrize("ids", [IDS, BitMap(IDS)])
@pytest.mark.parametrize(
    ("mark", "index"),
    [
        ((0, 6, 9), 0),
        ((0, 7, -1), 0),
        ((0, 7, 3), 1),
        ((0, 7, 4), 1),
        ((0, 7, 9), 3),
        ((0, 7, LAST), 3),
        ((0, 8, 0), 3),
    ],
)
def test_first_entry_behind_the_mark(ids, mark, index):
    assert index_after(ids, 7, mark) == index


@pytest.mark.parametrize(
    ("mark", "count"),
    [
        ((0, 6, LAST), 0),
        ((0, 7, 8), 0),
        ((0, 7, 9), 1),
        ((0, 8, 3), 1),
        ((0, 11, 0), 1),
        ((0, 11, 1), 2),
        ((0, 12, 0), 2),
    ],
)
def test_groups_that_lie_before_the_mark(mark, count):
    assert groups_through([(7, IDS), (11, BitMap([0, 1]))], mark) == count
