"""Calls of a store on their way over a metadata socket: order, number, and what becomes of them without a connection.

What was not sent waits for the connection as long as a session lives; what was sent and not answered is unknown if it
writes, and asked again if it only reads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from geminga.metadata.core.socket_codec import encode, encode_numbered
from geminga.metadata.core.socket_messages import (
    CallFailure,
    Result,
    StoreOperation,
    StoreRequest,
    StoreResponse,
    Watch,
    error_of,
)
from geminga.model.errors import (
    GemingaError,
    MetadataUnavailableError,
    StorageError,
    UnknownOutcomeError,
)

#: Calls that were sent and not answered: as many as the server carries out.
IN_FLIGHT_MAX: Final = 256
#: Calls that wait to be sent, and the bytes of their values.
QUEUED_MAX: Final = 100_000
QUEUED_BYTES_MAX: Final = 256 * 1024 * 1024
#: Times that a read is sent whose connection was lost each time.
READ_ATTEMPTS_MAX: Final = 5
#: Ids begin again behind this one.
_ID_MAX: Final = 0xFFFF_FFFF

_WRITES: Final = frozenset(
    (StoreOperation.PUT, StoreOperation.TAKE_SEQUENCES, StoreOperation.DELETE, StoreOperation.CLOSE)
)


class _Call:
    """One call; ``reply`` is what its caller waits for."""

    __slots__ = ("attempts", "reply", "request")

    def __init__(self, request: StoreRequest, reply: asyncio.Future[Result]) -> None:
        self.request = request
        self.reply = reply
        self.attempts = 0

    @property
    def what(self) -> str:
        """For errors."""
        return f"{self.request.operation.name.lower()} {self.request.path}".rstrip()

    @property
    def is_write(self) -> bool:
        return self.request.operation in _WRITES

    def fail(self, error: GemingaError) -> None:
        """Tell the caller, unless he is gone."""
        if not self.reply.done():
            self.reply.set_exception(error)


class Calls:
    """All calls of a store; on the loop's thread."""

    def __init__(self) -> None:
        self._queue: deque[_Call] = deque()
        self._queued_bytes = 0
        #: By id, in the order sent.
        self._sent: dict[int, _Call] = {}
        self._last_id = 0
        #: Watches that begin or end, ahead of the queue.
        self._watches: list[bytes] = []
        self._write: Callable[[bytes], None] | None = None
        #: Why nothing is taken now.
        self._refusal: Callable[[], StorageError] | None = None
        self._is_due = False

    async def ask(self, operation: StoreOperation, path: str = "", **fields: object) -> Result:
        """Call and wait. Raises StorageError."""
        request = StoreRequest(0, operation, path, **fields)  # type: ignore[arg-type]
        if self._refusal is not None:
            raise self._refusal()
        if len(self._queue) >= QUEUED_MAX or self._queued_bytes + len(request.value) > QUEUED_BYTES_MAX:
            raise MetadataUnavailableError(f"{len(self._queue)} metadata requests are waiting")
        reply: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.append(_Call(request, reply))
        self._queued_bytes += len(request.value)
        self._send_soon()
        try:
            return await reply
        finally:
            del reply  # see runtime's value_of

    def watch(self, watch: Watch) -> None:
        """Begin or end one, ahead of every call that is not sent yet; without a connection it is not said."""
        if self._write is not None:
            self._watches.append(encode(watch))
            self._send_soon()

    # ---- what the connection tells

    def connected(self, write: Callable[[bytes], None]) -> None:
        """There is a session: go on, through ``write``."""
        self._write = write
        self._refusal = None
        self._send_soon()

    def lost(self) -> None:
        """There is no connection any more: what was sent is unknown, or asked again."""
        self._write = None
        self._watches.clear()
        again: list[_Call] = []
        sent, self._sent = self._sent, {}
        for call in sent.values():
            if call.is_write:
                call.fail(UnknownOutcomeError(f"{call.what}: connection lost before the reply"))
            elif self._refusal is not None:
                call.fail(self._refusal())
            elif call.attempts >= READ_ATTEMPTS_MAX:
                call.fail(MetadataUnavailableError(f"{call.what}: connection lost before the reply"))
            elif not call.reply.done():
                again.append(call)
        self._queue.extendleft(reversed(again))

    def refuse(self, refusal: Callable[[], StorageError]) -> None:
        """Fail what waits, and what comes until :meth:`connected`."""
        self._refusal = refusal
        queue, self._queue = self._queue, deque()
        self._queued_bytes = 0
        for call in queue:
            call.fail(refusal())

    def answered(self, answer: StoreResponse) -> bool:
        """An answer came; False if nobody asked."""
        call = self._sent.pop(answer.request_id, None)
        if call is None:
            return False
        if self._queue:
            self._send_soon()
        if isinstance(answer.result, CallFailure):
            call.fail(error_of(answer.result))
        elif not call.reply.done():
            call.reply.set_result(answer.result)
        return True

    # ---- inside

    def _send_soon(self) -> None:
        """With everything that this turn of the loop adds."""
        if self._write is not None and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        if self._write is None:
            return
        frames, self._watches = self._watches, []
        while self._queue and len(self._sent) < IN_FLIGHT_MAX:
            call = self._queue.popleft()
            self._queued_bytes -= len(call.request.value)
            if call.reply.done():
                continue  # nobody waits for it any more
            call.attempts += 1
            self._last_id = self._last_id % _ID_MAX + 1
            self._sent[self._last_id] = call
            frames.append(encode_numbered(call.request, self._last_id))
        if frames:
            self._write(b"".join(frames))
