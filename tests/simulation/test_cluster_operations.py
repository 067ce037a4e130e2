"""Whole clusters are administered under all that can go wrong: policies, more partitions, an end; and delays hold."""

from __future__ import annotations

import pytest

from geminga.sim.seeds import run_seeds
from support.clusters.cluster_operations import LABELS, cluster_operations
from support.house.weekly_sample import of_week, run_week, share

SHORT_SEEDS = 4
LONG_SEEDS = 150


def test_what_an_operator_was_answered_holds() -> None:
    run_week(cluster_operations, range(SHORT_SEEDS + LONG_SEEDS), least=2, most=40, labels=LABELS[:4])


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_what_an_operator_was_answered_holds_over_many_seeds() -> None:
    run_seeds(cluster_operations, of_week(range(SHORT_SEEDS, SHORT_SEEDS + LONG_SEEDS))).check(
        hits_min=share(20), labels=LABELS
    )
