"""Frames of the bookie protocol: a size (int32, big endian), and that many bytes. The same in every version.

The decoder never raises: after the first impossible size its ``error`` is set, the whole frames before it
are given, and nothing ever after (a bookie closes such a connection). Feeding byte by byte gives the same frames as
feeding all at once. A frame is told by where it lies, so that an entry is copied once on its way out of a read, and one
that came in several reads once more, to put it together.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from geminga.model.errors import ProtocolError
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX

_SIZE: Final = Struct(">i")
#: Of the size in front of a frame.
SIZE_BYTES: Final = 4
#: Smaller pieces of a frame are gathered in one, so that their number is bounded by the frame's size.
_PIECE_BYTES_MIN: Final = 16 * 1024

#: A whole frame: ``(data, start, end)``, without its size.
FrameSpan: TypeAlias = tuple[bytes, int, int]


class BookieFrameDecoder:
    """Cuts a stream into frames; one per connection and direction."""

    __slots__ = ("_frame_bytes_max", "_needed_bytes", "_tail", "buffered_bytes", "error")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        """``frame_bytes_max``: of one frame with the four bytes of its size, as Apache counts it."""
        self._frame_bytes_max = frame_bytes_max
        #: What was fed and is no whole frame, in pieces: shorter than one frame.
        self._tail: list[bytes | bytearray | memoryview] = []
        #: Bytes of an incomplete frame held now.
        self.buffered_bytes = 0
        #: Length that the tail must reach before it is looked at again: of the frame, or of a size.
        self._needed_bytes = SIZE_BYTES
        #: Why the stream can not be read on; None while it can.
        self.error: ProtocolError | None = None

    @property
    def incomplete_bytes(self) -> int:
        """Size of the frame of which a part is held, with its own size as far as that is known; 0: of none."""
        return self._needed_bytes if self.buffered_bytes else 0

    def feed(self, data: bytes) -> list[FrameSpan]:
        """The frames that are whole with ``data``, in order."""
        frames: list[FrameSpan] = []
        if self.error is not None:
            return frames
        position = 0
        if self.buffered_bytes:
            missing = self._needed_bytes - self.buffered_bytes
            if len(data) < missing:
                self._keep(data)
                return frames
            tail, self._tail = self._tail, []
            self.buffered_bytes = 0
            if self._needed_bytes == SIZE_BYTES:
                data = b"".join((*tail, data))
            else:
                frame = b"".join((*tail, memoryview(data)[:missing]))
                frames.append((frame, SIZE_BYTES, len(frame)))
                position = missing
        self._cut(data, position, frames)
        return frames

    def drop(self) -> None:
        """Forget what is held: nothing more comes."""
        self._tail.clear()
        self.buffered_bytes = 0

    def _cut(self, data: bytes, position: int, frames: list[FrameSpan]) -> None:
        """The frames from ``position`` on; what is left is kept."""
        size = len(data)
        unpack = _SIZE.unpack_from
        room = self._frame_bytes_max - SIZE_BYTES
        needed = SIZE_BYTES
        while size - position >= SIZE_BYTES:
            (body,) = unpack(data, position)
            if not 0 <= body <= room:
                self.error = ProtocolError(f"a frame of {body} bytes: 0 to {room} were expected")
                return
            end = position + SIZE_BYTES + body
            if end > size:
                needed = end - position
                break
            frames.append((data, position + SIZE_BYTES, end))
            position = end
        self._needed_bytes = needed
        if position < size:
            # A view holds all of ``data``: a short one is copied, lest more be held than is counted.
            is_most = 2 * position <= size
            self._keep(memoryview(data)[position:] if is_most else data[position:])

    def _keep(self, piece: bytes | memoryview) -> None:
        self.buffered_bytes += len(piece)
        tail = self._tail
        if len(piece) >= _PIECE_BYTES_MIN:
            tail.append(piece)
        elif tail and isinstance(tail[-1], bytearray):
            tail[-1] += piece
        else:
            tail.append(bytearray(piece))
