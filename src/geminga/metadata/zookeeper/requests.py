"""Requests on their way to ZooKeeper and back: order, number, and what becomes of them without a connection.

What was not sent waits for the connection as long as a session lives; what was sent and not answered is unknown if it
writes, and asked again if it only reads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Final, TypeAlias

from kazoo import exceptions as zk

from geminga.metadata.zookeeper.kazoo_thread import AsyncResult, Inbox, Kazoo
from geminga.model.errors import (
    MetadataError,
    MetadataUnavailableError,
    SessionExpiredError,
    StorageError,
    UnknownOutcomeError,
)
from geminga.runtime.waiting import settle

#: Requests handed to kazoo and not answered. It is woken by a byte each through a pipe that holds more than these.
IN_FLIGHT_MAX: Final = 128
#: Requests that wait to be handed over, and the bytes of their values.
QUEUED_REQUESTS_MAX: Final = 100_000
QUEUED_BYTES_MAX: Final = 256 * 1024 * 1024
#: Times that a read is sent whose connection was lost each time.
READ_ATTEMPTS_MAX: Final = 5

#: Told what came, or what went wrong.
Done: TypeAlias = Callable[[Kazoo, BaseException | None], None]
_LOST: Final = (zk.ConnectionLoss, zk.ConnectionClosedError, zk.OperationTimeoutError, zk.SessionMovedError)


def _nobody(_value: Kazoo, _error: BaseException | None) -> None:
    """Nobody is told."""


@dataclass(slots=True, eq=False)
class ZooKeeperRequest:
    """One request; ``payload`` is kazoo's."""

    #: For errors: ``put /a``.
    what: str
    payload: Kazoo
    #: None: it was told already.
    done: Done | None
    _: KW_ONLY
    is_write: bool
    size_bytes: int
    attempts: int = 0

    def end(self, value: Kazoo, error: BaseException | None = None) -> None:
        """Tell once."""
        done, self.done = self.done, None
        if done is not None:
            done(value, error)


class Requests:
    """All requests of a store; on the loop's thread."""

    __slots__ = (
        "_again",
        "_in_flight",
        "_inbox",
        "_is_pumping",
        "_queue",
        "_queued_bytes",
        "_refusal",
        "_submit",
        "is_connected",
    )

    def __init__(self, inbox: Inbox, submit: Callable[[Sequence[tuple[Kazoo, AsyncResult]]], None]) -> None:
        """``submit`` hands a group to kazoo."""
        self._inbox = inbox
        self._submit = submit
        self._is_pumping = False
        self._queue: deque[ZooKeeperRequest] = deque()
        self._queued_bytes = 0
        self._in_flight: dict[ZooKeeperRequest, None] = {}
        #: Reads whose connection was lost, in their order.
        self._again: list[ZooKeeperRequest] = []
        #: Why nothing is taken now.
        self._refusal: Callable[[], StorageError] | None = None
        self.is_connected = False

    async def ask(self, what: str, payload: Kazoo, *, is_write: bool, size_bytes: int = 0) -> Kazoo:
        """Send and wait. Raises kazoo's errors that are answers, else StorageError."""
        reply: asyncio.Future[Kazoo] = asyncio.get_running_loop().create_future()
        request = self.start(what, payload, partial(settle, reply), is_write=is_write, size_bytes=size_bytes)
        try:
            return await reply
        except asyncio.CancelledError:
            request.done = None  # a read that nobody waits for is not asked again and again
            raise
        finally:
            del reply, request  # see runtime's value_of

    def start(
        self, what: str, payload: Kazoo, done: Done, *, is_write: bool = False, size_bytes: int = 0
    ) -> ZooKeeperRequest:
        """Send when it is its turn; ``done`` is called once, perhaps at once."""
        request = ZooKeeperRequest(what, payload, done, is_write=is_write, size_bytes=size_bytes)
        if self._refusal is not None:
            request.end(None, self._refusal())
        elif len(self._queue) >= QUEUED_REQUESTS_MAX or self._queued_bytes + size_bytes > QUEUED_BYTES_MAX:
            request.end(None, MetadataUnavailableError(f"{len(self._queue)} metadata requests are waiting"))
        else:
            self._queue.append(request)
            self._queued_bytes += size_bytes
            self._pump_soon()
        return request

    def connected(self, first: Kazoo, told: Done = _nobody) -> None:
        """There is a session and a connection: go on, after a request of whose answer ``told`` is told."""
        self._refusal = None
        self.is_connected = True
        for request in self._again:
            self._queued_bytes += request.size_bytes
        self._queue.extendleft(reversed(self._again))
        self._again.clear()
        first_request = ZooKeeperRequest("first", first, told, is_write=True, size_bytes=0)
        self._queue.appendleft(first_request)
        self._pump_soon()

    def lost(self) -> None:
        """The connection is lost; what waits goes on waiting."""
        self.is_connected = False

    def refuse(self, refusal: Callable[[], StorageError], *, with_sent: bool = False) -> None:
        """Fail what waits, and what comes until :meth:`connected`. ``with_sent``: nothing is answered any more."""
        self.is_connected = False
        self._refusal = refusal
        waiting = [*self._again, *self._queue]
        self._again.clear()
        self._queue.clear()
        self._queued_bytes = 0
        for request in waiting:
            request.end(None, refusal())
        if with_sent:
            for request in list(self._in_flight):
                self._end_sent(request)

    def _end_sent(self, request: ZooKeeperRequest) -> None:
        if request.is_write:
            request.end(None, UnknownOutcomeError(f"{request.what}: connection lost before the reply"))
        else:
            request.end(None, MetadataUnavailableError(f"{request.what}: connection lost before the reply"))

    def _pump_soon(self) -> None:
        """With everything that this turn of the loop adds."""
        if self.is_connected and not self._is_pumping and len(self._in_flight) < IN_FLIGHT_MAX:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        if not self.is_connected:
            return
        group: list[tuple[Kazoo, AsyncResult]] = []
        while self._queue and len(self._in_flight) < IN_FLIGHT_MAX:
            request = self._queue.popleft()
            self._queued_bytes -= request.size_bytes
            if request.done is None and not request.is_write:
                continue
            request.attempts += 1
            self._in_flight[request] = None
            answer = AsyncResult()
            answer.rawlink(partial(self._inbox.put, self._answered, request))
            group.append((request.payload, answer))
        if group:
            self._submit(group)

    def _answered(self, request: ZooKeeperRequest, answer: AsyncResult) -> None:
        self._in_flight.pop(request, None)
        error = answer.exception
        if error is None:
            request.end(answer.get())
        elif isinstance(error, zk.SessionExpiredError):
            request.end(None, SessionExpiredError(f"{request.what}: the metadata session is over"))
        elif not isinstance(error, _LOST):
            is_answer = isinstance(error, zk.ZookeeperError)
            request.end(None, error if is_answer else MetadataError(f"{request.what}: {error!r}"))
        else:
            # kazoo tells of the connection after the answers that it cost.
            self.is_connected = False
            if request.is_write or self._refusal is not None or request.attempts >= READ_ATTEMPTS_MAX:
                self._end_sent(request)
            elif request.done is not None:
                self._again.append(request)
        self._pump_soon()
