"""A crash at any step of writing schemas: versions that were told are there, and nothing is left over."""

from __future__ import annotations

import os

import pytest

from geminga.broker.schema import crash_points
from geminga.sim import SimWorld, run_seeds
from support.house.weekly_sample import of_week, run_week, share
from support.stories.schema_crash import SchemaStory, schema_story

SEEDS = int(os.environ.get("GEMINGA_SEEDS", "15"))
SEEDS_LONG = int(os.environ.get("GEMINGA_SEEDS_LONG", "500"))


def test_schema_crash_at_any_step_keeps_every_version_that_was_told() -> None:
    run_week(schema_story, range(500), least=SEEDS)


def test_schema_that_is_named_before_it_is_stored_is_caught() -> None:
    async def defective(world: SimWorld) -> None:
        await SchemaStory(world, names_first=True).run()

    assert run_seeds(defective, range(200), failures_max=1).failures, "200 seeds did not notice"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_schema_crash_points_over_many_seeds_are_all_hit(capsys: pytest.CaptureFixture[str]) -> None:
    report = run_seeds(schema_story, of_week(range(10_000, 10_000 + SEEDS_LONG)))
    with capsys.disabled():
        print("\n" + report.table())
    report.check(hits_min=share(20), labels=crash_points.ALL)
