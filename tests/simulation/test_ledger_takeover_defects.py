"""Takeovers of ledgers with a defect planted: some seed catches each, so the simulation can see what it looks for.

Which one it is changes with every change of what is simulated, so it is looked for; docs/storage-faults.md has those of
its writing.
"""

from __future__ import annotations

import pytest

from support.house.planted_defects import check_is_caught
from support.house.weekly_sample import sampled
from support.stories.ledger_takeover import ledger_takeover

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
@pytest.mark.parametrize("why", sampled("defects of takeovers", DEFECTS, 3))
def test_planted_defect_is_caught_by_some_seed(why: str) -> None:
    check_is_caught(ledger_takeover, why, SEEDS)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_recovery_that_does_not_fence_is_caught_by_some_seed() -> None:
    check_is_caught(ledger_takeover, RARE, SEEDS_LONG)
