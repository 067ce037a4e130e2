"""Policies that could not be followed, or read, at that moment: tried again, each by its own doubling delay.

A topic that can not follow a change (its metadata can not be read, its deduplication not be recovered) goes on by what
it had until then. Nobody may ask again, so it is tried again for as long as it is loaded. One after the other: what is
out of reach is not asked by all topics at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.runtime import Contained, Part, SparseWarnings, get_logger, next_turn, spawn

_log = get_logger(__name__)

#: Seconds until the next attempt: from the first, doubled up to the second while it fails.
RETRY_S_MIN: Final = 1.0
RETRY_S_MAX: Final = 60.0
#: Attempts in one turn of the loop.
ATTEMPTS_PER_TURN: Final = 64

#: Tries once more. It says itself how that went, by :meth:`PolicyRetries.failed` or :meth:`PolicyRetries.succeeded`;
#: if it says nothing, there is nothing to try any more.
Attempt = Callable[[], Awaitable[object]]


class Follower(Part, Protocol):
    """A topic that follows policies."""

    @property
    def name(self) -> TopicName:
        """Its own."""
        ...

    @property
    def is_closing(self) -> bool:
        """Whether it follows nothing any more."""
        ...

    async def apply_policies(self) -> None:
        """Have what the policies say now. Raises GemingaError: it may have followed in part."""
        ...


class _Waiting(NamedTuple):
    attempt: Attempt
    delay_s: float
    #: By the loop's clock.
    due_s: float


class PolicyRetries:
    """See the module; one of a broker. It holds no more than there are loaded topics, and two for each namespace."""

    __slots__ = ("_is_closed", "_part", "_task", "_timer", "_waiting", "_warnings")

    def __init__(self, part: Part, monotonic: Callable[[], float]) -> None:
        """``part`` hears of what an attempt did not expect. ``monotonic``: seconds, for the log."""
        self._part = part
        self._warnings = SparseWarnings(_log, monotonic)
        self._waiting: dict[str, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: Attempts that are under way.
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def count(self) -> int:
        """Topics and namespaces that wait for another attempt."""
        return len(self._waiting)

    async def follow(self, topic: Follower) -> GemingaError | None:
        """Have ``topic`` follow its policies; why it can not now: then it is tried again.

        What was not expected closes the topic, which is loaded anew.
        """
        try:
            with Contained(topic, "following its policies"):
                await topic.apply_policies()
        except GemingaError as error:
            self.failed(f"{topic.name}", "changed policies could not be applied", error, lambda: self._again(topic))
            return error
        self.succeeded(f"{topic.name}")
        return None

    def failed(self, key: str, what: str, error: GemingaError, attempt: Attempt) -> None:
        """``what`` failed for ``key``, which names a topic or something of a namespace: ``attempt`` is made later."""
        if self._is_closed:
            return
        before = self._waiting.get(key)
        delay_s = RETRY_S_MIN if before is None else min(2 * before.delay_s, RETRY_S_MAX)
        self._warnings.warn(f"{key}: {what}, it is tried again in {delay_s:g} s: {error}", what)
        self._waiting[key] = _Waiting(attempt, delay_s, asyncio.get_running_loop().time() + delay_s)
        self._arm(delay_s)

    def succeeded(self, key: str) -> None:
        """Nothing is to be tried for ``key``."""
        if self._waiting.pop(key, None) is not None:
            _log.info("%s: its policies are followed", key)

    def close(self) -> None:
        """Nothing is tried any more; an attempt that is under way comes to its end."""
        self._is_closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _again(self, topic: Follower) -> None:
        if not topic.is_closing:
            await self.follow(topic)

    def _arm(self, delay_s: float) -> None:
        """Look after ``delay_s`` at the latest; who is at it looks afterwards."""
        if self._task is not None or self._is_closed:
            return
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._task = spawn(self._attempts(), name="follow policies again", part=self._part)

    async def _attempts(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            due = [(key, one) for key, one in self._waiting.items() if one.due_s <= loop.time()]
            for number, (key, one) in enumerate(due, 1):
                # Another one may have been made meanwhile.
                if self._waiting.get(key) is one:
                    with Contained(self._part, "following policies again"):
                        await one.attempt()
                    if self._waiting.get(key) is one:
                        del self._waiting[key]
                if not number % ATTEMPTS_PER_TURN:
                    await next_turn()
        finally:
            self._task = None
            if self._waiting:
                # Not for each by itself: as many as are due within a second are one round.
                self._arm(max(min(one.due_s for one in self._waiting.values()) - loop.time(), RETRY_S_MIN))
