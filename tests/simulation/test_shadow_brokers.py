"""A shadow topic whose owner, and the owner of whose source, change, stall and are killed: nothing lost, nothing else.

Its messages come from the shadow with their ids, in order, to consumers that come and go; what was acknowledged
with a response came to no later one; the shadow's owner never takes the source's ledgers from who writes them.
"""

from __future__ import annotations

from support.clusters.shadow_story import shadow_brokers
from support.house.weekly_sample import SeedCheck, few_and_many

#: What must have happened in every run of some seeds.
CHANGES = tuple(f"owner.{change}" for change in ("given", "seized", "crashed", "unloaded"))


@few_and_many(range(304), least=1, most=12, many=range(4, 304), hits_min=50, timeout_s=3000)
def test_a_shadow_shows_its_source_whoever_owns_either(check: SeedCheck) -> None:
    check(shadow_brokers, CHANGES)
