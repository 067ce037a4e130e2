"""A page of metrics in Prometheus' text format. Pure.

One sample a line, ``name{label="value"} number``, under a line ``# TYPE`` for each name, and ``# HELP`` for our own.
Whoever counts is a *source*: it is asked when somebody scrapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite, isnan
from typing import Final, TypeAlias

from geminga.model.histogram import Quantiles

#: Content type of the format.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: Metric -> value, of what a part of the process counts.
Source: TypeAlias = Callable[[], Mapping[str, float | Quantiles]]
Labels: TypeAlias = tuple[tuple[str, str], ...]

#: Endings of names of counters: Prometheus', and one of Pulsar's.
_COUNTER_ENDINGS: Final = ("_total", "_total_count")
#: Counters whose names do not end so, as BookKeeper has them.
COUNTERS: Final = frozenset(
    (
        "auditor_AUDIT_BOOKIES_count",
        "auditor_CHECK_ALL_LEDGERS_count",
        "bookie_ADD_ENTRY_count",
        "bookie_DELETED_LEDGER_COUNT",
        "bookie_DELETED_LEDGER_TOTAL",
        "bookie_MAJOR_COMPACTION_COUNT",
        "bookie_MAJOR_COMPACTION_TOTAL",
        "bookie_MINOR_COMPACTION_COUNT",
        "bookie_MINOR_COMPACTION_TOTAL",
        "bookie_READ_BYTES",
        "bookie_READ_ENTRY_count",
        "bookie_RECLAIMED_COMPACTION_SPACE_BYTES",
        "bookie_RECLAIMED_DELETION_SPACE_BYTES",
        "bookie_WRITE_BYTES",
        "bookie_compacted_bytes",
        "bookie_damaged_chunks",
        "bookie_deleted_ledger_count",
        "bookie_disk_full_count",
        "bookie_flush_count",
        "bookie_flushed_bytes",
        "bookie_journal_JOURNAL_WRITE_BYTES",
        "bookie_read_cache_hits",
        "bookie_read_cache_misses",
        "bookie_removed_entry_logs",
        "bookie_write_cache_hits",
        "bookie_write_cache_misses",
        "pulsar_compaction_failed_count",
        "pulsar_compaction_removed_event_count",
        "pulsar_compaction_succeed_count",
        "pulsar_ml_cache_evictions",
        "pulsar_proxy_binary_bytes",
        "pulsar_proxy_binary_ops",
        "pulsar_proxy_get_schema_requests",
        "pulsar_proxy_get_topics_of_namespace_requests",
        "pulsar_proxy_lookup_requests",
        "pulsar_proxy_new_connections",
        "pulsar_proxy_partitions_metadata_requests",
        "pulsar_proxy_rejected_connections",
        "pulsar_proxy_rejected_get_schema_requests",
        "pulsar_proxy_rejected_get_topics_of_namespace_requests",
        "pulsar_proxy_rejected_lookup_requests",
        "pulsar_proxy_rejected_partitions_metadata_requests",
        "pulsar_txn_aborted_count",
        "pulsar_txn_append_log_count",
        "pulsar_txn_committed_count",
        "pulsar_txn_created_count",
        "pulsar_txn_timeout_count",
        "replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER",
        "replication_worker_NUM_ENTRIES_READ",
        "replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION",
        "replication_worker_NUM_ENTRIES_WRITTEN",
        "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED",
        "replication_worker_damaged_copies",
        "replication_worker_fragments_replicated",
        "replication_worker_ledgers_recovered",
    )
)


class Page:
    """Made for one answer. Lines are grouped by metric, as the format wants them."""

    __slots__ = ("_labels", "_lines", "_shown", "_summaries", "series")

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        #: Names that are summaries.
        self._summaries: set[str] = set()
        #: Added so far.
        self.series = 0
        #: Of the last sample, and as they are written: most have those of the one before.
        self._labels: Labels = ()
        self._shown = ""

    def add(self, name: str, labels: Labels, value: float) -> None:
        """One sample."""
        self.series += 1
        if labels is not self._labels:
            self._labels, self._shown = labels, _shown(labels)
        self._lines.setdefault(name, []).append(f"{name}{self._shown} {_number(value)}")

    def add_all(self, values: Mapping[str, float], labels: Labels) -> None:
        """Samples of the same labels."""
        for name, value in values.items():
            self.add(name, labels, value)

    def add_summary(self, name: str, labels: Labels, quantiles: Quantiles) -> None:
        """Quantiles, sum and count."""
        self._summaries.add(name)
        self.series += len(quantiles.values) + 2
        samples = self._lines.setdefault(name, [])
        for quantile, value in quantiles.values:
            samples.append(_sample(name, (*labels, ("quantile", str(quantile))), value))
        samples.append(_sample(f"{name}_sum", labels, quantiles.total))
        samples.append(_sample(f"{name}_count", labels, quantiles.seen))

    def add_source(self, source: Source, labels: Labels) -> None:
        """What ``source`` says now."""
        self.add_said(source(), labels)

    def add_said(self, values: Mapping[str, float | Quantiles], labels: Labels) -> None:
        """What a source said."""
        for name, found in values.items():
            if isinstance(found, Quantiles):
                # BookKeeper's say of what they are: of what succeeded, for nothing else is timed. Pulsar's do not.
                own = labels if name.startswith("pulsar_") else (*labels, ("success", "true"))
                self.add_summary(name, own, found)
            else:
                self.add(name, labels, found)

    def text(self) -> str:
        """The page. Buckets (``x_bucket``) are added before sum and count of theirs, and at once with them."""
        from geminga.model.metric_help import HELP  # not at a start, for nobody has asked

        lines: list[str] = []
        for name, samples in self._lines.items():
            base, _, part = name.rpartition("_")
            if part in ("bucket", "sum", "count") and f"{base}_bucket" in self._lines:
                # One metric in three names, of which the buckets come first.
                if part == "bucket":
                    lines.append(f"# TYPE {base} histogram")
                lines.extend(samples)
                continue
            is_counter = name in COUNTERS or name.endswith(_COUNTER_ENDINGS)
            kind = "summary" if name in self._summaries else "counter" if is_counter else "gauge"
            if name in HELP:
                lines.append(f"# HELP {name} {HELP[name]}")
            lines.append(f"# TYPE {name} {kind}")
            lines.extend(samples)
        return "\n".join(lines) + "\n"


def _sample(name: str, labels: Labels, value: float) -> str:
    return f"{name}{_shown(labels)} {_number(value)}"


def _shown(labels: Labels) -> str:
    text = ",".join(f'{key}="{_escaped(item)}"' for key, item in labels)
    return f"{{{text}}}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if not isfinite(value):
        return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
