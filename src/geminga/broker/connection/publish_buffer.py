"""The bound on publishes held in memory until they are answered, over all connections of a broker."""

from __future__ import annotations

from typing import Protocol


class Publishing(Protocol):
    """Who publishes."""

    def publish_buffer_has_room(self) -> None:
        """It may go on."""


class PublishBuffer:
    """Connections that publish above the bound pause until half of it is free again.

    They count by themselves what they bring and what is answered, twice a batch, and call only what follows from it.
    """

    __slots__ = ("bytes_max", "held", "size_bytes")

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max``: ``maxMessagePublishBufferSizeInMB`` in bytes."""
        self.bytes_max = bytes_max
        #: Bytes not answered yet.
        self.size_bytes = 0
        #: Who pauses.
        self.held: dict[Publishing, None] = {}

    def resize(self, bytes_max: int) -> None:
        """Another bound from now on; who pauses goes on if half of it is free."""
        self.bytes_max = bytes_max
        if self.held and self.size_bytes <= bytes_max // 2:
            self.free()

    def hold(self, connection: Publishing) -> None:
        """What it brought is beyond the bound: it pauses, and is told when to go on."""
        self.held[connection] = None

    def free(self) -> None:
        """Half of the bound is free: all go on."""
        held, self.held = self.held, {}
        for connection in held:
            connection.publish_buffer_has_room()

    def forget(self, connection: Publishing) -> None:
        """The connection is closed."""
        self.held.pop(connection, None)
