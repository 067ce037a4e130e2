"""Lines of standard input, read by a thread: a loop that reads them itself stands still until the next one is there."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator
from typing import Any, Final

from geminga.model.errors import ConfigurationError

#: Bytes that are read at once, at most, and blocks that are read before somebody wants them.
BLOCK_BYTES: Final = 64 << 10
BLOCKS_AHEAD: Final = 16
#: Of a line: no cluster takes a message that is as large, and a stream without lines would be kept until memory ends.
LINE_BYTES_MAX: Final = 64 << 20


async def standard_lines() -> AsyncGenerator[bytes, None]:
    """Each as soon as its end is there, without it; at the end what has none.

    Raises OSError, ConfigurationError for a line of more than :data:`LINE_BYTES_MAX`.
    """
    buffer: Any = sys.stdin.buffer
    # Below the buffer, whose lock would keep a process that ends from ending while somebody reads.
    source = getattr(buffer, "raw", buffer)
    loop = asyncio.get_running_loop()
    blocks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(BLOCKS_AHEAD)
    is_over = threading.Event()

    def read() -> None:
        block: bytes | OSError = b"-"
        while isinstance(block, bytes) and block:
            room.acquire()
            try:
                block = source.read(BLOCK_BYTES) or b""
            except OSError as error:
                block = error
            if is_over.is_set():
                return
            try:
                loop.call_soon_threadsafe(blocks.put_nowait, block)
            except RuntimeError:  # the loop was closed just now
                return

    threading.Thread(target=read, name="standard input", daemon=True).start()
    #: Of a line that has not ended.
    parts: list[bytes] = []
    size = number = 0
    try:
        while block := await blocks.get():
            if isinstance(block, OSError):
                raise block
            room.release()
            first, *more = block.split(b"\n")
            parts.append(first)
            size += len(first)
            if size > LINE_BYTES_MAX:
                raise ConfigurationError(
                    f"line {number + 1} of standard input has more than {LINE_BYTES_MAX} bytes: expected one message"
                )
            if more:
                *whole, rest = (b"".join(parts), *more)
                parts, size, number = [rest], len(rest), number + len(whole)
                for line in whole:
                    yield line.rstrip(b"\r")
        if rest := b"".join(parts):
            yield rest.rstrip(b"\r")
    finally:
        is_over.set()
        room.release()
