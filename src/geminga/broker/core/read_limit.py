"""How far a topic may be read, of what its parts say. Pure.

What readers were let see stays seen: a part that wants them further back is too late, and keeps what is behind.
"""

from __future__ import annotations

from collections.abc import Iterable

from geminga.model.position import LATEST, Position


def read_limit(limits: Iterable[Position], readable: Position | None) -> Position:
    """The least of the parts' limits, but none before ``readable``, where readers stop now; LATEST: nothing holds back.

    ``readable``: None while the topic is loaded, before anybody reads.
    """
    least = min(limits, default=LATEST)
    return least if readable is None or least > readable else readable
