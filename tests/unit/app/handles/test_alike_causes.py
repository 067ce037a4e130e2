"""What the doctor says of configuration that clusters keep alike."""

from __future__ import annotations

from typing import Any

import pytest

from geminga.app.handles.core.alike_causes import UNDONE_MS, AlikeFacts, alike_findings, alike_lines
from geminga.app.handles.core.causes import Cause, Severity

NOW_MS = 1_767_000_000_000
EVENT = {"path": "/admin/policies/t/n", "cluster": "east", "changedMs": NOW_MS - 9000, "atMs": NOW_MS - 8000}
WELL: dict[str, Any] = {
    "topic": "persistent://ops/configuration/events",
    "waiting": 0,
    "doubts": "",
    "clusters": {"west": {"isHeard": True, "isTold": True}},
    "lastTold": EVENT,
    "lastFollowed": None,
    "differing": {"count": 0, "areMore": False, "paths": {}},
    "givenUp": [],
    "troubles": {},
}
STATS: dict[str, Any] = {
    "replication": {"west": {"replicationBacklog": 0, "replicationDelayInSeconds": 0, "disconnectedReason": ""}},
    "subscriptions": {"metadata-syncer": {"msgBacklog": 0, "consumers": [{}]}},
}


def facts(*, stats: dict[str, Any] | None = STATS, unserved: str = "", **state: Any) -> AlikeFacts:
    return AlikeFacts(NOW_MS, WELL | state, stats, unserved)


def test_where_all_is_well_nothing_is_found_and_the_last_events_are_told() -> None:
    assert alike_findings(facts()) == []
    assert alike_lines(facts()) == [
        "told last: /admin/policies/t/n, changed in east at 2025-12-29 09:19:51 UTC, told at 2025-12-29 09:19:52 UTC",
        "nothing was followed since this broker leads",
        "west: 0 events behind",
    ]
    away = {"west": {"replicationBacklog": 3, "replicationDelayInSeconds": 40, "disconnectedReason": "no answer"}}
    assert alike_lines(facts(stats=STATS | {"replication": away}))[-1] == "west: 3 events behind, the oldest for 40 s"
    assert alike_lines(facts(stats=None))[-1] == "west: nothing is known of what it lacks"


@pytest.mark.parametrize(
    ("case", "cause", "severity", "sentence"),
    [
        (facts(doubts="it lives in no other cluster"), Cause.ALIKE_TOPIC, Severity.STOPS, "lives in no other cluster."),
        (
            facts(stats=None, unserved="Topic not found"),
            Cause.ALIKE_TOPIC,
            Severity.STOPS,
            "not there: Topic not found.",
        ),
        (
            facts(clusters={"west": {"isHeard": False, "isTold": False}}),
            Cause.ALIKE_UNHEARD,
            Severity.HOLDS,
            "Nothing was ever heard from cluster west",
        ),
        (
            facts(clusters={"west": {"isHeard": True, "isTold": False}}),
            Cause.ALIKE_UNHEARD,
            Severity.WAITS,
            "west is not told yet",
        ),
        (
            facts(troubles={"tell": "nobody serves it"}, waiting=4),
            Cause.ALIKE_STUCK,
            Severity.STOPS,
            "wait to be told (4 paths): nobody serves it.",
        ),
        (
            facts(troubles={"follow": "no answer"}),
            Cause.ALIKE_STUCK,
            Severity.STOPS,
            "wait to be made here: no answer.",
        ),
        (
            facts(stats=STATS | {"subscriptions": {"metadata-syncer": {"msgBacklog": 2, "consumers": []}}}),
            Cause.ALIKE_STUCK,
            Severity.STOPS,
            "2 events wait",
        ),
        (
            facts(differing={"count": 5, "areMore": True, "paths": {f"/p{number}": "why" for number in range(5)}}),
            Cause.ALIKE_DIFFERS,
            Severity.HOLDS,
            "5 or more paths are not as in another cluster, such as /p0: why; /p1: why; /p2: why.",
        ),
        (
            facts(givenUp=[{"atMs": NOW_MS - UNDONE_MS - 1, "what": "old"}, {"atMs": NOW_MS, "what": "x is undone"}]),
            Cause.ALIKE_UNDONE,
            Severity.HOLDS,
            "1 changes or events came to nothing: 2025-12-29 09:20:00 UTC, x is undone.",
        ),
        (
            facts(
                stats=STATS | {"replication": {"west": {"replicationBacklog": 3, "disconnectedReason": "no answer"}}}
            ),
            Cause.REPLICATION,
            Severity.HOLDS,
            "Cluster west is 3 events behind: no answer.",
        ),
    ],
)
def test_what_stands_in_the_way_is_named(case: AlikeFacts, cause: Cause, severity: Severity, sentence: str) -> None:
    (found,) = alike_findings(case)
    assert (found.cause, found.severity) == (cause, severity)
    assert sentence in found.sentence
    assert found.mends


def test_what_came_to_nothing_days_ago_is_no_finding() -> None:
    assert alike_findings(facts(givenUp=[{"atMs": NOW_MS - UNDONE_MS - 1, "what": "old"}])) == []
