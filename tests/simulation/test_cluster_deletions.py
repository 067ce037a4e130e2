"""Topics and namespaces of whole clusters are deleted under all that can go wrong: for good, and in the end always."""

from __future__ import annotations

import pytest

from geminga.sim.seeds import run_seeds
from support.clusters.cluster_deletions import LABELS, cluster_deletions
from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import of_week, run_week, share

SHORT_SEEDS = 12
LONG_SEEDS = 400


def test_what_was_deleted_is_gone_and_can_be_made_again() -> None:
    run_week(cluster_deletions, range(SHORT_SEEDS + LONG_SEEDS), least=3, most=60, labels=LABELS)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_what_was_deleted_is_gone_and_can_be_made_again_over_many_seeds() -> None:
    run_seeds(cluster_deletions, of_week(range(SHORT_SEEDS, SHORT_SEEDS + LONG_SEEDS))).check(
        hits_min=share(20), labels=LABELS
    )


#: By what ``tools/mutants/packages`` says of them.
DEFECTS = (
    "a namespace that is being deleted asks for policies that nobody serves any more, and is never gone",
    "who did not hear of a deletion makes topics in a namespace that is gone",
)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("why", DEFECTS)
def test_planted_defect_is_caught(why: str) -> None:
    check_is_caught(cluster_deletions, why, LONG_SEEDS)
