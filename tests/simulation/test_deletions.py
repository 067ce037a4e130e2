"""Stories of a broker that deletes in the background: nothing goes that a policy retains or a reader was promised."""

from __future__ import annotations

import pytest

from support.stories.deletion_story import run_story

SHORT_SEEDS = 20
LONG_SEEDS = 2000


def run_stories(first: int, end: int) -> None:
    deleted = trimmed = 0
    for seed in range(first, end):
        try:
            story = run_story(seed)
        except BaseException:
            print(f"deletion story: seed={seed}")
            raise
        deleted += story.deleted
        trimmed += story.trimmed
    # What nothing holds does go: else these stories would show nothing.
    assert deleted > (end - first) // 2
    assert trimmed > end - first


def test_nothing_promised_is_deleted_in_the_background() -> None:
    run_stories(0, SHORT_SEEDS)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_nothing_promised_is_deleted_in_the_background_over_many_seeds() -> None:
    run_stories(SHORT_SEEDS, SHORT_SEEDS + LONG_SEEDS)
