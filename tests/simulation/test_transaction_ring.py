"""Money moved between topics in transactions through everything that brokers may do: the sum never changes."""

from __future__ import annotations

import pytest

from geminga.sim.seeds import run_seeds
from support.token_ring import LABELS, run_ring


@pytest.mark.slow
def test_no_token_appears_or_disappears() -> None:
    run_seeds(run_ring, range(12)).check(hits_min=1, labels=LABELS)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(20))
def test_no_token_appears_or_disappears_for_a_thousand_seeds(block: int) -> None:
    run_seeds(run_ring, range(1000 + 50 * block, 1050 + 50 * block)).check(hits_min=20, labels=LABELS)
