"""The bound on what clients do not take, over all connections of a server of HTTP, or of WebSockets."""

from __future__ import annotations

import asyncio
from typing import Protocol


class WrittenTo(Protocol):
    """A connection."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """What it is written to; None: it is gone."""


class UnreadResponses:
    """Answers that clients do not take, of all connections: beyond the limit who is behind for longest is cut off."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        #: In the order in which they fell behind.
        self._behind: dict[WrittenTo, None] = {}

    def fell_behind(self, connection: WrittenTo) -> None:
        """Its transport is over its mark: all that is written at once is in there."""
        self._behind[connection] = None
        sizes = {behind: _unread_bytes(behind) for behind in self._behind}
        total = sum(sizes.values())
        for behind, size_bytes in sizes.items():
            # The newest may be as large as it is: one goes on in any case.
            if total <= self._limit_bytes or behind is connection:
                return
            total -= size_bytes
            if behind.transport is not None:
                behind.transport.abort()

    def keeps_up(self, connection: WrittenTo) -> None:
        """It took most, or is gone."""
        self._behind.pop(connection, None)


def _unread_bytes(connection: WrittenTo) -> int:
    return 0 if connection.transport is None else connection.transport.get_write_buffer_size()
