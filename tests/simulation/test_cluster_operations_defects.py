"""Whole clusters that are administered, with a defect planted: some seed catches each."""

from __future__ import annotations

from typing import Final

import pytest

from support.clusters.cluster_operations import cluster_operations
from support.house.planted_defects import check_is_caught

#: By what ``tools/mutants/packages`` says of them.
DEFECTS: Final = ("delayed messages are delivered at once",)
#: That are tried when the noted one catches nothing any more, since the simulation changed.
SEEDS: Final = 60


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("why", DEFECTS)
def test_planted_defect_is_caught_by_some_story(why: str) -> None:
    check_is_caught(cluster_operations, why, SEEDS)
