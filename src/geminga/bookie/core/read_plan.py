"""Which preads serve a set of chunks: neighbours are read together. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from geminga.bookie.core.index import log_of


class PlannedRead(NamedTuple):
    """One pread of ``size_bytes`` at ``location``, and the chunks in it as (location, size)."""

    location: int
    size_bytes: int
    chunks: list[tuple[int, int]]


def plan_reads(chunks: Iterable[tuple[int, int]], merge_bytes_max: int) -> list[PlannedRead]:
    """Reads for (location, size) pairs: those that touch share one up to ``merge_bytes_max``."""
    reads: list[PlannedRead] = []
    for location, size in sorted(set(chunks)):
        if reads:
            last = reads[-1]
            touches = last.location + last.size_bytes == location and log_of(last.location) == log_of(location)
            if touches and last.size_bytes + size <= merge_bytes_max:
                last.chunks.append((location, size))
                reads[-1] = PlannedRead(last.location, last.size_bytes + size, last.chunks)
                continue
        reads.append(PlannedRead(location, size, [(location, size)]))
    return reads
