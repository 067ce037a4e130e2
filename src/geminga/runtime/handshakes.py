"""TLS handshakes of accepted connections: bounded in number and time, and nothing is made before they are done.

A handshake that was begun holds what OpenSSL and the loop keep for it, some 300 KiB. Beyond :data:`HANDSHAKES_MAX` of
them on a listener a further one cuts off the oldest if that is older than an honest one gets to be; beyond
:data:`HANDSHAKES_LIMIT` in any case. So clients that all come back at once are served, and halves of handshakes that
somebody leaves lying are what makes room.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from geminga.runtime.log import SparseWarnings, get_logger
from geminga.runtime.network import keep_below, let_go
from geminga.runtime.ports import ServerTls
from geminga.runtime.spawn import spawn

#: Under way on one listener, unless they are young, and in any case.
HANDSHAKES_MAX: Final = 256
HANDSHAKES_LIMIT: Final = 1024
#: Seconds that an honest one takes at most, where not all others have to be served before.
HONEST_S: Final = 0.5

_log = get_logger(__name__)


class Handshakes:
    """Of one listener."""

    __slots__ = ("_factory", "_loop", "_place", "_tls", "_under_way", "_warnings")

    def __init__(self, tls: ServerTls, factory: Callable[[], asyncio.BaseProtocol], place: str) -> None:
        """``place``: which listener, for the log."""
        self._tls = tls
        self._factory = factory
        self._place = place
        self._loop = asyncio.get_running_loop()
        #: Oldest first, with the loop's time when they began.
        self._under_way: dict[asyncio.Task[None], float] = {}
        self._warnings = SparseWarnings(_log, self._loop.time)

    @property
    def under_way(self) -> int:
        """How many."""
        return len(self._under_way)

    def begin(self, connection: socket.socket, factory: Callable[[], asyncio.BaseProtocol] | None = None) -> None:
        """The protocol is told of the connection once its handshake is done; of one that fails it never hears.

        ``factory`` makes it; None: that of the listener does.
        """
        now_s = self._loop.time()
        count = len(self._under_way)
        if count >= HANDSHAKES_MAX:
            oldest, begun_s = next(iter(self._under_way.items()))
            if count >= HANDSHAKES_LIMIT or now_s - begun_s >= HONEST_S:
                del self._under_way[oldest]
                oldest.cancel()
                self._warnings.warn(
                    f"{self._place}: more than {HANDSHAKES_MAX} TLS handshakes are under way; the oldest are cut off",
                    "many",
                )
        task = spawn(self._establish(connection, factory or self._factory), name=f"TLS handshake on {self._place}")
        self._under_way[task] = now_s
        task.add_done_callback(partial(self._ended, connection))

    def close(self) -> None:
        """End those under way."""
        for task in tuple(self._under_way):
            task.cancel()

    def _ended(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        if task.cancelled():  # perhaps before it had begun, so that nothing of it ran
            connection.close()

    async def _establish(self, connection: socket.socket, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        try:
            # uvloop's is no such loop, and its transports leave nothing.
            if isinstance(self._loop, asyncio.BaseEventLoop):
                await self._establish_in_steps(connection, factory)
                return
            await self._loop.connect_accepted_socket(
                lambda: _AfterHandshake(factory),
                connection,
                ssl=self._tls.context(),
                ssl_handshake_timeout=self._tls.handshake_s,
            )
        except OSError as error:  # ssl.SSLError is one
            connection.close()
            self._note(error)
            # Its frames know the future that holds it: a cycle with all that the handshake held.
            error.__traceback__ = None

    async def _establish_in_steps(self, connection: socket.socket, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """The transport below that of TLS keeps a cycle of its own (:func:`let_go`), so that it has to be known."""
        below, _ = await self._loop.connect_accepted_socket(_Unread, connection)
        after = _AfterHandshake(factory)
        secured = None
        try:
            secured = await self._loop.start_tls(
                below,
                after,
                self._tls.context(),
                server_side=True,
                ssl_handshake_timeout=self._tls.handshake_s,
            )
        finally:
            # A connection that is cut off meanwhile ends a handshake without an error.
            is_there = secured is not None and not after.is_lost and not below.is_closing()
            if not is_there:
                below.abort()
                let_go(below)
        if is_there and secured is not None:
            keep_below(secured, below)
            after.connection_made(secured)

    def _note(self, error: OSError) -> None:
        if isinstance(error, ssl.SSLError):
            reason = (error.reason or str(error)).lower().replace("_", " ")
            if isinstance(error, ssl.SSLCertVerificationError):
                reason = f"the client's certificate is not trusted: {error.verify_message}"
            self._warnings.warn(f"{self._place}: a TLS handshake failed: {reason}", reason[:40])
        elif isinstance(error, ConnectionAbortedError):  # of the loop: it took too long
            self._warnings.warn(
                f"{self._place}: no TLS handshake within gemingaHandshakeTimeoutSeconds={self._tls.handshake_s:g}",
                "late",
            )
        else:
            _log.debug("a connection on %s went away in its TLS handshake: %s", self._place, error)


class _Unread(asyncio.Protocol):
    """Reads nothing: what comes is the handshake's."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).pause_reading()


class _AfterHandshake(asyncio.Protocol):
    """Makes the protocol that serves a connection when that stands, and hands it over with what came meanwhile."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory
        self._came = bytearray()
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._came:
            cast("asyncio.Protocol", protocol).data_received(bytes(self._came))

    def data_received(self, data: bytes) -> None:
        self._came += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
