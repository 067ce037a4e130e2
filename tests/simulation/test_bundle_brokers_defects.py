"""Brokers that own bundles with a defect planted: some seed catches each."""

from __future__ import annotations

import pytest

from geminga.sim import run_seeds
from support.bundle_brokers import bundle_brokers
from support.planted_defects import first_seed_that_fails

#: By what ``tools/mutants/packages/ownership.toml`` says of them.
DEFECTS = (
    "a broker serves on after its session expired",
    "watches are trusted: who did not hear that its bundle is gone serves it for good",
    "a bundle is given away with its topics open",
    "whoever meets a node takes it for its own",
)
SEEDS = 60


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("why", DEFECTS)
def test_planted_defect_is_caught_by_some_story(why: str) -> None:
    seed = first_seed_that_fails(bundle_brokers, why, SEEDS)
    print(f"seed {seed}: {why}")
    assert seed is not None
    run_seeds(bundle_brokers, [seed]).check(labels=())
