"""A shadow topic whose owner, and the owner of whose source, change, stall and are killed: nothing lost, nothing else.

Its messages come from the shadow with their ids, in order, to consumers that come and go; what was acknowledged
with a response came to no later one; the shadow's owner never takes the source's ledgers from who writes them.
"""

from __future__ import annotations

import pytest

from geminga.sim.seeds import run_seeds
from support.clusters.shadow_story import shadow_brokers
from support.house.weekly_sample import of_week, run_week, share

SHORT_SEEDS = 4
LONG_SEEDS = 300
#: What must have happened in every run of some seeds.
CHANGES = tuple(f"owner.{change}" for change in ("given", "seized", "crashed", "unloaded"))


def test_a_shadow_shows_its_source_whoever_owns_either() -> None:
    run_week(shadow_brokers, range(SHORT_SEEDS + LONG_SEEDS), least=1, most=12, labels=CHANGES)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_shadow_shows_its_source_whoever_owns_either_over_many_seeds() -> None:
    run_seeds(shadow_brokers, of_week(range(SHORT_SEEDS, SHORT_SEEDS + LONG_SEEDS))).check(
        hits_min=share(50), labels=CHANGES
    )
