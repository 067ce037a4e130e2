"""Lines of standard input, read by a thread: a loop that reads them itself stands still until the next one is there."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator
from typing import Any, Final

#: Bytes that are read at once, at most, and blocks that are read before somebody wants them.
BLOCK_BYTES: Final = 64 << 10
BLOCKS_AHEAD: Final = 16


async def standard_lines() -> AsyncGenerator[bytes, None]:
    """Each as soon as its end is there, without it; at the end what has none. Raises OSError."""
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
    rest = b""
    try:
        while block := await blocks.get():
            if isinstance(block, OSError):
                raise block
            room.release()
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                yield line.rstrip(b"\r")
        if rest:
            yield rest.rstrip(b"\r")
    finally:
        is_over.set()
        room.release()
