"""Waiting for what nobody announces: the state of another process or library that can only be asked for.

Where there is an event (a message, an end of a process, a future), wait for that instead.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

LIMIT_S: Final = 10.0
#: Seconds between two questions.
ASK_AGAIN_S: Final = 0.02


def until(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Ask until ``condition()`` is true; AssertionError that names ``what`` if it is not within ``limit_s``."""
    deadline = time.monotonic() + limit_s
    never = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        never.wait(ASK_AGAIN_S)


async def turns(count: int = 5) -> None:
    """Let the loop go round so many times; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)  # turns of the loop, not time
