"""Rows of statistics, the largest first, and how they grew."""

from __future__ import annotations

from geminga.app.handles.core.backlog_rows import BacklogRow, grown, rows_of, table

STATS = {
    "subscriptions": {
        "none": {"msgBacklog": 0},
        "some": {"msgBacklog": 3, "msgDelayed": 1, "backlogSize": 30, "consumers": [{}], "unackedMessages": 2},
        "old": {"msgBacklog": 7, "earliestMsgPublishTimeInBacklog": 1000},
    }
}


def test_subscriptions_without_a_backlog_are_no_rows() -> None:
    assert list(rows_of("t", STATS)) == [
        BacklogRow("t", "some", 3, 1, 30, 0, 1, 2),
        BacklogRow("t", "old", 7, 0, 0, 1000, 0, 0),
    ]


def test_growth_is_of_entries_by_second_and_unknown_at_first() -> None:
    now = list(rows_of("t", STATS))
    assert [(each.row.subscription, each.entries_per_s) for each in grown(None, now, 0)] == [
        ("old", None),
        ("some", None),
    ]
    before = [now[0]._replace(entries=13)]
    assert [each.entries_per_s for each in grown(before, now, 2)] == [3.5, -5.0]


def test_a_table_has_a_line_for_each() -> None:
    lines = table(grown(None, rows_of("t", STATS), 0), 8 * 86_400_000 + 1000).splitlines()
    assert lines[1].split() == ["7", "-", "0", "0", "8d", "0", "0", "old", "t"]
    assert lines[2].split() == ["3", "-", "1", "30", "-", "1", "2", "some", "t"]
