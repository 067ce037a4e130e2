"""How many messages a ``batch_receive`` takes: those that fit."""

from __future__ import annotations

from collections.abc import Iterable


def fitting(sizes: Iterable[int], room: int, *, has_some: bool) -> int:
    """How many of the messages of these sizes fit into ``room`` bytes, in order; one at least unless there are some."""
    count = 0
    for size in sizes:
        room -= size
        if room < 0:
            break
        count += 1
    return count if count or has_some else 1
