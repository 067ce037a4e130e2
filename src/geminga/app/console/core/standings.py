"""How replication and compaction of a topic stand: rows and sentences, of what its statistics say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from geminga.app.console.core.moments import age_text, iso_time


class ReplicationRow(NamedTuple):
    """How a topic is copied to one cluster; names are those of docs/geo-replication.md."""

    cluster: str
    #: ``copying``, ``caught up``, ``stopped`` or ``connecting``.
    state: str
    #: Why nothing is copied; empty: it is, or there is nothing to copy.
    reason: str
    backlog: int
    #: Since the oldest message that is not copied was published, as far as it is known; empty: there is none.
    delay: str
    rate_out: float
    rate_in: float
    expired: int
    #: From where messages of that cluster come in; empty: nothing does now.
    inbound: str


def replication_rows(stats: Mapping[str, Any]) -> list[ReplicationRow]:
    """By cluster; those that stopped first, then by backlog."""
    rows = [_replication(cluster, each) for cluster, each in (stats.get("replication") or {}).items()]
    return sorted(rows, key=lambda row: (row.state != "stopped", -row.backlog, row.cluster))


def _replication(cluster: str, document: Mapping[str, Any]) -> ReplicationRow:
    backlog, reason = int(document.get("replicationBacklog", 0)), str(document.get("disconnectedReason") or "")
    if document.get("connected"):
        state = "copying" if backlog else "caught up"
    else:
        state = "stopped" if reason else "connecting"
    return ReplicationRow(
        cluster,
        state,
        reason,
        backlog,
        _delay(
            int(document.get("replicationDelayInSeconds", 0)), backlog, is_connected=bool(document.get("connected"))
        ),
        float(document.get("msgRateOut", 0)),
        float(document.get("msgRateIn", 0)),
        int(document.get("msgExpiredCount", 0)),
        str(document.get("inboundConnection") or ""),
    )


def _delay(delay_s: int, backlog: int, *, is_connected: bool) -> str:
    """What waits has an age, whether it is told or not."""
    if not backlog:
        return ""
    if delay_s > 0:
        return age_text(delay_s * 1000)
    return "under 1 s" if is_connected else "not told"


class CompactionView(NamedTuple):
    """How a topic's compaction stands."""

    #: ``never``, ``running``, ``done`` or ``failed``.
    state: str
    sentence: str
    #: Up to where it was compacted; empty: it was not, or the broker does not tell.
    horizon: str
    #: Behind that; None: the broker does not tell.
    entries_behind: int | None
    #: Of what was compacted; None: there is none.
    entries: int | None
    size_bytes: int | None
    #: Of messages that the last run left out.
    removed: int
    #: ISO 8601; empty: never since the topic was loaded.
    succeeded: str
    failed: str
    duration: str
    #: In words: from how many bytes behind on it begins by itself.
    threshold: str


_STATES = {"RUNNING": "running", "SUCCESS": "done", "ERROR": "failed"}


def compaction_view(
    status: Mapping[str, Any], stats: Mapping[str, Any], internal: Mapping[str, Any], threshold_bytes: int | None
) -> CompactionView:
    """Of what ``compaction``, ``stats`` and ``internalStats`` answer."""
    told = (internal.get("geminga") or {}).get("compaction") or {}
    last = stats.get("compaction") or {}
    ledger = internal.get("compactedLedger") or {}
    entries = int(ledger.get("entries", -1))
    size = int(ledger.get("size", -1))
    horizon = str(told.get("horizon") or "")
    state = _STATES.get(str(status.get("status")), "done" if horizon or entries >= 0 else "never")
    error = str(status.get("lastError") or told.get("lastError") or "")
    return CompactionView(
        state,
        _sentence(state, error),
        horizon,
        int(told["entriesBehind"]) if "entriesBehind" in told else None,
        entries if entries >= 0 else None,
        size if size >= 0 else None,
        int(last.get("lastCompactionRemovedEventCount", 0)),
        _time(last.get("lastCompactionSucceedTimestamp")),
        _time(last.get("lastCompactionFailedTimestamp")),
        age_text(int(last.get("lastCompactionDurationTimeInMills") or 0)),
        _threshold(threshold_bytes),
    )


def _sentence(state: str, error: str) -> str:
    why = f" {error.rstrip('.')}." if error else ""
    return {
        "never": "This topic was not compacted yet: its readers of compacted messages have the log.",
        "running": f"A compaction is under way.{why}",
        "done": "The last compaction is done.",
        "failed": f"The last compaction failed.{why or ' The broker does not say why.'}",
    }[state]


def _threshold(threshold_bytes: int | None) -> str:
    if not threshold_bytes:
        return "It is compacted only when somebody asks for it: no threshold is set."
    return f"It is compacted by itself when {threshold_bytes:,} bytes are not compacted."


def _time(time_ms: object) -> str:
    return iso_time(time_ms) if isinstance(time_ms, int) and time_ms > 0 else ""
