"""Transactions in whole clusters with a defect planted: some seed catches each."""

from __future__ import annotations

from typing import Final

import pytest

from support.clusters.cluster_transactions import cluster_transactions
from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import sampled

#: By what ``tools/mutants/packages`` says of them.
DEFECTS: Final = (
    # A coordinator is served after its session expired.
    "a broker serves coordinators on after its session expired, or their bundle went",
    # A commit is decided by two coordinators. (Logs that are opened without fencing: test_cluster_story_defects.)
    "two brokers open the log of a coordinator in turns",
    # The marker of an end is lost when its topic moves in the middle.
    "an end that was not heard at once is never told again: the topic is held back for good",
    # What transactions hold acknowledged is not read again at a takeover.
    "what transactions hold is delivered again after a load",
    # The abort of what timed out is forgotten at a takeover, before it was decided and after.
    "after a restart nothing times out until somebody begins a transaction",
    "an end that was decided before a crash is heard by nobody",
    # Whom nobody will tell does not ask.
    "a topic believes that a coordinator of another broker will tell it: where that knows nothing, or nobody took it, "
    "it is held back for good",
)
#: That are tried when the noted one catches nothing any more, since the simulation changed.
SEEDS: Final = 100


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("why", sampled("defects of the cluster transactions", DEFECTS, 2))
def test_planted_defect_is_caught_by_some_story(why: str) -> None:
    check_is_caught(cluster_transactions, why, SEEDS)
