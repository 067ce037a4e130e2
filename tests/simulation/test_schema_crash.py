"""A crash at any step of writing schemas: versions that were told are there, and nothing is left over."""

from __future__ import annotations

from geminga.broker.schema import crash_points
from support.house.weekly_sample import SeedCheck, check_noticed, few_and_many, few_seeds, many_seeds
from support.stories.schema_crash import SchemaStory, schema_story


@few_and_many(range(500), least=few_seeds(15), many=many_seeds(500), hits_min=20, timeout_s=1800)
def test_schema_crash_at_any_step_keeps_every_version_that_was_told(check: SeedCheck) -> None:
    check(schema_story, crash_points.ALL)


def test_schema_that_is_named_before_it_is_stored_is_caught() -> None:
    check_noticed(lambda world: SchemaStory(world, names_first=True).run(), 200)
