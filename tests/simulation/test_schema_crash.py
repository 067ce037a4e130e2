"""A crash at any step of writing schemas: versions that were told are there, and nothing is left over."""

from __future__ import annotations

import os

from geminga.broker.schema import crash_points
from geminga.sim import SimWorld, run_seeds
from support.house.weekly_sample import SeedCheck, few_and_many
from support.stories.schema_crash import SchemaStory, schema_story

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "15"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "500"))


@few_and_many(range(500), least=SEEDS, many=range(10_000, 10_000 + SEEDS_LONG), hits_min=20, timeout_s=1800)
def test_schema_crash_at_any_step_keeps_every_version_that_was_told(check: SeedCheck) -> None:
    check(schema_story, crash_points.ALL)


def test_schema_that_is_named_before_it_is_stored_is_caught() -> None:
    async def defective(world: SimWorld) -> None:
        await SchemaStory(world, names_first=True).run()

    assert run_seeds(defective, range(200), failures_max=1).failures, "200 seeds did not notice"
