"""Topics and namespaces of whole clusters are deleted under all that can go wrong: for good, and in the end always."""

from __future__ import annotations

import pytest

from support.clusters.cluster_deletions import LABELS, cluster_deletions
from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import SeedCheck, few_and_many


@few_and_many(range(412), least=3, most=60, many=range(12, 412), hits_min=20, timeout_s=1200)
def test_what_was_deleted_is_gone_and_can_be_made_again(check: SeedCheck) -> None:
    check(cluster_deletions, LABELS)


#: By what ``tools/mutants/packages`` says of them.
DEFECTS = (
    "a namespace that is being deleted asks for policies that nobody serves any more, and is never gone",
    "who did not hear of a deletion makes topics in a namespace that is gone",
)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("why", DEFECTS)
def test_planted_defect_is_caught(why: str) -> None:
    check_is_caught(cluster_deletions, why, 400)
