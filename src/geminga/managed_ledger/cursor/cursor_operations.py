"""Operations on a cursor that wait until what they are about is in memory.

While nothing of a cursor's state is put away every operation is carried out within the call, and this is not made. Else
operations are carried out in the order in which they were asked for; the first one's ledgers are brought back one
after another and stay until it is done. Without room for one, what was changed and stands in the way is written first.
A ledger that can not be read is tried again every second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple, Protocol

from geminga.managed_ledger.rules.cursor import CursorState
from geminga.model.errors import LedgerClosedError, StorageError
from geminga.runtime import get_logger

#: Operations of one cursor that may wait; more are refused.
WAITING_MAX: Final = 10_000
#: Seconds until a ledger that could not be read is tried again.
LOAD_RETRY_S: Final = 1.0

Refuse = Callable[[StorageError], None]
LoadDone = Callable[[StorageError | None], None]

_log = get_logger(__name__)


class StateLoader(Protocol):
    """A cursor, as far as it concerns this."""

    name: str
    state: CursorState
    is_closed: bool

    def make_room(self, done: Callable[[], None]) -> None:
        """Before a ledger is brought back: keep to the memory limit, if need be by writing what changed."""
        ...

    def load_ledger(self, ledger_id: int, done: LoadDone) -> None:
        """Bring back what is kept of a ledger."""
        ...


class _Operation(NamedTuple):
    ledger_ids: Collection[int]
    action: Callable[[], None]
    refuse: Refuse


class CursorOperations:
    """See the module."""

    __slots__ = ("_cursor", "_idle", "_is_draining", "_is_ending", "_is_loading", "_queue", "_retry")

    def __init__(self, cursor: StateLoader) -> None:
        self._cursor = cursor
        self._queue: deque[_Operation] = deque()
        self._is_draining = False
        self._is_loading = False
        self._is_ending = False
        self._retry: asyncio.TimerHandle | None = None
        self._idle: list[asyncio.Future[None]] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, or what waited is just being carried out: an operation need not queue up."""
        return not self._queue or self._is_draining

    @property
    def pinned_ledgers(self) -> Collection[int]:
        """Ledgers that the next operation needs."""
        return self._queue[0].ledger_ids if self._queue else ()

    def run(self, ledger_ids: Collection[int], action: Callable[[], None], refuse: Refuse) -> None:
        """Carry out ``action`` when these ledgers are in memory, possibly within the call.

        Or call ``refuse`` with the error: too many wait, or the cursor is closed.
        """
        if self.is_idle and self._missing(ledger_ids) is None:
            action()
            return
        if len(self._queue) >= WAITING_MAX:
            refuse(LedgerClosedError(f"cursor {self._cursor.name}: {WAITING_MAX} operations wait for its state"))
            return
        self._queue.append(_Operation(ledger_ids, action, refuse))
        self._drain()

    async def finish(self) -> None:
        """The cursor is about to be closed: until nothing waits any more. What can not be read now is refused."""
        self._is_ending = True
        if self._retry is not None:
            self._retry.cancel()
            self._load_again()
        while self._queue:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future
        self._is_ending = False

    def refuse_all(self, error: StorageError) -> None:
        """The cursor ends, or was moved elsewhere: nothing that waits is carried out."""
        queue, self._queue = self._queue, deque()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
            self._is_loading = False
        for operation in queue:
            operation.refuse(error)
        self._tell_idle()

    def _missing(self, ledger_ids: Collection[int]) -> int | None:
        away = self._cursor.state.acked.away
        return None if away is None else next((ledger_id for ledger_id in ledger_ids if ledger_id in away), None)

    def _drain(self) -> None:
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self._queue and not self._is_loading:
                missing = self._missing(self._queue[0].ledger_ids)
                if missing is None:
                    self._queue.popleft().action()
                else:
                    self._is_loading = True
                    self._cursor.make_room(partial(self._load, missing))
        finally:
            self._is_draining = False
        if not self._queue:
            self._tell_idle()

    def _load(self, ledger_id: int) -> None:
        self._cursor.load_ledger(ledger_id, self._loaded)

    def _loaded(self, error: StorageError | None) -> None:
        if error is None:
            self._is_loading = False
            self._drain()
        elif self._is_ending or self._cursor.is_closed:
            self._is_loading = False
            self.refuse_all(error)
        else:
            _log.warning("%s: its state can not be read, trying again: %s", self._cursor.name, error)
            self._retry = asyncio.get_running_loop().call_later(LOAD_RETRY_S, self._load_again)

    def _load_again(self) -> None:
        self._retry = None
        self._is_loading = False
        self._drain()

    def _tell_idle(self) -> None:
        idle, self._idle = self._idle, []
        for future in idle:
            if not future.done():
                future.set_result(None)
