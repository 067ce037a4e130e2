"""How replication and compaction stand."""

from __future__ import annotations

import pytest

from geminga.app.console.core.standings import ReplicationRow, compaction_view, replication_rows


def test_clusters_that_stopped_come_first_with_their_reason() -> None:
    stats = {
        "replication": {
            "a": {"connected": True, "replicationBacklog": 0, "inboundConnection": "/1.2.3.4:5"},
            "b": {"connected": True, "replicationBacklog": 7, "replicationDelayInSeconds": 61, "msgRateOut": 2.5},
            "c": {"connected": False, "replicationBacklog": 3, "disconnectedReason": "nobody listens there"},
            "d": {"connected": False, "replicationBacklog": 0},
            "e": {"connected": True, "replicationBacklog": 1, "replicationDelayInSeconds": 0},
            "f": {"connected": False, "replicationBacklog": 2, "disconnectedReason": "away"}
            | {"replicationDelayInSeconds": 5},
        }
    }
    assert replication_rows(stats) == [
        ReplicationRow("c", "stopped", "nobody listens there", 3, "not told", 0, 0, 0, ""),
        ReplicationRow("f", "stopped", "away", 2, "5 s", 0, 0, 0, ""),
        ReplicationRow("b", "copying", "", 7, "1 min 1 s", 2.5, 0, 0, ""),
        ReplicationRow("e", "copying", "", 1, "under 1 s", 0, 0, 0, ""),
        ReplicationRow("a", "caught up", "", 0, "", 0, 0, 0, "/1.2.3.4:5"),
        ReplicationRow("d", "connecting", "", 0, "", 0, 0, 0, ""),
    ]
    assert replication_rows({}) == []


@pytest.mark.parametrize(
    ("status", "told", "state", "words"),
    [
        ({"status": "NOT_RUN"}, {}, "never", "was not compacted yet"),
        ({"status": "NOT_RUN"}, {"horizon": "3:4"}, "done", "is done"),
        ({"status": "RUNNING", "lastError": "a write."}, {}, "running", "under way. a write."),
        ({"status": "ERROR", "lastError": "no bookie"}, {}, "failed", "failed. no bookie."),
        ({"status": "ERROR"}, {}, "failed", "does not say why"),
    ],
)
def test_last_run_is_told(status: dict[str, str], told: dict[str, str], state: str, words: str) -> None:
    found = compaction_view(status, {}, {"geminga": {"compaction": told}}, None)
    assert found.state == state
    assert words in found.sentence


def test_what_is_compacted_and_what_is_not_is_told() -> None:
    found = compaction_view(
        {"status": "SUCCESS"},
        {
            "compaction": {
                "lastCompactionRemovedEventCount": 4,
                "lastCompactionSucceedTimestamp": 1000,
                "lastCompactionFailedTimestamp": 0,
                "lastCompactionDurationTimeInMills": 1500,
            }
        },
        {
            "geminga": {"compaction": {"horizon": "3:4", "entriesBehind": 9}},
            "compactedLedger": {"entries": 2, "size": 0},
        },
        1 << 20,
    )
    assert found[2:] == (
        "3:4",
        9,
        2,
        0,
        4,
        "1970-01-01T00:00:01Z",
        "",
        "1 s",
        "It is compacted by itself when 1,048,576 bytes are not compacted.",
    )
    apaches = compaction_view({"status": "NOT_RUN"}, {}, {"compactedLedger": {"entries": -1, "size": -1}}, 0)
    assert (apaches.entries_behind, apaches.entries, apaches.size_bytes) == (None, None, None)
    assert "only when somebody asks" in apaches.threshold
