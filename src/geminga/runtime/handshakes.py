"""TLS handshakes of accepted connections: bounded in number and time, and nothing is made before they are done.

A handshake that was begun holds what OpenSSL and the loop keep for it (some 300 KiB with asyncio's loop), so there are
:data:`HANDSHAKES_MAX` under way on a listener at most: where a further one comes, the oldest ends. An honest one takes
milliseconds; what is old is half of one that somebody leaves lying, and those are what makes room.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from geminga.runtime.log import SparseWarnings, get_logger
from geminga.runtime.ports import ServerTls
from geminga.runtime.spawn import spawn

#: Under way on one listener.
HANDSHAKES_MAX: Final = 256

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
        #: Oldest first.
        self._under_way: dict[asyncio.Task[None], None] = {}
        self._warnings = SparseWarnings(_log, self._loop.time)

    @property
    def under_way(self) -> int:
        """How many."""
        return len(self._under_way)

    def begin(self, connection: socket.socket) -> None:
        """The protocol is told of the connection once its handshake is done; of one that fails it never hears."""
        if len(self._under_way) >= HANDSHAKES_MAX:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.cancel()
            self._warnings.warn(
                f"{self._place}: more than {HANDSHAKES_MAX} TLS handshakes are under way; the oldest are cut off",
                "many",
            )
        task = spawn(self._establish(connection), name=f"TLS handshake on {self._place}")
        self._under_way[task] = None
        task.add_done_callback(self._ended)

    def close(self) -> None:
        """End those under way."""
        for task in tuple(self._under_way):
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)

    async def _establish(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: _AfterHandshake(self._factory),
                connection,
                ssl=self._tls.context(),
                ssl_handshake_timeout=self._tls.handshake_s,
            )
        except OSError as error:  # ssl.SSLError is one
            connection.close()
            self._note(error)
        except asyncio.CancelledError:
            connection.close()
            raise

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


class _AfterHandshake(asyncio.Protocol):
    """Makes the protocol that serves a connection when that stands, and hands it over."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
