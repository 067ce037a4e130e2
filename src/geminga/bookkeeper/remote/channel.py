"""One connection to a bookie, made when it is needed and made again when it is lost.

Requests carry a number of this channel's and are answered in any order, each once: by the bookie, or with an error when
the connection is lost, can not be made, or no answer came in time. An answer that comes after that is passed over. What
waits for a connection goes out with it; a request that failed is never sent again by itself, since nobody can tell
whether it was carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, cast

from geminga.bookkeeper.core.addresses import BookieAddress
from geminga.model.errors import StorageError
from geminga.runtime import Runtime, get_logger, spawn
from geminga.wire.bookkeeper.answers import Answer
from geminga.wire.bookkeeper.stream import AnswerDecoder

#: How long an answer may take (``addEntryTimeoutSec``, ``readEntryTimeoutSec``).
ANSWER_TIMEOUT_S: Final = 5.0
#: How long connecting may take (``clientConnectTimeoutMillis``).
CONNECT_TIMEOUT_S: Final = 10.0
#: Between two attempts to connect that nobody asked for: from the first, doubled up to the second.
RECONNECT_S_MIN: Final = 0.1
RECONNECT_S_MAX: Final = 10.0
#: Requests without an answer, bytes; one more is refused.
OUTSTANDING_BYTES_MAX: Final = 64 * 1024 * 1024

#: ``answered(tag, answer or error)``: once; the tag is what :meth:`Channel.send` was given.
Answered: TypeAlias = Callable[[int, "Answer | StorageError"], None]

_log = get_logger(__name__)


class _Request(NamedTuple):
    """One without an answer."""

    answered: Answered
    tag: int
    size_bytes: int
    #: By the loop's time.
    deadline: float


class Channel:
    """See the module. Calls and callbacks on the loop's thread."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        host: str,
        port: int,
        version: int,
        *,
        frame_bytes_max: int,
        on_state: Callable[[bool], None],
        keeps_connected: bool,
    ) -> None:
        """``name``: of the bookie, for errors. ``version``: of the protocol. ``frame_bytes_max``: of an answer.

        ``on_state``: told whether there is a connection after each change, and after each attempt that failed.
        ``keeps_connected``: connect again by itself after a loss.
        """
        self._runtime = runtime
        self._name = name
        self._address = BookieAddress(host, port)
        self._version = version
        self._frame_bytes_max = frame_bytes_max
        self._on_state = on_state
        self._keeps_connected = keeps_connected
        self._loop = asyncio.get_running_loop()
        self._link: _Link | None = None
        #: Connections that were made and are gone.
        self.lost_count = 0
        self._is_connecting = False
        self._is_closed = False
        self._next_id = 0
        #: By number, in the order they were sent, which is that of their deadlines.
        self._requests: dict[int, _Request] = {}
        self._outstanding_bytes = 0
        #: What goes out with the next connection, or at the end of this turn.
        self._unsent: list[bytes] = []
        self._is_flush_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = RECONNECT_S_MIN

    def send(self, make: Callable[[int], bytes], answered: Answered, tag: int = 0) -> None:
        """Send what ``make(number)`` gives; ``answered`` once, never within this call."""
        if self._is_closed or self._outstanding_bytes > OUTSTANDING_BYTES_MAX:
            why = "its client was closed" if self._is_closed else f"{self._outstanding_bytes} bytes have no answer yet"
            self._loop.call_soon(answered, tag, StorageError(f"bookie {self._name}: {why}"))
            return
        self._next_id += 1
        data = make(self._next_id)
        deadline = self._loop.time() + ANSWER_TIMEOUT_S
        self._requests[self._next_id] = _Request(answered, tag, len(data), deadline)
        self._outstanding_bytes += len(data)
        self._unsent.append(data)
        if self._timer is None:
            self._timer = self._loop.call_later(ANSWER_TIMEOUT_S, self._time_passed)
        if self._link is None:
            self.connect()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def connect(self) -> None:
        """Begin to connect, unless it is connected or on its way."""
        if self._link is None and not self._is_connecting and not self._is_closed:
            self._is_connecting = True
            if self._retry is not None:
                self._retry.cancel()
                self._retry = None
            spawn(self._connect(), name=f"bookie-connect-{self._name}")

    async def close(self) -> None:
        """End it: everything outstanding fails."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._link is not None:
            self._link.close()
        self._fail_all("its client was closed")

    # ---- the connection

    def _new_link(self) -> _Link:
        return _Link(self, AnswerDecoder(self._version, self._frame_bytes_max))

    async def _connect(self) -> None:
        path = self._address.local_path
        network = self._runtime.network
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if path is not None:
                    _, link = await network.connect_local(self._new_link, path)
                else:
                    _, link = await network.connect(self._new_link, *self._address)
        except (OSError, TimeoutError) as error:
            self._is_connecting = False
            self._failed(f"not reachable at {self._address}: {error}")
            return
        self._is_connecting = False
        assert isinstance(link, _Link)
        if self._is_closed:
            link.close()
            return
        if link.is_lost:
            self._failed("the connection was lost at once")
            return
        self._link = link
        self._retry_s = RECONNECT_S_MIN
        self._flush()
        self._on_state(True)

    def lost(self, link: _Link, why: str) -> None:
        """The connection is gone."""
        if link is self._link:
            self._link = None
            self.lost_count += 1
            self._failed(why)

    def _failed(self, why: str) -> None:
        self._fail_all(why)
        if self._is_closed:
            return
        if self._keeps_connected and self._retry is None:
            self._retry = self._loop.call_later(self._retry_s, self._try_again)
            self._retry_s = min(2 * self._retry_s, RECONNECT_S_MAX)
        self._on_state(False)

    def _try_again(self) -> None:
        self._retry = None
        self.connect()

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._link is not None and self._unsent:
            unsent, self._unsent = self._unsent, []
            self._link.write(b"".join(unsent))

    # ---- answers

    def got(self, answers: list[Answer]) -> None:
        """What came with one read of the socket."""
        requests = self._requests
        for answer in answers:
            request = requests.pop(answer.txn_id, None)
            if request is not None:
                self._outstanding_bytes -= request.size_bytes
                request.answered(request.tag, answer)

    def _fail_all(self, why: str) -> None:
        requests, self._requests = self._requests, {}
        self._unsent.clear()
        self._outstanding_bytes = 0
        for request in requests.values():
            request.answered(request.tag, StorageError(f"bookie {self._name}: {why}"))

    def _time_passed(self) -> None:
        self._timer = None
        now = self._loop.time()
        late = []
        for number, request in self._requests.items():
            if request.deadline > now:
                self._timer = self._loop.call_at(request.deadline, self._time_passed)
                break
            late.append(number)
        for number in late:
            late_request = self._requests.pop(number, None)
            if late_request is not None:
                self._outstanding_bytes -= late_request.size_bytes
                error = StorageError(f"bookie {self._name} did not answer within {ANSWER_TIMEOUT_S:g} s")
                late_request.answered(late_request.tag, error)


class _Link(asyncio.Protocol):
    """One connection of a channel."""

    def __init__(self, channel: Channel, decoder: AnswerDecoder) -> None:
        self._channel = channel
        self._decoder = decoder
        self._transport: asyncio.Transport | None = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        # No isinstance: uvloop's transports are not asyncio's.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers, whole ones and a part of the next."""
        if self.is_lost:
            return
        self._channel.got(self._decoder.feed(data))
        if self._decoder.error is not None:
            _log.error("bookie: its answers can not be read: %s", self._decoder.error)
            self._end(f"its answers can not be read: {self._decoder.error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        self._end(f"the connection was lost: {exc}" if exc is not None else "the connection was closed")

    def write(self, data: bytes) -> None:
        """Send; what is outstanding is bounded by the channel."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.close()

    def _end(self, why: str) -> None:
        if not self.is_lost:
            self.is_lost = True
            if self._transport is not None:
                self._transport.abort()
            self._channel.lost(self, why)
