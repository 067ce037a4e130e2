"""Whole clusters with a defect planted: some seed catches each, so the simulation can see what it looks for."""

from __future__ import annotations

from typing import Final

import pytest

from support.clusters.cluster_story import cluster_story
from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import sampled

#: By what ``tools/mutants/packages`` says of them.
DEFECTS: Final = (
    # Serve after expiry.
    "a broker serves on after its session expired",
    # Ownership without fencing.
    "the next owner reads the end of a ledger without fencing it: the one before acknowledges what nobody finds",
    # Stale lookup cache.
    "a broker that was not told of a new owner sends clients to the one before for good",
    # A watch that is late, or lost, is trusted.
    "watches are trusted: who did not hear that its bundle is gone serves it for good",
    # Double split.
    "two brokers split at once, and what the second one writes takes back what the first one wrote",
    # Unload that forgets pending receipts.
    "a topic that is unloaded forgets receipts that are pending",
)
#: That are tried when the noted one catches nothing any more, since the simulation changed.
SEEDS: Final = 100


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("why", sampled("defects of the cluster story", DEFECTS, 2))
def test_planted_defect_is_caught_by_some_story(why: str) -> None:
    check_is_caught(cluster_story, why, SEEDS)
