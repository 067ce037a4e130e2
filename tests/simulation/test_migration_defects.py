"""Topics that move to another cluster with a defect planted: some seed catches each."""

from __future__ import annotations

from typing import Final

import pytest

from support.clusters.migration_story import migration
from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import sampled

#: By what ``tools/mutants/packages/geo.toml`` says of them.
DEFECTS: Final = (
    "producers are sent where no subscription keeps what they publish",
    "consumers leave with messages that they have not acknowledged: those are lost to them",
    "who comes to a topic that moved publishes where nobody reads any more",
    "a cluster that is told to move, or to stay, does neither",
    "the next owner of a topic that moved takes messages, which nobody reads",
)
SEEDS = 200


@pytest.mark.timeout(600)
@pytest.mark.parametrize("why", sampled("planted defects of migration", DEFECTS, 1))
def test_planted_defect_is_caught_by_some_story(why: str) -> None:
    check_is_caught(migration, why, SEEDS)
