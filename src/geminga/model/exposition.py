"""A page of metrics in Prometheus' text format. Pure.

One sample a line, ``name{label="value"} number``, under a line ``# TYPE`` for each name. Whoever counts is a *source*:
it is asked when somebody scrapes.
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


class Page:
    """Made for one answer. Lines are grouped by metric, as the format wants them."""

    __slots__ = ("_lines", "_summaries")

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        #: Names that are summaries.
        self._summaries: set[str] = set()

    def add(self, name: str, labels: Labels, value: float) -> None:
        """One sample."""
        self._lines.setdefault(name, []).append(_sample(name, labels, value))

    def add_all(self, values: Mapping[str, float], labels: Labels) -> None:
        """Samples of the same labels."""
        for name, value in values.items():
            self.add(name, labels, value)

    def add_summary(self, name: str, labels: Labels, quantiles: Quantiles) -> None:
        """Quantiles, sum and count."""
        self._summaries.add(name)
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
                # Of what succeeded: nothing else is timed.
                self.add_summary(name, (*labels, ("success", "true")), found)
            else:
                self.add(name, labels, found)

    def text(self) -> str:
        """The page. Buckets (``x_bucket``) are added before sum and count of theirs, and at once with them."""
        lines: list[str] = []
        for name, samples in self._lines.items():
            base, _, part = name.rpartition("_")
            if part in ("bucket", "sum", "count") and f"{base}_bucket" in self._lines:
                # One metric in three names, of which the buckets come first.
                if part == "bucket":
                    lines.append(f"# TYPE {base} histogram")
                lines.extend(samples)
                continue
            is_counter = name.endswith(("_total", "_total_count"))
            kind = "summary" if name in self._summaries else "counter" if is_counter else "gauge"
            lines.append(f"# TYPE {name} {kind}")
            lines.extend(samples)
        return "\n".join(lines) + "\n"


def _sample(name: str, labels: Labels, value: float) -> str:
    text = ",".join(f'{key}="{_escaped(item)}"' for key, item in labels)
    return f"{name}{{{text}}} {_number(value)}" if labels else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if not isfinite(value):
        return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
