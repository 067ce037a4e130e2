"""A connection to a bookie, made when it is needed and made again when it is lost; what is common to all kinds of them.

What waits for a connection goes out with it, what is sent in one turn of the loop with one write. What was sent and
not answered fails when the connection is lost, can not be made, or no answer came in time: it is never sent again by
itself, since nobody can tell whether it was carried out.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, TypeAlias, cast

from geminga.bookkeeper.core.addresses import BookieAddress
from geminga.model.errors import ProtocolError
from geminga.runtime import Runtime, get_logger, spawn

#: How long an answer may take (``addEntryTimeoutSec``, ``readEntryTimeoutSec``).
ANSWER_TIMEOUT_S: Final = 5.0
#: How long connecting may take (``clientConnectTimeoutMillis``).
CONNECT_TIMEOUT_S: Final = 10.0
#: Between two attempts to connect that nobody asked for: from the first, doubled up to the second.
RECONNECT_S_MIN: Final = 0.1
RECONNECT_S_MAX: Final = 10.0
#: Requests without an answer, bytes; beyond, one more is refused.
OUTSTANDING_BYTES_MAX: Final = 64 * 1024 * 1024
#: From this mean size of what is written at once it is not put together before, which would copy it.
WRITE_PIECES_BYTES_MIN: Final = 2048

#: Takes what came with one read of the socket; what it gives back ends the connection.
Receiver: TypeAlias = Callable[[bytes], "ProtocolError | None"]

_log = get_logger(__name__)


class KeptConnection(ABC):
    """See the module. Calls and callbacks on the loop's thread."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        host: str,
        port: int,
        *,
        on_state: Callable[[bool], None],
        keeps_connected: bool,
    ) -> None:
        """``name``: of the bookie, for errors.

        ``on_state``: told whether there is a connection after each change, and after each attempt that failed.
        ``keeps_connected``: connect again by itself after a loss.
        """
        self._runtime = runtime
        self._name = name
        self._address = BookieAddress(host, port)
        self._on_state = on_state
        self._keeps_connected = keeps_connected
        self._loop = asyncio.get_running_loop()
        self._link: _Link | None = None
        #: Connections that were made and are gone.
        self.lost_count = 0
        self._is_connecting = False
        self._is_closed = False
        #: What goes out with the next connection, or at the end of this turn.
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._is_flush_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = RECONNECT_S_MIN

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
        self._give_up("its client was closed")

    # ---- of a kind

    @abstractmethod
    def _receiver(self) -> Receiver:
        """What reads the answers of a new connection."""

    @abstractmethod
    def _fail_all(self, why: str) -> None:
        """Nothing that was sent will be answered."""

    @abstractmethod
    def _expire(self, now_s: float) -> float | None:
        """Fail what should have been answered by now; when the next should be, by the loop's time."""

    def _refusal(self, outstanding_bytes: int) -> str | None:
        """Why nothing more can be sent now."""
        if self._is_closed:
            return "its client was closed"
        if outstanding_bytes > OUTSTANDING_BYTES_MAX:
            return f"{outstanding_bytes} bytes have no answer yet"
        return None

    def _write(self, size_bytes: int) -> None:
        """So many bytes were added to what is unsent: see to it that they go out, and that their time passes."""
        self._unsent_bytes += size_bytes
        if self._timer is None:
            self._timer = self._loop.call_later(ANSWER_TIMEOUT_S, self._time_passed)
        if self._link is None:
            self.connect()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _time_passed(self) -> None:
        self._timer = None
        deadline_s = self._expire(self._loop.time())
        if deadline_s is not None:
            if self._timer is not None:  # of what was sent meanwhile, which has longer
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline_s, self._time_passed)

    # ---- the connection

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

    def _new_link(self) -> _Link:
        return _Link(self, self._receiver())

    def lost(self, link: _Link, why: str) -> None:
        """The connection is gone."""
        if link is self._link:
            self._link = None
            self.lost_count += 1
            self._failed(why)

    def _failed(self, why: str) -> None:
        self._give_up(why)
        if self._is_closed:
            return
        if self._keeps_connected and self._retry is None:
            self._retry = self._loop.call_later(self._retry_s, self._try_again)
            self._retry_s = min(2 * self._retry_s, RECONNECT_S_MAX)
        self._on_state(False)

    def _give_up(self, why: str) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0
        self._fail_all(why)

    def _try_again(self) -> None:
        self._retry = None
        self.connect()

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._link is not None and self._unsent:
            unsent, self._unsent = self._unsent, []
            size_bytes, self._unsent_bytes = self._unsent_bytes, 0
            self._link.write(unsent, size_bytes)


class _Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, owner: KeptConnection, receive: Receiver) -> None:
        self._owner = owner
        self._receive = receive
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
        error = self._receive(data)
        if error is not None:
            _log.error("bookie: its answers can not be read: %s", error)
            self._end(f"its answers can not be read: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        self._end(f"the connection was lost: {exc}" if exc is not None else "the connection was closed")

    def write(self, pieces: list[bytes], size_bytes: int) -> None:
        """Send; what is outstanding is bounded by the owner."""
        if self._transport is None:
            return
        if size_bytes >= WRITE_PIECES_BYTES_MIN * len(pieces):
            self._transport.writelines(pieces)
        else:
            self._transport.write(b"".join(pieces))

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.close()

    def _end(self, why: str) -> None:
        if not self.is_lost:
            self.is_lost = True
            if self._transport is not None:
                self._transport.abort()
            self._owner.lost(self, why)
