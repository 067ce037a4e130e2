"""A connection to a bookie, made when it is needed and made again when it is lost; what is common to all kinds of them.

What waits for a connection goes out with it, what is sent in one turn of the loop with one write. What was sent and
not answered fails when the connection is lost, can not be made, or no answer came in time: it is never sent again by
itself, since nobody can tell whether it was carried out.

Bytes count until they have left the process, whether their request was given up meanwhile or not. A bookie that takes
nothing for a while (it hangs, or a firewall drops) is cut off, and nothing is sent to it for a while; then it gets
little, until it answers. What it missed comes to it by auto-recovery's check of what each bookie has.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias, cast

from geminga.bookkeeper.core.addresses import BookieAddress
from geminga.model.errors import ProtocolError
from geminga.runtime import Runtime, get_logger, let_go, spawn

#: How long an answer may take (``addEntryTimeoutSec``, ``readEntryTimeoutSec``).
ANSWER_TIMEOUT_S: Final = 5.0
#: How long connecting may take (``clientConnectTimeoutMillis``).
CONNECT_TIMEOUT_S: Final = 10.0
#: Between two attempts to connect that nobody asked for: from the first, doubled up to the second.
RECONNECT_S_MIN: Final = 0.1
RECONNECT_S_MAX: Final = 10.0
#: Requests without an answer, or that have not left the process, bytes; beyond, one more is refused.
OUTSTANDING_BYTES_MAX: Final = 64 * 1024 * 1024
#: Seconds after which a bookie that takes nothing of what it is sent is cut off, and between two looks at that.
STALL_S: Final = 5.0
STALL_LOOK_S: Final = 1.0
#: Seconds that nothing is sent to it then: from the first, doubled up to the second until it answers.
REST_S_MIN: Final = 1.0
REST_S_MAX: Final = 60.0
#: ``OUTSTANDING_BYTES_MAX`` of one that was cut off for that, until it answers.
DOUBTED_BYTES_MAX: Final = 1024 * 1024
#: The same of bytes that have not left, of all connections that share a backlog and are behind.
BACKLOG_BYTES_MAX: Final = 256 * 1024 * 1024
#: From this mean size of what is written at once it is not put together before, which would copy it.
WRITE_PIECES_BYTES_MIN: Final = 2048

#: Gives the context of a connection with TLS.
TlsOfBookies: TypeAlias = Callable[[], ssl.SSLContext]
#: Takes what came with one read of the socket; what it gives back ends the connection.
Receiver: TypeAlias = Callable[[bytes], "ProtocolError | None"]

_log = get_logger(__name__)


class Backlog:
    """What bookies that are behind, or are being connected to, have not taken, over all connections that share it."""

    __slots__ = ("_sizes", "size_bytes")

    def __init__(self) -> None:
        self._sizes: dict[KeptConnection, int] = {}
        self.size_bytes = 0

    def note(self, connection: KeptConnection, size_bytes: int) -> None:
        """So much it has not taken now."""
        self.size_bytes += size_bytes - self._sizes.get(connection, 0)
        self._sizes[connection] = size_bytes

    def forget(self, connection: KeptConnection) -> None:
        """It took everything, or is gone with it."""
        self.size_bytes -= self._sizes.pop(connection, 0)


class BookieEnd(NamedTuple):
    """The other end of a connection."""

    #: Of the bookie, for errors.
    name: str
    address: BookieAddress
    #: Shared with other connections.
    backlog: Backlog
    #: What a new connection gets; None: it is plain.
    tls: TlsOfBookies | None


class KeptConnection(ABC):
    """See the module. Calls and callbacks on the loop's thread."""

    def __init__(
        self, runtime: Runtime, bookie: BookieEnd, *, on_state: Callable[[bool], None], keeps_connected: bool
    ) -> None:
        """``on_state``: told whether there is a connection after each change, and after each attempt that failed.

        ``keeps_connected``: connect again by itself after a loss.
        """
        self._runtime = runtime
        self._name, self._address, self._backlog, self._tls = bookie
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
        #: It was cut off because it took nothing, so often since it answered last; until when nothing is sent to it.
        self._stalls = 0
        self._rests_until_s = 0.0

    def connect(self) -> None:
        """Begin to connect, unless it is connected or on its way, or was cut off and has its rest."""
        if self._link is None and not self._is_connecting and not self._is_closed:
            if self._rests_until_s > self._loop.time():
                if self._retry is None:
                    self._retry = self._loop.call_at(self._rests_until_s, self._try_again)
                return
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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._link is not None:
            self._link.close()
        self._give_up("its client was closed")
        # It may be of whoever has this connection: no cycle is left for the collector.
        self._on_state = _nobody_hears

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
        if self._stalls and self._rests_until_s > self._loop.time():
            return "it took nothing of what it was sent, and is left alone for a while"
        limit = DOUBTED_BYTES_MAX if self._stalls else OUTSTANDING_BYTES_MAX
        if outstanding_bytes > limit:
            return f"{outstanding_bytes} bytes have no answer yet"
        link = self._link
        if link is not None and not link.is_behind:
            return None
        behind_bytes = self._unsent_bytes + (link.behind_bytes if link is not None else 0)
        self._backlog.note(self, behind_bytes)
        if behind_bytes > limit:
            return f"{behind_bytes} bytes are not taken by it yet"
        if behind_bytes and self._backlog.size_bytes > BACKLOG_BYTES_MAX:
            return f"{self._backlog.size_bytes} bytes are not taken yet by bookies that are behind, of which it is one"
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
                elif self._tls is not None:
                    from geminga.bookkeeper.remote.start_tls import connect_secured

                    _, link = await connect_secured(network, self._new_link, *self._address, self._tls())
                else:
                    _, link = await network.connect(self._new_link, *self._address)
        except (OSError, TimeoutError) as error:  # ssl.SSLError is one
            self._is_connecting = False
            is_late = isinstance(error, TimeoutError)
            why = str(error) or (f"no connection within {CONNECT_TIMEOUT_S:g} s" if is_late else type(error).__name__)
            self._failed(f"not reachable at {self._address}: {why}")
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

    # ---- for its connection

    def keeps_up(self) -> None:
        """The bookie took what was sent."""
        self._backlog.forget(self)

    def answered(self) -> None:
        """Something came from the bookie."""
        self._stalls = 0

    def stalled(self, link: _Link) -> None:
        """The bookie takes nothing: end it, and leave it alone for a while."""
        rest_s = min(REST_S_MIN * 2**self._stalls, REST_S_MAX)
        self._stalls = min(self._stalls + 1, 16)
        self._rests_until_s = self._loop.time() + rest_s
        _log.warning(
            "bookie %s is cut off and left alone for %g s: it takes nothing of what it is sent", self._name, rest_s
        )
        link.end(f"it took nothing of what it was sent for {STALL_S:g} s")

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
            due_s = max(self._loop.time() + self._retry_s, self._rests_until_s)
            self._retry = self._loop.call_at(due_s, self._try_again)
            self._retry_s = min(2 * self._retry_s, RECONNECT_S_MAX)
        self._on_state(False)

    def _give_up(self, why: str) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0
        self._backlog.forget(self)
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
            if not self._link.is_behind:
                self._backlog.forget(self)


