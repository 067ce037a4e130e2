"""Two or three brokers own bundles in the metadata store: one writer, nothing lost, every topic served in the end.

Bundles are released, sessions expire, brokers stall and crash, nodes are taken away by hand, namespaces are cut
otherwise, writes end without an answer, and watches are lost, late and doubled all the time. Nobody has a topic open
without a node of its session for it, but who can not know yet. Receipts are compared with what is stored.
"""

from __future__ import annotations

from support.clusters.bundle_brokers import bundle_brokers
from support.house.weekly_sample import SeedCheck, few_and_many

CHANGES = tuple(
    f"bundle.{change}"
    for change in ("released", "expired", "stalled", "crashed", "robbed", "cut", "was split", "uncertain")
)


@few_and_many(range(508), least=3, most=60, many=range(8, 508), hits_min=100, timeout_s=3000)
def test_one_writer_nothing_lost_every_topic_served(check: SeedCheck) -> None:
    check(bundle_brokers, CHANGES)
