"""Reads that cursors of one log share: what one reads from storage is kept for those that come behind it.

Ten cursors that catch up side by side read each entry once: the first one asks for it, who comes meanwhile waits for
the same answer, who comes later finds it in memory. It is kept while a cursor near behind needs it
(``rules.near_readers``), in the entry cache, whose limit and age hold; of one log at most a part of that. Where one
cursor reads alone nothing is kept. Where many read, they are looked at once for several reads: what all have passed
goes a little later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from geminga.managed_ledger.log.tail import Tail
from geminga.managed_ledger.rules.near_readers import CameFrom, Span, coming_for, least_needed, plan
from geminga.managed_ledger.shared.entry_cache import TailWindow
from geminga.model.errors import StorageError
from geminga.model.limits import count_within
from geminga.model.position import Position

#: Reads of one log under way that others may wait for; more are read by everybody for himself.
COMING_MAX: Final = 4
#: Runs of entries that are kept of one log: of the ledger that some are at the end of, and of the next.
SPANS_MAX: Final = 2

#: So many cursors are looked at for each read, on average: of a thousand, all are for each sixty-third.
LOOKS_PER_READ: Final = 16

SharedDone = Callable[[Sequence[bytes] | StorageError], None]


class SharedPayloads(tuple[bytes, ...]):
    """What another cursor read."""

    __slots__ = ()


class Ask(NamedTuple):
    """What to read of a ledger."""

    first: int
    last: int
    bytes_max: int
    done: SharedDone


Read = Callable[[Ask], None]


class _Coming:
    """A read under way, and who waits for it, with how each would read by himself."""

    __slots__ = ("span", "waiting")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.waiting: list[tuple[Ask, Read]] = []


class SharedReads:
    """See the module."""

    __slots__ = ("_coming", "_positions", "_since_look", "_tail")

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._coming: list[_Coming] = []
        #: Where cursors were at the last look, and how often that was asked since.
        self._positions: Sequence[Position] = ()
        self._since_look = 0

    def ask(self, ledger_id: int, ask: Ask, read: Read) -> None:
        """Answer from memory, with what another asked for, or by ``read``; never within this call but by ``read``."""
        held = self._let_go()
        coming = [each.span for each in self._coming]
        way, last = plan(ledger_id, ask.first, ask.last, held, coming)
        if way is CameFrom.MEMORY:
            window = next(each for each in self._tail.behind if _span_of(each).holds(ledger_id, ask.first))
            payloads = window.get(ask.first, last)
            asyncio.get_running_loop().call_soon(ask.done, _shared(payloads, ask))
        elif way is CameFrom.COMING:
            found = next(each for each in self._coming if each.span.holds(ledger_id, ask.first))
            found.waiting.append((ask, read))
        elif len(self._coming) >= COMING_MAX:
            read(ask._replace(last=last))
        else:
            mine = _Coming(Span(ledger_id, ask.first, last + 1))
            self._coming.append(mine)
            read(ask._replace(last=last, done=lambda result: self._came(mine, ask, result)))

    def forget(self, ledger_id: int) -> None:
        """The ledger is deleted, or lies elsewhere."""
        for window in self._tail.behind:
            if window.ledger_id == ledger_id:
                self._tail.drop_behind(window)

    def _came(self, mine: _Coming, ask: Ask, result: Sequence[bytes] | StorageError) -> None:
        self._coming.remove(mine)
        ledger_id, first, _ = mine.span
        if not isinstance(result, StorageError):
            self._keep(Span(ledger_id, first, first + len(result)), result)
        ask.done(result)
        for waiting, read in mine.waiting:
            if not isinstance(result, StorageError) and waiting.first - first < len(result):
                part = result[waiting.first - first : waiting.last - first + 1]
                waiting.done(_shared(part, waiting))
            else:
                # What went wrong for another is tried, and told, by oneself.
                self.ask(ledger_id, waiting, read)

    def _keep(self, span: Span, payloads: Sequence[bytes]) -> None:
        """Keep what somebody else needs, behind what is kept already or beside it."""
        held = self._let_go()
        # Who asked is where this begins, and takes it now.
        if coming_for(span, held, self._where_readers_are()) < 2:
            return
        is_next = any((each.ledger_id, each.end) == span[:2] for each in held)
        if is_next or len(held) < SPANS_MAX:
            self._tail.keep_behind(span.ledger_id, span.first, payloads)

    def _let_go(self) -> list[Span]:
        """Drop what all that are near have passed; what is held then, in the order of their ledgers."""
        tail = self._tail
        if not tail.behind:
            return []
        needed = least_needed([_span_of(each) for each in tail.behind], self._where_readers_are())
        for window, least in zip(tail.behind, needed, strict=True):
            tail.pass_behind(window, least - 1)
        return [_span_of(each) for each in tail.behind]

    def _where_readers_are(self) -> Sequence[Position]:
        """The positions of all, in order; of many, as they were some reads ago."""
        self._since_look += 1
        if not self._positions or self._since_look * LOOKS_PER_READ >= self._tail.reader_count:
            self._positions, self._since_look = self._tail.positions(), 0
        return self._positions


def _span_of(window: TailWindow) -> Span:
    return Span(window.ledger_id, window.first_entry_id, window.end_entry_id)


def _shared(payloads: Sequence[bytes], ask: Ask) -> SharedPayloads:
    return SharedPayloads(payloads[: count_within(map(len, payloads), ask.bytes_max)])
