"""``Output``: bytes on their way out of one connection, and when they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from geminga.runtime import Buffer

#: Writes of at least so many bytes leave at once instead of at the end of the loop's turn.
WRITE_AT_ONCE_BYTES: Final = 16 * 1024
#: So do writes that are as far apart, seconds: some times what a write costs.
WRITE_APART_S: Final = 0.0001


class Output:
    """What is written within one turn of the loop leaves as one write, except large frames and those that nothing was
    written shortly before, which leave at once."""

    __slots__ = (
        "_flush_scheduled",
        "_late",
        "_loop",
        "_out",
        "_written_s",
        "is_over",
        "transport",
        "written",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Where to; None: not connected yet.
        self.transport: asyncio.Transport | None = None
        #: Nothing is written any more.
        self.is_over = False
        self._out: list[Buffer] = []
        #: Frames that :meth:`write` was given.
        self.written = 0
        #: What is to be encoded when it leaves, and its place in what waits.
        self._late: list[tuple[int, Callable[[], Buffer]]] = []
        self._flush_scheduled = False
        #: When something was written last, seconds of the loop.
        self._written_s = -1.0

    def end(self) -> None:
        """What waits is dropped, and so is what comes."""
        self.is_over = True
        self._out.clear()
        self._late.clear()

    def write(self, data: Buffer) -> None:
        """Write in the order of calls; nothing once closed.

        A write leaves at once if the one before is some time ago: whoever sends one message after the other gets no
        turn of the loop between. Small ones close behind it leave together at the turn's end.
        """
        if self.is_over:
            return
        self.written += 1
        if self._flush_scheduled:
            self._out.append(data)
            if len(data) >= WRITE_AT_ONCE_BYTES:
                self.flush()
            return
        now = self._loop.time()
        if self.transport is not None and (now - self._written_s >= WRITE_APART_S or len(data) >= WRITE_AT_ONCE_BYTES):
            self._written_s = now
            self.transport.write(data)
            return
        self._out.append(data)
        self._flush_scheduled = True
        self._loop.call_soon(self._flush_soon)

    def write_soon(self, data: Buffer) -> None:
        """Write at the end of the loop's turn, with all that comes until then: many of these are under way at once."""
        if not self.is_over:
            self._out.append(data)
            if not self._flush_scheduled:
                self._flush_scheduled = True
                self._loop.call_soon(self._flush_soon)

    def write_late(self, encode: Callable[[], Buffer]) -> None:
        """The same for what may still grow until it leaves, in the place of this call: before what is written later."""
        if not self.is_over:
            self._late.append((len(self._out), encode))
            self.write_soon(b"")

    def write_many(self, parts: Sequence[Buffer]) -> None:
        """Write the parts back to back, at once."""
        if not self.is_over:
            self._out.extend(parts)
            self.flush()

    def _flush_soon(self) -> None:
        self._flush_scheduled = False
        self._written_s = self._loop.time()
        self.flush()

    def flush(self) -> None:
        """Write what waits."""
        out = self._out
        if out and self.transport is not None and not self.is_over:
            self._out = []
            if self._late:
                late, self._late = self._late, []
                for index, encode in late:
                    out[index] = encode()
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
