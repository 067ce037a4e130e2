"""Takeovers of ledgers with a defect planted: some seed catches each, so the simulation can see what it looks for.

Which one it is changes with every change of what is simulated, so it is looked for; docs/storage-faults.md has those of
its writing.
"""

from __future__ import annotations

import pytest

from geminga.sim import run_seeds
from support.ledger_takeover import ledger_takeover
from support.planted_defects import first_seed_that_fails

#: By what ``tools/mutants/packages/bookkeeper.toml`` says of them.
DEFECTS = (
    "acknowledged entries before the last fragment are cut off (BookKeeper #2615)",
    "one bookie that lost an entry shortens the ledger",
    "an I/O error is taken for a certain absence",
    "fenced bookies refuse what recovery writes back",
    "a late answer of a replaced bookie counts towards the quorum",
    "what a replaced bookie acknowledged counts for its successor",
    "entries say of others that they are confirmed before they are",
)
#: One in some thousand takeovers meets it.
RARE = "recovery reads that do not fence: an entry is acknowledged after its absence was certain"
SEEDS = 500
SEEDS_LONG = 12_000


@pytest.mark.slow
@pytest.mark.parametrize("why", DEFECTS)
def test_planted_defect_is_caught_by_some_seed(why: str) -> None:
    seed = first_seed_that_fails(ledger_takeover, why, SEEDS)
    print(f"seed {seed}: {why}")
    assert seed is not None
    run_seeds(ledger_takeover, [seed]).check(labels=())


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_recovery_that_does_not_fence_is_caught_by_some_seed() -> None:
    seed = first_seed_that_fails(ledger_takeover, RARE, SEEDS_LONG)
    print(f"seed {seed}: {RARE}")
    assert seed is not None
    run_seeds(ledger_takeover, [seed]).check(labels=())
