"""Servers on a thread, and what connections leave behind in them: counted with the collector off."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from support.house.waiting import until

T = TypeVar("T")
#: Connections that are open at the same time.
AT_ONCE: Final = 20
#: Opens a connection and half-uses it; gives what drops it.
HalfUse: TypeAlias = Callable[[], Callable[[], None]]


class OnThread:
    """An event loop on a thread of its own."""

    def __init__(self, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._factory = loop
        self._thread = threading.Thread(target=self._run, name="served", daemon=True)
        self._thread.start()
        self.loop = self._ready.result()

    def _run(self) -> None:
        loop = self._factory()
        loop.call_soon(self._ready.set_result, loop)
        loop.run_forever()
        loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What it gives, carried out there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def close(self) -> None:
        """End it."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


class Left(NamedTuple):
    """What was there more in the end than in the beginning."""

    objects: int
    size_bytes: int
    #: What most of the objects are.
    kinds: list[tuple[str, int]]


def left_behind(half_use: HalfUse, count: int, *, warm: int, settle: Callable[[], None]) -> Left:
    """Open, half-use and drop connections. ``settle``: the loop did what was due.

    The first ``warm`` of them are not counted: what is made once is there then.
    """
    gc.collect()
    # What is there now is nobody's leftover: it is neither collected nor counted again, here or later.
    gc.freeze()
    gc.disable()
    try:
        half_use()()
        before = _in_the_end(half_use, settle)
        _waves(half_use, warm, before, settle)
        gc.collect()
        tracemalloc.start()
        kinds = _kinds()
        size = tracemalloc.get_traced_memory()[0]
        _waves(half_use, count, before, settle)
        size = tracemalloc.get_traced_memory()[0] - size
        more = _kinds()
    finally:
        tracemalloc.stop()
        gc.enable()
    objects = more.total() - kinds.total()
    more.subtract(kinds)
    return Left(objects, size, more.most_common(12))


def _in_the_end(half_use: HalfUse, settle: Callable[[], None]) -> int:
    """Descriptors that are open when a first connection, which may bring others with it for good, is gone."""
    drop = half_use()
    settle()
    drop()
    seen = [-1, -2, -3]

    def are_the_same() -> bool:
        settle()
        seen[:] = [*seen[1:], descriptors()]
        return len(set(seen)) == 1

    until(are_the_same, "the first connection is gone")
    return seen[0]


def _waves(half_use: HalfUse, count: int, before: int, settle: Callable[[], None]) -> None:
    for _ in range(count // AT_ONCE):
        drops = [half_use() for _ in range(AT_ONCE)]
        settle()
        for drop in drops:
            drop()
        until(lambda: descriptors() <= before, "the connections are gone")
        settle()


def _kinds() -> Counter[str]:
    return Counter(f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.get_objects())
