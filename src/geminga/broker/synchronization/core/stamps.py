"""When, and in which cluster, something was changed: of two changes of a path the later one holds everywhere. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Stamp(NamedTuple):
    """Ordered by time, then by the cluster's name, as Pulsar's brokers order events."""

    #: Milliseconds since the epoch.
    time_ms: int
    cluster: str

    def __str__(self) -> str:
        return f"{self.time_ms}@{self.cluster}"


def stamp_of(text: str) -> Stamp | None:
    """The inverse of ``str``; None for anything else."""
    time_ms, separator, cluster = text.partition("@")
    if not separator or not cluster or not time_ms.isascii() or not time_ms.isdigit() or len(time_ms) > 19:
        return None
    return Stamp(int(time_ms), cluster)
