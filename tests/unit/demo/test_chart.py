"""The demo's picture is a PNG, whatever the events."""

from __future__ import annotations

import pytest
from demo.chart import PANELS_MAX, choose_repos, draw
from demo.weekly import WEEK_MS, Sums, WindowKey


def weeks_of(repos: int, weeks: int) -> dict[WindowKey, Sums]:
    """Every other week has commits."""
    return {
        WindowKey(2600 * WEEK_MS + 2 * week * WEEK_MS, f"owner/r{repo}"): Sums(repo + week + 1, 1, 1, 1)
        for repo in range(repos)
        for week in range(weeks)
    }


@pytest.mark.parametrize(("repos", "weeks"), [(1, 1), (2, 30), (PANELS_MAX + 3, 5)])
def test_chart_is_written_for_one_repository_and_for_more_than_fit(tmp_path, repos, weeks) -> None:
    path = tmp_path / "made" / "weekly.png"
    shown = draw(weeks_of(repos, weeks), "owner", "made up", path)
    assert len(shown) == min(repos, PANELS_MAX)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_repositories_with_most_commits_are_shown_and_two_of_a_topic_that_has_only_small_ones() -> None:
    totals = {f"big/r{number}": 100 + number for number in range(PANELS_MAX + 1)} | {
        "small/a": 1,
        "small/b": 2,
        "small/c": 0,
    }
    shown = choose_repos(totals, "small")
    assert len(shown) == PANELS_MAX
    assert shown[0] == f"big/r{PANELS_MAX}"
    assert shown[-2:] == ["small/b", "small/a"]
    assert choose_repos({"a/x": 1, "b/y": 2}, "a") == ["b/y", "a/x"]
