"""Who holds what: rows from statistics of topics, and what changed between two looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class BacklogRow(NamedTuple):
    """One subscription of a topic, or of a partition."""

    topic: str
    subscription: str
    #: Entries that are not acknowledged, those that are delayed, and bytes.
    entries: int
    delayed: int
    size_bytes: int
    #: Publish time of the oldest, milliseconds since the epoch; 0: not known, or there is none.
    oldest_ms: int
    consumers: int
    #: Messages that they have and did not acknowledge.
    unacked: int

    @property
    def place(self) -> tuple[str, str]:
        """What it is known by."""
        return self.topic, self.subscription


class Growth(NamedTuple):
    """A row, and how it changed; None: it was not there before."""

    row: BacklogRow
    entries_per_s: float | None


def rows_of(topic: str, stats: Mapping[str, Any]) -> Iterator[BacklogRow]:
    """Its subscriptions that have a backlog."""
    for name, each in stats.get("subscriptions", {}).items():
        if each.get("msgBacklog", 0) > 0:
            yield BacklogRow(
                topic,
                name,
                each["msgBacklog"],
                each.get("msgDelayed", 0),
                max(0, each.get("backlogSize", 0)),
                max(0, each.get("earliestMsgPublishTimeInBacklog", 0)),
                len(each.get("consumers", ())),
                each.get("unackedMessages", 0),
            )


def grown(before: Iterable[BacklogRow] | None, now: Iterable[BacklogRow], seconds: float) -> list[Growth]:
    """The largest first. ``before``: None: it is the first look; who is not in it had no backlog then."""
    known = {row.place: row.entries for row in before} if before is not None else None
    found = [
        Growth(row, None if known is None or seconds <= 0 else (row.entries - known.get(row.place, 0)) / seconds)
        for row in now
    ]
    return sorted(found, key=lambda each: (-each.row.entries, each.row.place))


def table(found: Iterable[Growth], now_ms: int) -> str:
    """For people."""
    lines = [("ENTRIES", "GROWTH/S", "DELAYED", "BYTES", "OLDEST", "CONSUMERS", "UNACKED", "SUBSCRIPTION", "TOPIC")]
    lines += [
        (
            str(row.entries),
            "-" if growth is None else f"{growth:+.1f}",
            str(row.delayed),
            str(row.size_bytes),
            _age(now_ms - row.oldest_ms) if row.oldest_ms else "-",
            str(row.consumers),
            str(row.unacked),
            row.subscription,
            row.topic,
        )
        for row, growth in found
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            [cell.rjust(width) for cell, width in zip(line[:7], widths[:7], strict=True)]
            + [line[7].ljust(widths[7]), line[8]]
        )
        for line in lines
    )


def _age(milliseconds: int) -> str:
    seconds = max(0, milliseconds) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
