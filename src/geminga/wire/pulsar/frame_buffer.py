"""Framing for a connection that reads into a buffer of its own: the frames of :mod:`.frame`, with one copy each.

A transport that makes a new ``bytes`` of each read pays for it with large frames: the pieces of one are gathered and
cut apart again, and every such block of memory comes fresh from the system, page by page. Here reads go into one
buffer that is used again and again, and what leaves it is a frame's own bytes.

``space()`` gives room for the next read, ``wrote(size)`` the frames it completed. As with
:class:`~.frame.FrameDecoder` nothing raises: after an impossible size :attr:`FrameBuffer.error` is set, the whole
frames before it are given, and nothing ever after.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from geminga.model.limits import FRAME_PADDING_BYTES
from geminga.wire.pulsar.frame import Frame, ImpossibleFrameError, impossible_frame

_HEAD: Final = Struct(">II")
_HEAD_BYTES: Final = 8
_SIZE_BYTES: Final = 4
#: The buffer of a connection at first.
BUFFER_BYTES_MIN: Final = 16 * 1024
#: It grows to this, twofold, as long as reads fill it; further only for a single frame that is larger.
BUFFER_BYTES_MAX: Final = 1024 * 1024
#: Frames up to this size are cut from a copy of all that lie together; larger ones are copied one by one.
SMALL_FRAME_BYTES: Final = 8 * 1024
_WINDOW_BYTES: Final = 64 * 1024


class FrameBuffer:
    """Where one connection reads into, and the frames that come out."""

    __slots__ = ("_buffer", "_end", "_frame_bytes_max", "_start", "_view", "error")

    def __init__(self, message_bytes_max: int) -> None:
        """``message_bytes_max``: largest message; a frame may hold ``FRAME_PADDING_BYTES`` more, as in Pulsar."""
        self._frame_bytes_max = message_bytes_max + FRAME_PADDING_BYTES
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._view = memoryview(self._buffer)
        #: What was read and is no whole frame yet.
        self._start = 0
        self._end = 0
        #: Why the stream can not be read on; None while it can.
        self.error: ImpossibleFrameError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes of an incomplete frame held now."""
        return self._end - self._start

    @property
    def head(self) -> bytes:
        """The first bytes of a frame that is not whole, at most eight."""
        return bytes(self._view[self._start : min(self._end, self._start + _HEAD_BYTES)])

    def allow(self, message_bytes_max: int) -> None:
        """Another largest message from now on."""
        self._frame_bytes_max = message_bytes_max + FRAME_PADDING_BYTES

    def space(self) -> memoryview:
        """Room for the next read; never empty."""
        return self._view[self._end :]

    def wrote(self, size: int) -> list[Frame]:
        """``size`` bytes were read into :meth:`space`: the frames they complete, in order."""
        frames: list[Frame] = []
        if self.error is not None:
            self._start = self._end = 0
            return frames
        if not self._end and size < SMALL_FRAME_BYTES:
            # The usual read of an idle connection: a few small frames, whole.
            taken = _cut_small(bytes(self._view[:size]), frames)
            if taken == size:
                return frames
            self._start = taken
        self._end += size
        was_filled = self._end == len(self._buffer)
        needed = self._cut(frames)
        if self._start == self._end:
            self._start = self._end = 0
        self._make_room(needed, was_filled=was_filled)
        return frames

    def _cut(self, frames: list[Frame]) -> int:
        """Take what is whole; how many bytes the frame that is not will have."""
        buffer, view, end = self._buffer, self._view, self._end
        unpack = _HEAD.unpack_from
        position = self._start
        while end - position >= _HEAD_BYTES:
            total, command_size = unpack(buffer, position)
            if total > self._frame_bytes_max or command_size + _SIZE_BYTES > total:
                self.error = impossible_frame(total, command_size, self._frame_bytes_max)
                position = end
                break
            stop: int = position + _SIZE_BYTES + total
            if stop > end:
                self._start = position
                return stop - position
            if total > SMALL_FRAME_BYTES:
                rest = position + _HEAD_BYTES + command_size
                frames.append((bytes(view[position + _HEAD_BYTES : rest]), bytes(view[rest:stop])))
                position = stop
            else:
                position += _cut_small(bytes(view[position : min(end, position + _WINDOW_BYTES)]), frames)
        self._start = position
        return _HEAD_BYTES

    def _make_room(self, needed: int, *, was_filled: bool) -> None:
        """Room for the rest of a frame of ``needed`` bytes, or for a good read."""
        size = len(self._buffer)
        wanted = size
        if was_filled and size < BUFFER_BYTES_MAX:
            wanted = 2 * size
        elif needed < size // 4 and size > BUFFER_BYTES_MAX:
            wanted = BUFFER_BYTES_MAX  # the one large frame has gone
        wanted = max(wanted, needed)
        held = self._end - self._start
        if wanted != size:
            grown = bytearray(wanted)
            grown[:held] = self._view[self._start : self._end]
            self._buffer, self._view = grown, memoryview(grown)
        elif self._start + needed > size or size - self._end < size // 4:
            self._view[:held] = bytes(self._view[self._start : self._end])
        else:
            return
        self._start, self._end = 0, held


def _cut_small(data: bytes, frames: list[Frame]) -> int:
    """Frames from the beginning of ``data`` as long as they are whole and small: the bytes they take."""
    size = len(data)
    unpack = _HEAD.unpack_from
    position = 0
    while size - position >= _HEAD_BYTES:
        total, command_size = unpack(data, position)
        end = position + _SIZE_BYTES + total
        if total > SMALL_FRAME_BYTES or end > size or command_size + _SIZE_BYTES > total:
            break
        rest = position + _HEAD_BYTES + command_size
        frames.append((data[position + _HEAD_BYTES : rest], data[rest:end]))
        position = end
    return position
