"""Stories of storage with a defect planted: some seed catches each; docs/storage-faults.md has those of its writing."""

from __future__ import annotations

import pytest

from geminga.sim.seeds import Scenario
from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import sampled
from support.stories.bookie_crash import bookie_story
from support.stories.misfortune_story import misfortune_story
from support.stories.storage_story import storage_story

#: By what ``tools/mutants/packages`` says of them.
DEFECTS = (
    (storage_story, "an I/O error is taken for a certain absence"),
    (storage_story, "fenced bookies refuse what recovery writes back"),
    (storage_story, "a frame that comes in pieces is read as another"),
    (bookie_story, "a deleted ledger comes back with a restart, and takes the adds of a late writer"),
    (misfortune_story, "a bookie that lost its disk starts afresh under its name, without entries and fences"),
    (bookie_story, "who writes a checkpoint beside a flush puts an older mark in the place of a newer one"),
    (bookie_story, "what a log holds of some ledgers is not known, and their live entries are collected with it"),
    (misfortune_story, "directories that changed places are opened, and entries of their ledgers are absent"),
    (misfortune_story, "an entry that may have existed is certainly absent, and recovery cuts the ledger"),
)
SEEDS = 100


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("scenario", "why"), sampled("defects of storage", DEFECTS, 4, are_rows=True))
def test_planted_defect_is_caught_by_some_story(scenario: Scenario, why: str) -> None:
    check_is_caught(scenario, why, SEEDS)
