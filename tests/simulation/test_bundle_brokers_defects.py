"""Brokers that own bundles with a defect planted: some seed catches each."""

from __future__ import annotations

from typing import Final

import pytest

from support.clusters.bundle_brokers import bundle_brokers
from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import sampled

#: By what ``tools/mutants/packages/ownership.toml`` says of them.
DEFECTS: Final = (
    "a broker serves on after its session expired",
    "watches are trusted: who did not hear that its bundle is gone serves it for good",
    "a bundle is given away with its topics open",
    "whoever meets a node takes it for its own",
)
SEEDS = 60


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("why", sampled("defects of the brokers of bundles", DEFECTS, 2))
def test_planted_defect_is_caught_by_some_story(why: str) -> None:
    check_is_caught(bundle_brokers, why, SEEDS)
