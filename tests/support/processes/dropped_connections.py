"""Servers on a thread, and what connections leave behind in them: counted with the collector off."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import pytest

from geminga.app.lifecycle.event_loop import loop_factory
from geminga.runtime import Listener, let_go, next_turn, real_runtime
from support.house.waiting import ASK_AGAIN_S, until

T = TypeVar("T")
#: Connections that are open at the same time.
AT_ONCE: Final = 20
Drop: TypeAlias = Callable[[], None]
#: Looks that find no fewer objects, after which there are no fewer.
LOOKS_IN_VAIN: Final = 4
#: Opens a connection and half-uses it; gives what drops it.
HalfUse: TypeAlias = Callable[[], Drop]

COUNT: Final = 60
#: Of the full size, and how many go before them.
COUNT_LONG: Final = int(os.environ.get("DROPPED_CONNECTIONS", "8000"))
WARM_LONG: Final = COUNT_LONG // 4
#: One object of each would be too many; the bytes are mostly of counting.
OBJECTS_MAX: Final = 55
OBJECTS_MAX_LONG: Final = 100
BYTES_MAX: Final = 160 * 1024
BYTES_MAX_LONG: Final = 1024 * 1024
#: Measurements, if the first ones are above.
ATTEMPTS: Final = 3
LOOPS: Final = ["asyncio", "uvloop"]
#: The same where the loop makes no difference to what is looked for: one of them in the long tests alone.
LOOPS_IN_TURN: Final = ["asyncio", pytest.param("uvloop", marks=pytest.mark.long)]
#: For ``parametrize``: some of each, and ten thousand.
COUNTS: Final = [
    pytest.param(COUNT, id="some"),
    pytest.param(COUNT_LONG, id="ten thousand", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
]
#: What one read of a socket brings, and more.
PART_BYTES: Final = 300_000


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


def no_fatal(part: str, error: BaseException) -> None:
    """Nothing of a server may end it."""
    raise AssertionError(part) from error


def on_thread(loop: str) -> OnThread:
    """A loop of this kind; skips where there is none."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    return OnThread(loop_factory(loop))


async def some_turns() -> None:
    """What was due is done."""
    # A loop of asyncio's keeps timers that were cancelled until there are so many.
    loop = asyncio.get_running_loop()
    for _ in range(200):
        loop.call_later(3600, int).cancel()
    for _ in range(10):
        await next_turn()


def until_quiet(served: Callable[[Coroutine[Any, Any, None]], object]) -> None:
    """What was due is done, and no task comes or goes any more on the loop that ``served`` runs a coroutine on."""
    seen: list[int] = []

    async def look() -> None:
        await some_turns()
        seen.append(len(asyncio.all_tasks()))

    def is_quiet() -> bool:
        served(look())
        return len(seen) > 2 and len(set(seen[-3:])) == 1

    until(is_quiet, "no task comes or goes")


def sent(sock: socket.socket, data: bytes) -> Drop:
    """Sends as much as the other end takes at once."""
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        sock.send(data)
    return sock.close


def to_port(port: int, data: bytes) -> Drop:
    """Connects, and sends that."""
    return sent(socket.create_connection(("127.0.0.1", port)), data)


class HalfAnswer(asyncio.Protocol):
    """Answers whatever comes with the same bytes, each time something comes; ``ends``: and closes."""

    def __init__(self, answer: bytes, *, ends: bool) -> None:
        self._answer = answer
        self._ends = ends

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As of the base."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """As of the base."""
        self.transport.write(self._answer)
        if self._ends:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """As of the base."""
        let_go(self.transport)
        del self.transport


async def half_answering(answer: bytes, *, ends: bool = False) -> Listener:
    """A peer that answers half, or nonsense, to each; ``ends``: and closes."""
    return await real_runtime(no_fatal).network.listen(lambda: HalfAnswer(answer, ends=ends), "127.0.0.1", 0)


def assert_nothing_left(half_use: HalfUse, settle: Callable[[], None], count: int = COUNT, *, warm: int = 20) -> None:
    """What connections leave is left each time; what the process makes once, by the first ``warm``, is not."""
    is_long = count == COUNT_LONG
    objects_max, bytes_max = (OBJECTS_MAX_LONG, BYTES_MAX_LONG) if is_long else (OBJECTS_MAX, BYTES_MAX)
    if not is_long:
        objects_max = max(objects_max, count // 2)
    for attempt in range(ATTEMPTS):
        # Of what a process does every minute, the last time is as new as what connections leave, unless it was there
        # when the attempt began: so it is from the second on.
        warm_up = WARM_LONG if is_long else warm
        left = left_behind(half_use, count, warm=warm_up, settle=settle, is_first=not attempt)
        print(f"{count}: {left.objects} objects, {left.size_bytes} bytes; resident {left.resident_bytes >> 10} KiB")
        if left.objects <= objects_max and left.size_bytes <= bytes_max:
            return
    raise AssertionError(left)


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    """Of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Left(NamedTuple):
    """What was there more in the end than in the beginning."""

    objects: int
    size_bytes: int
    #: Of the process, which nobody judges: the counting itself takes some.
    resident_bytes: int
    #: What most of the objects are.
    kinds: list[tuple[str, int]]


def left_behind(half_use: HalfUse, count: int, *, warm: int, settle: Callable[[], None], is_first: bool = True) -> Left:
    """Open, half-use and drop connections. ``settle``: the loop did what was due.

    The first ``warm`` of them are not counted: what is made once is there then.
    """
    gc.collect()
    if is_first:
        # What is there now is nobody's leftover: it is neither collected nor counted again, here or later.
        gc.freeze()
    gc.disable()
    try:
        half_use()()
        before = _in_the_end(half_use, settle)
        _waves(half_use, warm, before, settle)
        gc.collect()
        resident = resident_bytes()
        tracemalloc.start()
        kinds, size = _least(settle)
        _waves(half_use, count, before, settle)
        more, size_after = _least(settle)
        resident = resident_bytes() - resident
    finally:
        tracemalloc.stop()
        gc.enable()
    objects = more.total() - kinds.total()
    more.subtract(kinds)
    most = [(f"{kind.__module__}.{kind.__qualname__}", count) for kind, count in more.most_common(12)]
    return Left(objects, size_after - size, resident, most)


def _least(settle: Callable[[], None]) -> tuple[Counter[type], int]:
    """Objects by kind and bytes, when they were fewest: what is under way, such as a read of a disk, ends meanwhile."""
    best: tuple[Counter[type], int] | None = None
    patience = LOOKS_IN_VAIN
    never = threading.Event()
    while patience:
        settle()
        kinds, size = _kinds(), tracemalloc.get_traced_memory()[0]
        patience -= 1
        if best is None or kinds.total() < best[0].total():
            best, patience = (kinds, size), LOOKS_IN_VAIN
        never.wait(ASK_AGAIN_S)
    assert best is not None
    return best


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


def _kinds() -> Counter[type]:
    return Counter(map(type, gc.get_objects()))
