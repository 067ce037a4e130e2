"""Readers that wait for a ledger's last add confirmed to grow.

What is known of it comes with adds and announcements that this server sees, which are all that a bookie behind it gets.
A poll ends by growth, by its time, or with its connection; what it is told then it asks of the bookie itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from geminga.bookie.serving.limits import LONG_POLL_MS_MAX, LONG_POLLS_MAX, LONG_POLLS_OF_ONE_MAX

K = TypeVar("K")


@dataclass(slots=True, eq=False)
class LongPoll:
    """One that waits."""

    ledger_id: int
    previous_lac: int
    owner: object
    #: Called once, unless the connection goes first.
    wake: Callable[[], None]
    #: Ends its time; None only before it waits.
    timer: asyncio.TimerHandle | None = None


class LongPolls:
    """Those of one server."""

    __slots__ = ("_by_ledger", "_by_owner", "_count", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._by_ledger: dict[int, set[LongPoll]] = {}
        self._by_owner: dict[object, set[LongPoll]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def wait(
        self, ledger_id: int, previous_lac: int, timeout_ms: int, owner: object, wake: Callable[[], None]
    ) -> LongPoll | None:
        """Call ``wake`` when the LAC is beyond ``previous_lac``, or the time is over; None: too many wait."""
        if self._count >= LONG_POLLS_MAX or len(self._by_owner.get(owner, ())) >= LONG_POLLS_OF_ONE_MAX:
            return None
        delay_s = min(max(timeout_ms, 0), LONG_POLL_MS_MAX) / 1000
        poll = LongPoll(ledger_id, previous_lac, owner, wake)
        poll.timer = self._loop.call_later(delay_s, self._end, poll)
        self._by_ledger.setdefault(ledger_id, set()).add(poll)
        self._by_owner.setdefault(owner, set()).add(poll)
        self._count += 1
        return poll

    def drop(self, poll: LongPoll) -> bool:
        """It is answered in another way; False if it was woken already."""
        is_there = poll in self._by_ledger.get(poll.ledger_id, ())
        if is_there:
            self._drop(poll)
        return is_there

    def grew(self, ledger_id: int, lac: int) -> None:
        """The LAC of the ledger is ``lac`` at least. Cheap where nobody waits."""
        polls = self._by_ledger.get(ledger_id)
        if polls is not None:
            for poll in [poll for poll in polls if poll.previous_lac < lac]:
                self._end(poll)

    def forget(self, owner: object) -> int:
        """A connection went: nobody wants to know any more. How many polls that were."""
        own = list(self._by_owner.get(owner, ()))
        for poll in own:
            self._drop(poll)
        return len(own)

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits for anything."""
        return self._count > 0

    def _drop(self, poll: LongPoll) -> None:
        if poll.timer is not None:
            poll.timer.cancel()
        _discard(self._by_ledger, poll.ledger_id, poll)
        _discard(self._by_owner, poll.owner, poll)
        self._count -= 1

    def _end(self, poll: LongPoll) -> None:
        self._drop(poll)
        poll.wake()


def _discard(polls_by: dict[K, set[LongPoll]], key: K, poll: LongPoll) -> None:
    polls = polls_by[key]
    polls.discard(poll)
    if not polls:
        del polls_by[key]
