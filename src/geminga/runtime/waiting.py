"""Waiting: on the loop's own timer, so that the simulator owns it too, for who answers by a callback, and together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from geminga.model.errors import GemingaError, invariant
from geminga.runtime.attempt import value_of
from geminga.runtime.containment import Part
from geminga.runtime.spawn import spawn

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: How long a question waits for the one before it, seconds.
ASKED_BEFORE_S: Final = 1.0


async def wait_ms(milliseconds: float) -> None:
    """Until so many milliseconds are over; may be cancelled."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(milliseconds / 1000, _wake, future)
    try:
        await future
    finally:
        timer.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def next_turn() -> None:
    """Let everything else that is ready run once."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.call_soon(_wake, future)
    await future


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether ``event`` is set within so many seconds; told as soon as it is."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


class Bell:
    """An ``asyncio.Event`` for one who waits: of a hundredth of its size, where there are ten thousand of them."""

    __slots__ = ("_is_rung", "_waiter")

    def __init__(self) -> None:
        self._is_rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Who waits goes on, and so does who comes before it is silenced."""
        self._is_rung = True
        if self._waiter is not None:
            _wake(self._waiter)

    def silence(self) -> None:
        """Who comes from now on waits."""
        self._is_rung = False

    async def wait(self) -> None:
        """Until it rings."""
        if self._is_rung:
            return
        invariant(self._waiter is None or self._waiter.done(), "two wait for one bell")
        self._waiter = future = asyncio.get_running_loop().create_future()
        try:
            await future
        finally:
            if self._waiter is future:
                self._waiter = None


async def delay(milliseconds: int) -> None:
    """Come back that much later; 0: on the loop's next turn."""
    if milliseconds:
        await wait_ms(milliseconds)
    else:
        await next_turn()


async def answer_of(ask: Callable[[Callable[[T | GemingaError], None]], object]) -> T:
    """What ``done`` is called with by ``ask(done)``, possibly within the call; an error is raised.

    Whoever is called off meanwhile is not told: a later answer goes unheard.
    """
    future: asyncio.Future[T | GemingaError] = asyncio.get_running_loop().create_future()
    ask(partial(_hear, future))
    try:
        return value_of(await future)
    finally:
        del future  # see value_of


def _hear(future: asyncio.Future[T | GemingaError], answer: T | GemingaError) -> None:
    if not future.done():
        future.set_result(answer)


def settle(future: asyncio.Future[T], result: T, error: BaseException | None) -> None:
    """Tell who waits for ``future``, unless he was called off: ``result``, or ``error`` in its place."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def all_ended(calls: Iterable[Awaitable[T]]) -> list[T]:
    """What they give, begun at once, in their order; the first error is raised when none is under way any more."""
    ended = await asyncio.gather(*calls, return_exceptions=True)
    try:
        # Not a comprehension: its frame would hold the error.
        taken: Callable[[T | BaseException], T] = value_of
        return list(map(taken, ended))
    finally:
        del ended  # see value_of


async def ended_in_turns(calls: Iterable[Awaitable[T]], turn: int) -> list[T | BaseException]:
    """What they give or raise, in their order; ``turn`` of them are begun in one turn of the loop.

    For who is not called off meanwhile (see :func:`carried_out`): some would be, others not begun.
    """
    groups: list[asyncio.Future[list[T | BaseException]]] = []
    left = iter(calls)
    while some := list(islice(left, turn)):
        if groups:
            await next_turn()
        groups.append(asyncio.gather(*some, return_exceptions=True))
    return [outcome for group in groups for outcome in await group]


async def carried_out(work: Coroutine[Any, Any, T], *, name: str, part: Part | None = None) -> T:
    """What ``work`` gives or raises, which goes on to its end though who waits for it is called off.

    For what must not stop half way: a step that nobody would hear the end of, a turn that nobody would give back.
    ``part`` hears of what was not expected, as of :func:`spawn`.
    """

    async def run() -> T | GemingaError:
        try:
            return await work
        except GemingaError as error:
            return error

    return value_of(await asyncio.shield(spawn(run(), name=name, part=part)))


class KeyedLocks:
    """A lock for each key, as long as somebody has it or waits for it: in the order in which they came."""

    __slots__ = ("_locks", "_make")

    def __init__(self, make: Callable[[], asyncio.Lock | asyncio.Semaphore] = asyncio.Lock) -> None:
        """``make``: a semaphore lets several have a key at a time."""
        self._make = make
        #: By key: and how many have it or wait for it.
        self._locks: dict[str, tuple[asyncio.Lock | asyncio.Semaphore, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def __contains__(self, key: str) -> bool:
        return key in self._locks

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        """Have the key inside."""
        lock, users = self._locks.get(key) or (self._make(), 0)
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = (lock, users - 1)

    async def until_free(self, is_wanted: Callable[[str], bool]) -> None:
        """Until who has, or waits for, one of those keys now is done."""
        for lock in [lock for key, (lock, _) in self._locks.items() if is_wanted(key)]:
            async with lock:
                continue


class AskedTogether(Generic[K, V]):
    """What several want to know is asked once for all who asked before the question was begun.

    Nobody gets an answer that is older than when he asked. A question is begun when the turn is over in which it was
    asked first, and the one before it for its key has its answer: of those who come by the hundred each would ask anew
    otherwise. One that hangs is waited for :data:`ASKED_BEFORE_S` and no longer. Those who share one are as many as
    there are askers, who are bounded where they come from.
    """

    __slots__ = ("_begun_next", "_under_way")

    def __init__(self) -> None:
        self._begun_next: dict[K, asyncio.Task[V | GemingaError]] = {}
        #: The last that was begun, until it is answered.
        self._under_way: dict[K, asyncio.Future[None]] = {}

    async def ask(self, key: K, begin: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The answer to ``begin``, or to that of another who asked for this key before it was begun. Raises what it
        does."""
        task = self._begun_next.get(key)
        if task is None:
            task = self._begun_next[key] = spawn(self._begin(key, begin), name=f"asked for {key}")
        # A task of its own: the first to ask may go away, the others still want to know.
        try:
            return value_of(await asyncio.shield(task))
        finally:
            del task  # see value_of

    async def _begin(self, key: K, begin: Callable[[], Coroutine[Any, Any, V]]) -> V | GemingaError:
        try:
            if (before := self._under_way.get(key)) is not None:
                await asyncio.wait((before,), timeout=ASKED_BEFORE_S)
        finally:
            # Who asks from here on, asks anew.
            del self._begun_next[key]
        answered = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            return await begin()
        except GemingaError as error:
            return error
        finally:
            answered.set_result(None)
            if self._under_way.get(key) is answered:
                del self._under_way[key]
