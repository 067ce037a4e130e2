"""A ledger whose writer is taken over while messages are late and bookies fail, over quorums and seeds."""

from __future__ import annotations

import pytest

from geminga.sim import run_seeds
from support.house.weekly_sample import run_share
from support.stories.ledger_takeover import ledger_takeover


def test_ledgers_that_are_taken_over_lose_nothing_and_have_one_end():
    run_seeds(ledger_takeover, range(60)).check(labels=())


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ledgers_that_are_taken_over_lose_nothing_over_many_seeds():
    run_share(ledger_takeover, range(60, 5060))
