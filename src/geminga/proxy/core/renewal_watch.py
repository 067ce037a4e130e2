"""Finds AUTH_RESPONSE in the bytes that a client sends to its broker. Pure.

The proxy passes those bytes on unread, but for connections whose credentials expire: there it must know of new ones,
or it would have to end the connection. Only sizes of frames are followed, and no frame but the one looked for is kept;
of that one at most :data:`RESPONSE_BYTES_MAX`.
"""

from __future__ import annotations

from typing import Final

from geminga.wire._generated import pulsar_api_pb2 as pb

#: Bytes of a command that is looked at: a token is some hundred, what an issuer gives some thousand.
RESPONSE_BYTES_MAX: Final = 64 * 1024
_HEAD_BYTES: Final = 8
#: How BaseCommand begins: field 1, its type.
_PREFIX: Final = pb.BaseCommand(type=pb.BaseCommand.AUTH_RESPONSE).SerializePartialToString()


class RenewalWatch:
    """Of one connection; see the module."""

    __slots__ = ("_head", "_kept", "_left", "_wanted")

    def __init__(self) -> None:
        #: Sizes of a frame, and how its command begins, as far as they have come.
        self._head = bytearray()
        #: Bytes of the frame that are passed over.
        self._left = 0
        #: A response that has begun, and how long it will be.
        self._kept: bytearray | None = None
        self._wanted = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The commands AUTH_RESPONSE that are whole with ``data``."""
        found: list[bytes] = []
        position, size = 0, len(data)
        head_bytes = _HEAD_BYTES + len(_PREFIX)
        while position < size:
            if self._left:
                step = min(self._left, size - position)
                if self._kept is not None:
                    self._kept += data[position : position + min(step, self._wanted - len(self._kept))]
                    if len(self._kept) == self._wanted:
                        found.append(bytes(self._kept))
                        self._kept = None
                self._left -= step
                position += step
                continue
            step = min(head_bytes - len(self._head), size - position)
            self._head += data[position : position + step]
            position += step
            position -= self._read_head()
        return found

    def _read_head(self) -> int:
        """Look at what has come of sizes and beginning; how many bytes of that are of the next frame."""
        head = self._head
        if len(head) < _HEAD_BYTES:
            return 0
        total, command_bytes = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
        frame_bytes = total + 4
        if len(head) < min(_HEAD_BYTES + len(_PREFIX), frame_bytes):
            return 0
        beyond = max(0, len(head) - frame_bytes) if frame_bytes >= _HEAD_BYTES else 0
        self._left = max(0, frame_bytes - len(head))
        if head[_HEAD_BYTES:] == _PREFIX and len(_PREFIX) <= command_bytes <= min(total - 4, RESPONSE_BYTES_MAX):
            self._kept, self._wanted = bytearray(_PREFIX), command_bytes
        head.clear()
        return beyond
