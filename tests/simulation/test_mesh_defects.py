"""Clusters that carry each other's messages with a defect planted: some seed catches each."""

from __future__ import annotations

from typing import Final

import pytest

from support.clusters.mesh_story import mesh
from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import sampled

#: By what ``tools/mutants/packages/geo.toml`` and ``deduplication.toml`` say of them.
DEFECTS: Final = (
    "messages go round between clusters for ever",
    "what a transaction took back is there in the other cluster",
    "a message goes where its sender did not want it",
    "the cursor goes past what was not answered for: it is lost when the link ends",
    "what was to be sent to a cluster that is away is lost",
    "each change of a policy throws away what was not copied yet",
    "a cluster that was taken out is copied to on",
    "a topic is copied to its own cluster",
    "what is sent again is there twice where the other cluster deduplicates",
    "the next link finds its producer's name taken by the one before",
    "what was not copied to a cluster that was taken out is kept for it, and copied when it is there again",
    "positions are ordered by entry: what comes in the next ledger is taken for a repetition and lost",
)
SEEDS = 60


@pytest.mark.timeout(600)
@pytest.mark.parametrize("why", sampled("planted defects of a mesh", DEFECTS, 1))
def test_planted_defect_is_caught_by_some_story(why: str) -> None:
    check_is_caught(mesh, why, SEEDS)
