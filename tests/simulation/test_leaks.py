"""After any kill what was deleted is freed and what a policy keeps is kept, by what lies on disks and in metadata."""

from __future__ import annotations

import pytest

from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import SeedCheck, few_and_many, sampled
from support.stories.leaks_story import LABELS, leaks

#: In which each planted defect must be caught.
CAUGHT_SEEDS = 50


@few_and_many(range(1000), least=3, many=range(1000), hits_min=20, timeout_s=3600)
def test_what_was_deleted_is_freed_and_what_is_kept_is_there(check: SeedCheck) -> None:
    check(leaks, LABELS)


#: By what ``tools/mutants/packages`` says of them.
LEAKS = (
    "what was deleted shortly before a kill is kept for ever, as if the metadata were an older backup",
    "ledgers that a kill left without a name stay",
    "a deleted namespace leaves the parents of its topics",
    "the pending-ack log of a deleted subscription stays",
    "the pending-ack logs of a deleted topic stay",
    "the schemas of a deleted topic stay",
    "a file of the lake whose deletion was cut off is never deleted",
    "the marks of a bookie that is gone for good stay",
    "entry logs that hold nothing any more stay",
)
WRONGFUL = (
    "a trim asks no subscription",
    "a trim takes what is retained",
    "the ledgers of schemas are taken for nameless",
    "the ledgers of subscriptions are taken for nameless",
)
DEFECTS = (*LEAKS, *WRONGFUL)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("why", sampled("planted leaks", DEFECTS, 2, ids=DEFECTS))
def test_planted_defect_is_caught(why: str) -> None:
    check_is_caught(leaks, why, CAUGHT_SEEDS)
