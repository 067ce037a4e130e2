"""Two or three brokers own bundles in the metadata store: one writer, nothing lost, every topic served in the end.

Bundles are released, sessions expire, brokers stall and crash, nodes are taken away by hand, namespaces are cut
otherwise, writes end without an answer, and watches are lost, late and doubled all the time. Nobody has a topic open
without a node of its session for it, but who can not know yet. Receipts are compared with what is stored.
"""

from __future__ import annotations

import pytest

from geminga.sim.seeds import run_seeds
from support.clusters.bundle_brokers import bundle_brokers
from support.house.weekly_sample import of_week, run_week, share

SHORT_SEEDS = 8
LONG_SEEDS = 500
CHANGES = tuple(
    f"bundle.{change}"
    for change in ("released", "expired", "stalled", "crashed", "robbed", "cut", "was split", "uncertain")
)


def test_one_writer_nothing_lost_every_topic_served() -> None:
    run_week(bundle_brokers, range(SHORT_SEEDS + LONG_SEEDS), least=3, most=60, labels=CHANGES)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_one_writer_nothing_lost_every_topic_served_over_many_seeds() -> None:
    run_seeds(bundle_brokers, of_week(range(SHORT_SEEDS, SHORT_SEEDS + LONG_SEEDS))).check(
        hits_min=share(100), labels=CHANGES
    )
