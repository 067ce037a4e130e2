"""Framing: bytes in, frames out.

A frame, all integers big endian:

====== ==================== =====================================================================
offset size                 what
====== ==================== =====================================================================
0      4                    total size: everything behind these four bytes
4      4                    command size
8      command size         ``BaseCommand``
..     rest, may be empty   of SEND and MESSAGE: headers and payload (see :mod:`.metadata`)
====== ==================== =====================================================================

The decoder never raises: after the first impossible size it sets :attr:`FrameDecoder.error`, gives the frames
that came whole before it, and nothing ever after. Feeding byte by byte gives the same frames as feeding whole, and
so does taking a few at a time: what a call has no room for waits as bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from geminga.model.errors import ProtocolError
from geminga.model.limits import FRAME_PADDING_BYTES

#: A frame as decoded: the command's bytes, and the bytes behind the command. Who borrows (``FrameBuffer.lend``) gets a
#: memoryview as the second.
Frame = tuple[bytes, bytes]

_HEAD: Final = Struct(">II")
_HEAD_BYTES: Final = 8
_SIZE_BYTES: Final = 4
#: More than any read can hold.
_FRAMES_UNLIMITED: Final = 1 << 62


class ImpossibleFrameError(ProtocolError):
    """The sizes of a frame can not be; ``head`` are its first eight bytes."""

    def __init__(self, text: str, head: bytes = b"") -> None:
        super().__init__(text)
        self.head = head


class FrameDecoder:
    """Cuts a byte stream into frames; one per connection and direction."""

    __slots__ = ("_frame_bytes_max", "_needed_bytes", "_tail", "error", "has_more")

    def __init__(self, message_bytes_max: int) -> None:
        """``message_bytes_max``: largest message; a frame may hold ``FRAME_PADDING_BYTES`` more, as in Pulsar."""
        self._frame_bytes_max = message_bytes_max + FRAME_PADDING_BYTES
        #: What was fed and not given: at most one frame and one read long, if nothing is fed while there is more.
        self._tail = bytearray()
        #: Length the tail must reach before looking at it again.
        self._needed_bytes = _HEAD_BYTES
        #: The last call stopped at its limit with bytes left: whole frames may be among them.
        self.has_more = False
        #: Why the stream can not be read on; None while it can.
        self.error: ImpossibleFrameError | None = None

    @property
    def incomplete_bytes(self) -> int:
        """How long the frame will be that has begun and is not whole; a few bytes while that is not known."""
        return self._needed_bytes

    def allow(self, message_bytes_max: int) -> None:
        """Another largest message from the next frame on."""
        self._frame_bytes_max = message_bytes_max + FRAME_PADDING_BYTES

    @property
    def buffered_bytes(self) -> int:
        """Bytes held now: of an incomplete frame, or of those that a limit left."""
        return len(self._tail)

    def drop(self) -> None:
        """Forget what is held: nothing more comes."""
        self._tail.clear()
        self._needed_bytes = _HEAD_BYTES
        self.has_more = False

    def take_rest(self) -> bytes:
        """What was fed and not given, which nothing is made of any more: others read on."""
        rest = bytes(self._tail)
        self.drop()
        return rest

    def feed(self, data: bytes, frames_max: int = _FRAMES_UNLIMITED) -> list[Frame]:
        """The frames that are whole with ``data``, in order; the first ``frames_max`` if there are more of them.

        The rest comes with the next calls, also of ``feed(b"")``.
        """
        frames: list[Frame] = []
        self.has_more = False
        if self.error is not None:
            return frames
        tail = self._tail
        if tail:
            tail += data
            if len(tail) < self._needed_bytes:
                return frames
            data = bytes(tail)
            tail.clear()
        self._needed_bytes = _HEAD_BYTES
        size = len(data)
        frame_bytes_max = self._frame_bytes_max
        unpack = _HEAD.unpack_from
        position = 0
        needed = _HEAD_BYTES
        for _ in range(frames_max):
            if size - position < _HEAD_BYTES:
                break
            total, command_size = unpack(data, position)
            if total > frame_bytes_max or command_size + _SIZE_BYTES > total:
                return self._fail(frames, total, command_size)
            end = position + _SIZE_BYTES + total
            if end > size:
                needed = end - position
                break
            command_start = position + _HEAD_BYTES
            command_end = command_start + command_size
            frames.append((data[command_start:command_end], data[command_end:end]))
            position = end
        else:
            needed = 0
            self.has_more = position < size
        if position < size:
            tail += data[position:]
            self._needed_bytes = needed
        return frames

    def _fail(self, frames: list[Frame], total: int, command_size: int) -> list[Frame]:
        self.error = impossible_frame(total, command_size, self._frame_bytes_max)
        self._tail.clear()
        return frames


def impossible_frame(total: int, command_size: int, frame_bytes_max: int) -> ImpossibleFrameError:
    """What is wrong with a frame of these sizes."""
    return ImpossibleFrameError(
        f"impossible frame: total size {total}, command size {command_size}, largest frame {frame_bytes_max} bytes",
        _HEAD.pack(total, command_size),
    )


def encode_frame(command: bytes) -> bytes:
    """A frame without payload."""
    size = len(command)
    return _HEAD.pack(size + _SIZE_BYTES, size) + command


def encode_frame_head(command: bytes, payload_size_bytes: int) -> bytes:
    """The beginning of a frame whose payload of ``payload_size_bytes`` is written behind it by the caller."""
    size = len(command)
    return _HEAD.pack(size + _SIZE_BYTES + payload_size_bytes, size) + command
