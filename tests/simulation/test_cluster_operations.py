"""Whole clusters are administered under all that can go wrong: policies, more partitions, an end; and delays hold."""

from __future__ import annotations

import pytest

from support.clusters.cluster_operations import LABELS, cluster_operations
from support.house.weekly_sample import run_share, run_week


def test_what_an_operator_was_answered_holds() -> None:
    run_week(cluster_operations, range(154), least=2, most=40, labels=LABELS[:4])


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_what_an_operator_was_answered_holds_over_many_seeds() -> None:
    run_share(cluster_operations, range(4, 154), hits_min=20, labels=LABELS)