def _nobody_hears(_: bool) -> None:
    """Instead of the owner of a connection that is closed."""


class _Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, owner: KeptConnection, receive: Receiver) -> None:
        self._owner = owner
        self._receive = receive
        self._transport: asyncio.Transport | None = None
        self.is_lost = False
        #: The transport is over its mark.
        self.is_behind = False
        self._written_bytes = 0
        #: What had left of it when something last had, and when that was.
        self._left_bytes = 0
        self._left_s = 0.0
        self._look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        # No isinstance: uvloop's transports are not asyncio's.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers, whole ones and a part of the next."""
        if self.is_lost:
            return
        self._owner.answered()
        error = self._receive(data)
        if error is not None:
            _log.error("bookie: its answers can not be read: %s", error)
            self.end(f"its answers can not be read: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        self.end(f"the connection was lost: {exc}" if exc is not None else "the connection was closed")
        if self._transport is not None:
            let_go(self._transport)
            self._transport = None

    def pause_writing(self) -> None:
        """The bookie does not take what it is sent: how long, is looked at."""
        self.is_behind = True
        loop = asyncio.get_running_loop()
        self._left_bytes, self._left_s = self._written_bytes - self.behind_bytes, loop.time()
        self._look = loop.call_later(STALL_LOOK_S, self._look_again)

    def resume_writing(self) -> None:
        """It did."""
        self.is_behind = False
        self._stop_looking()
        self._owner.keeps_up()

    @property
    def behind_bytes(self) -> int:
        """What the bookie has not taken."""
        return self._transport.get_write_buffer_size() if self._transport is not None and not self.is_lost else 0

    def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        left_bytes = self._written_bytes - self.behind_bytes
        if left_bytes != self._left_bytes:
            self._left_bytes, self._left_s = left_bytes, loop.time()
        elif loop.time() - self._left_s >= STALL_S:
            self._look = None
            self._owner.stalled(self)
            return
        self._look = loop.call_later(STALL_LOOK_S, self._look_again)

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def write(self, pieces: list[bytes], size_bytes: int) -> None:
        """Send; what is not taken is bounded by the owner."""
        if self._transport is None:
            return
        self._written_bytes += size_bytes
        if size_bytes >= WRITE_PIECES_BYTES_MIN * len(pieces):
            self._transport.writelines(pieces)
        else:
            self._transport.write(b"".join(pieces))

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.close()

    def end(self, why: str) -> None:
        """End it at once, if it is not."""
        if not self.is_lost:
            self.is_lost = True
            self._stop_looking()
            if self._transport is not None:
                self._transport.abort()
            self._owner.lost(self, why)
