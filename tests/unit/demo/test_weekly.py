"""The demo's plain computation, on events few enough to add up by hand."""

from __future__ import annotations

import json

import pytest
from demo.weekly import (
    WEEK_MS,
    EventError,
    Sums,
    WindowKey,
    check_event,
    differences,
    is_of_owner,
    parse_result,
    split_owner,
    weekly,
)

DAY_MS = 24 * 3600 * 1000


def event(repo: str, at: int, files: int = 1, insertions: int = 10, deletions: int = 2) -> bytes:
    fields = {
        "repo": repo,
        "commit": "c",
        "event_time": at,
        "files": files,
        "insertions": insertions,
        "deletions": deletions,
    }
    return json.dumps(fields).encode()


def test_weeks_begin_on_thursdays_at_midnight_and_end_before_the_next() -> None:
    lines = [event("r", 0), event("r", WEEK_MS - 1), event("r", WEEK_MS), event("r", -1)]
    assert {key.start_ms: sums.commits for key, sums in weekly(lines).items()} == {0: 2, WEEK_MS: 1, -WEEK_MS: 1}


def test_sums_are_per_repository() -> None:
    lines = [event("a", DAY_MS), event("b", DAY_MS, 5, 6, 7), event("a", 2 * DAY_MS, 3, 4, 5)]
    assert weekly(lines) == {WindowKey(0, "a"): Sums(2, 4, 14, 7), WindowKey(0, "b"): Sums(1, 5, 6, 7)}


def test_message_of_the_result_is_parsed_back() -> None:
    fields = {"window_start_ms": WEEK_MS, "repo": "a", "commits": 1, "files": 2, "insertions": 3, "deletions": 4}
    assert parse_result(json.dumps(fields).encode()) == (WindowKey(WEEK_MS, "a"), Sums(1, 2, 3, 4))


def test_differences_name_what_is_missing_unexpected_and_wrong() -> None:
    one, two, three = (WindowKey(0, name) for name in "abc")
    right, wrong = Sums(1, 1, 1, 1), Sums(2, 1, 1, 1)
    assert differences({one: right}, {one: right}) == []
    found = differences({one: wrong, two: right}, {one: right, three: right})
    assert [reason.partition(" windows")[0] for reason in found] == ["1", "1", "1"]
    assert "missing" in found[0]
    assert "not expected" in found[1]
    assert str(wrong) in found[2]


def test_event_that_is_no_commit_is_named_with_its_line() -> None:
    assert check_event(event("a/b", 5), 1)["event_time"] == 5
    with pytest.raises(EventError, match=r"event 1,234 has no repo, commit, event_time, files"):
        check_event(b'{"insertions": 1, "deletions": 2}', 1234)


def test_first_topic_is_apaches_or_else_the_first_owners() -> None:
    assert split_owner(["redis/redis", "apache/pulsar"]) == "apache"
    assert split_owner(["redis/redis", "etcd-io/etcd"]) == "redis"
    assert split_owner([]) == ""
    assert is_of_owner("apache/pulsar", "apache")
    assert not is_of_owner("apache2/pulsar", "apache")
