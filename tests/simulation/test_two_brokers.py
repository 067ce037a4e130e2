"""Two brokers on one metadata store and one set of bookies: one writer, nothing lost, clients follow.

1. Owners change under producers and consumers: in good order, by nobody for a while, behind the back of one that goes
on or stalls, by a crash; lookups redirect, and lead to brokers that are gone. Nobody but the owner has a topic open,
but for an owner that was not told. 2. All is settled: every send ends, every message comes. 3. Each receipt is compared
with what is stored; what was acknowledged with a response came to no later consumer.
"""

from __future__ import annotations

import pytest

from geminga.sim.seeds import run_seeds
from support.two_brokers import two_brokers

SHORT_SEEDS = 8
LONG_SEEDS = 500
#: What must have happened in every run of some seeds.
CHANGES = tuple(
    f"owner.{change}" for change in ("given", "nobody", "seized", "stalled", "crashed", "asking", "misled", "unloaded")
)


def test_one_writer_nothing_lost_clients_follow() -> None:
    run_seeds(two_brokers, range(SHORT_SEEDS)).check(hits_min=2, labels=CHANGES)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_one_writer_nothing_lost_clients_follow_over_many_seeds() -> None:
    run_seeds(two_brokers, range(SHORT_SEEDS, SHORT_SEEDS + LONG_SEEDS)).check(hits_min=100, labels=CHANGES)
