"""Frames of the bookie protocol: a size (int32, big endian), and that many bytes. The same in every version.

The decoder never raises: after the first impossible size :attr:`FrameDecoder.error` is set, the whole frames before it
are given, and nothing ever after (a bookie closes such a connection). Feeding byte by byte gives the same frames as
feeding all at once. A frame is told by where it lies, so that an entry is copied once on its way out of a read.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from geminga.model.errors import ProtocolError
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX

_SIZE: Final = Struct(">i")
#: Of the size in front of a frame.
SIZE_BYTES: Final = 4


class Frames(NamedTuple):
    """Whole frames: ``data[start:end]`` for each span, without their sizes, in order."""

    data: bytes
    spans: list[tuple[int, int]]


class FrameDecoder:
    """Cuts a stream into frames; one per connection and direction."""

    __slots__ = ("_frame_bytes_max", "_needed_bytes", "_tail", "error")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        """``frame_bytes_max``: of one frame with the four bytes of its size, as Apache counts it."""
        self._frame_bytes_max = frame_bytes_max
        #: What was fed and is no whole frame: shorter than one frame.
        self._tail = bytearray()
        #: Length that the tail must reach before it is looked at again.
        self._needed_bytes = SIZE_BYTES
        #: Why the stream can not be read on; None while it can.
        self.error: ProtocolError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes of an incomplete frame held now."""
        return len(self._tail)

    def feed(self, data: bytes) -> Frames:
        """The frames that are whole with ``data``."""
        spans: list[tuple[int, int]] = []
        if self.error is not None:
            return Frames(b"", spans)
        tail = self._tail
        if tail:
            tail += data
            if len(tail) < self._needed_bytes:
                return Frames(b"", spans)
            data = bytes(tail)
            tail.clear()
        size = len(data)
        unpack = _SIZE.unpack_from
        room = self._frame_bytes_max - SIZE_BYTES
        position = 0
        needed = SIZE_BYTES
        while size - position >= SIZE_BYTES:
            (body,) = unpack(data, position)
            if not 0 <= body <= room:
                self.error = ProtocolError(f"a frame of {body} bytes: 0 to {room} were expected")
                return Frames(data, spans)
            end = position + SIZE_BYTES + body
            if end > size:
                needed = end - position
                break
            spans.append((position + SIZE_BYTES, end))
            position = end
        if position < size:
            tail += memoryview(data)[position:]
        self._needed_bytes = needed
        return Frames(data, spans)
