"""The bound on publishes held in memory until they are answered, over all connections of a broker."""

from __future__ import annotations

from typing import Protocol


class Publishing(Protocol):
    """Who publishes."""

    def publish_buffer_has_room(self) -> None:
        """It may go on."""


class PublishBuffer:
    """Counts bytes; connections that publish above the bound pause until half of it is free again."""

    __slots__ = ("_bytes_max", "_paused", "size_bytes")

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max``: ``maxMessagePublishBufferSizeInMB`` in bytes."""
        self._bytes_max = bytes_max
        #: Bytes not answered yet.
        self.size_bytes = 0
        self._paused: dict[Publishing, None] = {}

    def add(self, size_bytes: int, connection: Publishing) -> bool:
        """Count bytes; True if the connection must pause (it is told when to go on)."""
        self.size_bytes += size_bytes
        if self.size_bytes <= self._bytes_max:
            return False
        self._paused[connection] = None
        return True

    def remove(self, size_bytes: int) -> None:
        """Bytes were answered."""
        self.size_bytes -= size_bytes
        if self._paused and self.size_bytes <= self._bytes_max // 2:
            paused, self._paused = self._paused, {}
            for connection in paused:
                connection.publish_buffer_has_room()

    def forget(self, connection: Publishing) -> None:
        """The connection is closed."""
        self._paused.pop(connection, None)
