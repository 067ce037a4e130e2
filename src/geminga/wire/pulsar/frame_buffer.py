"""Framing for a connection that reads into a buffer of its own: the frames of :mod:`.frame`, with one copy each.

A transport that makes a new ``bytes`` of each read pays for it with large frames: the pieces of one are gathered and
cut apart again, and every such block of memory comes fresh from the system, page by page. Here reads go into one
buffer that is used again and again, and what leaves it is a frame's own bytes.

A buffer that *lends* (:meth:`FrameBuffer.lend`) does without that copy, too: what lies behind the command of a large
frame is a view of the block that was read into. A block that lent something is not written again while anybody has a
view of it; then it is, as memory that is fresh from the system costs as much as the copy.

``space()`` gives room for the next read, ``wrote(size)`` the frames it completed. As with
:class:`~.frame.FrameDecoder` nothing raises: after an impossible size :attr:`FrameBuffer.error` is set, the whole
frames before it are given, and nothing ever after.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, cast

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
#: Bytes of a block behind the last frame that who borrows one may look at; what stands there means nothing.
BLOCK_SLACK_BYTES: Final = 1024
#: A block with less room than this for what comes next is left to the borrowers.
_READ_BYTES_MIN: Final = 64 * 1024
#: Blocks that are kept to be used again.
_BLOCKS_KEPT_MAX: Final = 8


class FrameBuffer:
    """Where one connection reads into, and the frames that come out."""

    __slots__ = (
        "_block_bytes",
        "_blocks",
        "_buffer",
        "_end",
        "_frame_bytes_max",
        "_is_lent",
        "_start",
        "_view",
        "error",
    )

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
        #: Of the blocks that are lent; 0: none are.
        self._block_bytes = 0
        #: Somebody got a view of the present buffer.
        self._is_lent = False
        #: Those that were lent, oldest first: some are free again.
        self._blocks: list[bytearray] = []

    def lend(self, block_bytes: int) -> None:
        """From now on what is behind the command of a large frame is a memoryview of a block of about so many bytes.

        Its ``obj`` is the block, a bytearray with :data:`BLOCK_SLACK_BYTES` behind the last frame. Frames up to
        ``SMALL_FRAME_BYTES`` remain bytes. The larger of several sizes counts.
        """
        self._block_bytes = max(self._block_bytes, block_bytes, BUFFER_BYTES_MAX)

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

    def drop(self) -> None:
        """The connection is gone: nothing more is read, and what was read and is no frame is never needed."""
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._blocks.clear()

    def space(self) -> memoryview:
        """Room for the next read; never empty."""
        return self._view[self._end :]  # a block's view ends before its slack

    def wrote(self, size: int) -> list[Frame]:
        """``size`` bytes were read into :meth:`space`: the frames they complete, in order."""
        frames: list[Frame] = []
        if self.error is not None:
            self._start = self._end = 0
            if self._is_lent:
                self._replace(BUFFER_BYTES_MIN, 0)
            return frames
        if not self._end and size < SMALL_FRAME_BYTES:
            # The usual read of an idle connection: a few small frames, whole.
            taken = _cut_small(bytes(self._view[:size]), frames)
            if taken == size:
                return frames
            self._start = taken
        self._end += size
        was_filled = self._end == len(self._view)
        needed = self._cut(frames)
        if self._is_lent:
            self._make_room_behind(needed)
            return frames
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
                behind: bytes | memoryview = view[rest:stop]
                if self._block_bytes and len(behind) > SMALL_FRAME_BYTES:
                    self._is_lent = True
                else:
                    behind = bytes(behind)
                # Who asked for views knows; nobody else gets one (Listeners).
                frames.append((bytes(view[position + _HEAD_BYTES : rest]), cast("bytes", behind)))
                position = stop
            else:
                position += _cut_small(bytes(view[position : min(end, position + _WINDOW_BYTES)]), frames)
        self._start = position
        return _HEAD_BYTES

    def _make_room_behind(self, needed: int) -> None:
        """The same while the buffer is lent: nothing in it may move, so what does not fit begins a new block."""
        room = len(self._view) - self._start
        if needed > room or room < _READ_BYTES_MIN:
            self._replace(max(self._block_bytes, needed), self._end - self._start)

    def _replace(self, size: int, held: int) -> None:
        """Another buffer of ``size`` bytes, with the ``held`` bytes that are no whole frame yet at its beginning."""
        if len(self._buffer) == self._block_bytes + BLOCK_SLACK_BYTES:
            self._blocks.append(self._buffer)
            del self._blocks[:-_BLOCKS_KEPT_MAX]
        block = self._free_block(size + BLOCK_SLACK_BYTES)
        view = memoryview(block)[: len(block) - BLOCK_SLACK_BYTES]
        view[:held] = self._view[self._start : self._end]
        self._buffer, self._view = block, view
        self._start, self._end = 0, held
        self._is_lent = False

    def _free_block(self, size: int) -> bytearray:
        """One that nobody has a view of any more, or a new one."""
        for number, block in enumerate(self._blocks):
            if len(block) != size:
                continue
            try:
                block.append(0)  # refused as long as there is a view
            except BufferError:
                continue
            del self._blocks[number], block[size:]
            return block
        return bytearray(size)

    def _make_room(self, needed: int, *, was_filled: bool) -> None:
        """Room for the rest of a frame of ``needed`` bytes, or for a good read."""
        size = len(self._view)
        held = self._end - self._start
        if self._block_bytes:
            is_small = was_filled and size < self._block_bytes
            if is_small or needed > size or needed <= self._block_bytes < size:
                self._replace(max(self._block_bytes, needed), held)
                return
            wanted = size
        else:
            wanted = self._wanted(size, needed, was_filled=was_filled)
        if wanted != size:
            grown = bytearray(wanted)
            grown[:held] = self._view[self._start : self._end]
            self._buffer, self._view = grown, memoryview(grown)
        elif self._start + needed > size or size - self._end < size // 4:
            self._view[:held] = bytes(self._view[self._start : self._end])
        else:
            return
        self._start, self._end = 0, held

    def _wanted(self, size: int, needed: int, *, was_filled: bool) -> int:
        """Bytes that a buffer which does not lend should have."""
        wanted = size
        if was_filled and size < BUFFER_BYTES_MAX:
            wanted = 2 * size
        elif needed < size // 4 and size > BUFFER_BYTES_MAX:
            wanted = BUFFER_BYTES_MAX  # the one large frame has gone
        return max(wanted, needed)


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
