"""What a batch did, from the progress that Spark reports: figures for people, programs and Prometheus."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

#: Batches with rows in which the watermark stands still before that is said.
STILL_BATCHES: Final = 20
#: The year 10000, which ISO times do not have.
_ISO_MS_END: Final = 253_402_300_800_000
_METRIC: Final = "geminga_pipeline"


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """One batch. ``lag_entries`` and ``lag_ms``: what the sources had left unread when it began; -1: not known."""

    batch: int
    rows: int
    rows_out: int
    rows_per_second: float
    duration_ms: int
    lag_entries: int
    lag_ms: int
    #: ISO time; empty: the pipeline has none.
    watermark: str
    state_rows: int
    #: By Spark's watermark: rows that are in no window.
    dropped_rows: int
    #: Left out by ``deduplicate``.
    duplicate_rows: int
    time: str


def figures_of(progress: Mapping[str, Any]) -> BatchFigures:
    """From Spark's JSON of a progress."""
    entries, lag_ms = -1, -1
    for source in progress.get("sources") or []:
        lag = _lag_of(source.get("latestOffset"))
        if lag is not None:
            entries = max(entries, 0) + lag[0]
            lag_ms = max(lag_ms, lag[1])
    operators = progress.get("stateOperators") or []
    duration_ms = int((progress.get("durationMs") or {}).get("triggerExecution", progress.get("batchDuration", 0)))
    rows = int(progress.get("numInputRows") or 0)
    return BatchFigures(
        batch=int(progress["batchId"]),
        rows=rows,
        rows_out=int((progress.get("sink") or {}).get("numOutputRows") or 0),
        rows_per_second=round(rows * 1000 / duration_ms, 1) if duration_ms else 0.0,
        duration_ms=duration_ms,
        lag_entries=entries,
        lag_ms=lag_ms,
        watermark=str((progress.get("eventTime") or {}).get("watermark", "")),
        state_rows=sum(int(operator.get("numRowsTotal", 0)) for operator in operators),
        dropped_rows=sum(int(operator.get("numRowsDroppedByWatermark", 0)) for operator in operators),
        duplicate_rows=sum(
            int((operator.get("customMetrics") or {}).get("numDroppedDuplicateRows", 0)) for operator in operators
        ),
        time=str(progress.get("timestamp", "")),
    )


def _lag_of(latest: object) -> tuple[int, int] | None:
    if isinstance(latest, str):
        try:
            latest = json.loads(latest)
        except ValueError:
            return None
    if not isinstance(latest, Mapping) or not isinstance(latest.get("lag"), Mapping):
        return None
    lag = latest["lag"]
    return int(lag.get("entries", 0)), int(lag.get("ms", 0))


@dataclass(slots=True)
class Totals:
    """What a run did so far."""

    batches: int = 0
    #: Rows that were read.
    rows: int = 0
    #: Rows that the sink stored.
    rows_out: int = 0
    #: How long batches took, together.
    busy_ms: int = 0
    #: Rows that came behind the watermark.
    dropped_rows: int = 0
    duplicate_rows: int = 0
    #: The newest batch; None before the first.
    last: BatchFigures | None = None
    #: Batches with rows since the watermark moved.
    still_batches: int = 0

    def add(self, batch: BatchFigures) -> str:
        """Count a batch; the text is what somebody should be told, once."""
        self.batches += 1
        self.rows += batch.rows
        self.rows_out += max(0, batch.rows_out)
        self.busy_ms += batch.duration_ms
        self.dropped_rows += batch.dropped_rows
        self.duplicate_rows += batch.duplicate_rows
        stands = bool(batch.watermark and self.last and self.last.watermark == batch.watermark and batch.rows)
        self.still_batches = self.still_batches + 1 if stands else 0
        self.last = batch
        if self.still_batches == STILL_BATCHES:
            return (
                f"the watermark has stood at {batch.watermark} for {STILL_BATCHES} batches: no window ends. With "
                "watermark.of: each, a source without new events holds all of them"
            )
        return ""


def time_text(milliseconds: int) -> str:
    """A watermark as an ISO time; one that has no year there as it is."""
    if not 0 <= milliseconds < _ISO_MS_END:
        return f"{milliseconds} ms"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def line_of(batch: BatchFigures, totals: Totals) -> str:
    """For people."""
    lag = "lag not known" if batch.lag_entries < 0 else f"lag {batch.lag_entries:,} entries"
    if batch.lag_ms > 0:
        lag += f", {batch.lag_ms / 1000:,.1f} s"
    watermark = f", watermark {batch.watermark[:19]}" if batch.watermark else ""
    return (
        f"batch {batch.batch}: {batch.rows:,} rows, {batch.rows_per_second:,.0f} rows/s, {lag}{watermark}; "
        f"{totals.rows:,} rows in all"
    )


def json_of(batch: BatchFigures) -> str:
    """For programs: one line."""
    return json.dumps(asdict(batch))


def exposition(name: str, totals: Totals, *, is_active: bool) -> str:
    """Prometheus text; ``name`` is the pipeline's (no character of it needs escaping)."""
    last = totals.last
    rows: list[tuple[str, str, str, float]] = [
        ("up", "gauge", "Whether the query runs.", int(is_active)),
        ("batches_total", "counter", "Batches of this run.", totals.batches),
        ("rows_total", "counter", "Rows read in this run.", totals.rows),
        ("rows_written_total", "counter", "Rows handed to the sink, as far as Spark tells.", totals.rows_out),
        ("busy_milliseconds_total", "counter", "Time within batches.", totals.busy_ms),
        ("rows_dropped_total", "counter", "Rows dropped behind the watermark.", totals.dropped_rows),
        ("rows_duplicate_total", "counter", "Rows left out as duplicates.", totals.duplicate_rows),
    ]
    if last is not None:
        rows += [
            ("last_batch", "gauge", "Number of the last batch.", last.batch),
            ("last_batch_rows", "gauge", "Rows of the last batch.", last.rows),
            ("last_batch_milliseconds", "gauge", "Duration of the last batch.", last.duration_ms),
            ("state_rows", "gauge", "Rows that Spark keeps for open windows.", last.state_rows),
        ]
        if last.lag_entries >= 0:
            rows.append(("lag_entries", "gauge", "Entries that the last batch left unread.", last.lag_entries))
            rows.append(("lag_milliseconds", "gauge", "For how long the oldest of them is known.", last.lag_ms))
    return "".join(
        f"# HELP {_METRIC}_{metric} {text}\n# TYPE {_METRIC}_{metric} {kind}\n"
        f'{_METRIC}_{metric}{{pipeline="{name}"}} {value}\n'
        for metric, kind, text, value in rows
    )
