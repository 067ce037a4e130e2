"""What was deleted is gone from disk and metadata in the end, however the processes ended that deleted it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from geminga.bookie import garbage_collection
from geminga.bookie.core.deletion_guard import Lineage
from geminga.broker.resources import Resources
from geminga.sim import run_seeds
from support.house.weekly_sample import SeedCheck, few_and_many, few_seeds, many_seeds
from support.stories.leak_story import leak_story


@few_and_many(range(200), least=few_seeds(3), many=many_seeds(200), timeout_s=1800)
def test_nothing_is_left_of_what_was_deleted(check: SeedCheck) -> None:
    check(leak_story)


def without_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was deleted shortly before a kill is kept as if the metadata were an older backup."""
    monkeypatch.setattr(garbage_collection, "lineage", lambda noted, found: Lineage.UNKNOWN)


def with_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted namespaces leave the nodes that others hung on."""

    async def leave(self: Resources, namespace: str) -> None:
        return None

    monkeypatch.setattr(Resources, "remove_remains", leave)


@pytest.mark.parametrize(
    ("plant", "says"),
    [(without_mark, "ledgers on the disk that no metadata name"), (with_remains, "metadata nodes of")],
)
def test_what_leaked_before_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    failures = run_seeds(leak_story, range(20), failures_max=1).failures
    assert failures, "20 seeds did not notice"
    assert says in str(failures[0].error)
