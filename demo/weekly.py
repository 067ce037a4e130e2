"""Commits per week and repository, computed plainly: what Spark's result is held against. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

#: Tumbling windows of seven days, counted from 1970-01-01 (a Thursday), as Spark's ``window`` counts them.
WEEK_MS = 7 * 24 * 3600 * 1000
_NUMBERS = ("event_time", "files", "insertions", "deletions")


class WindowKey(NamedTuple):
    """A week of a repository."""

    start_ms: int
    #: Empty for events without one: they are a group as any other.
    repo: str


class Sums(NamedTuple):
    """What happened in it."""

    commits: int
    files: int
    insertions: int
    deletions: int


class EventError(ValueError):
    """An event that is no commit."""


def check_event(line: bytes, number: int) -> dict[str, object]:
    """The event of a line; raises EventError with the line's number and what is missing."""
    event = json.loads(line)
    missing = [name for name in _NUMBERS if not isinstance(event.get(name), int)]
    missing[:0] = [name for name in ("repo", "commit") if not isinstance(event.get(name), str)]
    if missing:
        raise EventError(
            f"event {number:,} has no {', '.join(missing)}: the Spark part needs repo and commit (text) and, as whole "
            "numbers, event_time (milliseconds since 1970), files, insertions and deletions"
        )
    return dict(event)


def weekly(lines: Iterable[bytes]) -> dict[WindowKey, Sums]:
    """The sums of every week and repository that has a commit."""
    sums: dict[WindowKey, Sums] = {}
    for line in lines:
        event = json.loads(line)
        time = event["event_time"]
        key = WindowKey(time - time % WEEK_MS, event["repo"] or "")
        before = sums.get(key, Sums(0, 0, 0, 0))
        sums[key] = Sums(
            before.commits + 1,
            before.files + event["files"],
            before.insertions + event["insertions"],
            before.deletions + event["deletions"],
        )
    return sums


def parse_result(value: bytes) -> tuple[WindowKey, Sums]:
    """A message of topic B."""
    row = json.loads(value)
    key = WindowKey(row["window_start_ms"], row["repo"] or "")
    return key, Sums(row["commits"], row["files"], row["insertions"], row["deletions"])


def differences(found: Mapping[WindowKey, Sums], expected: Mapping[WindowKey, Sums]) -> list[str]:
    """Every reason why ``found`` is not ``expected``, as sentences; empty if it is, row by row."""
    missing = sorted(expected.keys() - found.keys())
    unexpected = sorted(found.keys() - expected.keys())
    wrong = sorted(key for key in expected.keys() & found.keys() if found[key] != expected[key])
    reasons = []
    if missing:
        reasons.append(f"{len(missing):,} windows are missing, the first is {missing[0]}")
    if unexpected:
        reasons.append(f"{len(unexpected):,} windows are not expected, the first is {unexpected[0]}")
    if wrong:
        first = wrong[0]
        reasons.append(f"{len(wrong):,} windows differ, the first is {first}: {found[first]}, not {expected[first]}")
    return reasons


def split_owner(repos: Iterable[str]) -> str:
    """The owner whose repositories go to topic A1: ``apache`` if it is there, else the first repository's."""
    owners = [repo.partition("/")[0] for repo in repos]
    return "apache" if "apache" in owners else owners[0] if owners else ""


def is_of_owner(repo: str, owner: str) -> bool:
    """Whether the repository is one of the owner's."""
    return repo.partition("/")[0] == owner
