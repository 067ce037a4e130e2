"""One connection of a client to a metadata socket: the hello, the heartbeat, and messages as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from geminga.metadata.core.socket_codec import client_decoder, encode
from geminga.metadata.core.socket_messages import (
    NEW_SESSION,
    SECRET_BYTES,
    VERSION,
    BrokenMessageError,
    Expired,
    FromServer,
    Ping,
    Refused,
    SessionHello,
    StoreResponse,
    Welcome,
)
from geminga.metadata.ports import Notification
from geminga.model.errors import MetadataUnavailableError
from geminga.runtime import Runtime, get_logger, let_go

#: How long a server may take for the hello: what it read of the connection before is done by then.
HELLO_TIMEOUT_S: Final = 10.0
#: Parts of the session's time-out: a ping each of them, and after two of silence the connection is given up.
PINGS_PER_TIMEOUT: Final = 3
SILENT_PINGS_MAX: Final = 2

_PING: Final = encode(Ping())
_log = get_logger(__name__)


class LinkLostError(MetadataUnavailableError):
    """There is no connection (any more)."""


class Link(asyncio.Protocol):
    """See the module; used for one connection."""

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        on_answer: Callable[[StoreResponse], bool],
        on_notification: Callable[[Notification], None],
        on_expired: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._path = path
        self._on_answer = on_answer
        self._on_notification = on_notification
        self._on_expired = on_expired
        self._decoder = client_decoder()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._said: asyncio.Future[Welcome | Refused] = self._loop.create_future()
        #: Done when the connection is gone.
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._ping: asyncio.TimerHandle | None = None
        self._silent_pings = 0

    async def connect(self, session: Welcome | None, token: str, name: str, timeout_ms: int) -> Welcome | Refused:
        """Connect and say hello. Raises OSError, LinkLostError."""
        await self._runtime.network.connect_local(lambda: self, self._path)
        known = (NEW_SESSION, bytes(SECRET_BYTES)) if session is None else session[:2]
        self.write(encode(SessionHello(VERSION, *known, timeout_ms, token, name)))
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                said = await self._said
        except TimeoutError:
            raise LinkLostError(f"no answer within {HELLO_TIMEOUT_S:g} s") from None
        if isinstance(said, Welcome):
            self._ping_later(said.timeout_ms)
        return said

    def write(self, data: bytes) -> None:
        """Send frames; nothing happens when the connection is gone."""
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        """End it now."""
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Messages, in order."""
        if self._transport is None:
            return
        self._silent_pings = 0
        error = self._decoder.pass_on(data, self._handle)
        if error is not None:
            _log.error("the connection to metadata socket %s ends: %s", self._path, error)
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""
        transport, self._transport = self._transport, None
        if transport is not None:
            let_go(transport)
        if self._ping is not None:
            self._ping.cancel()
        if not self._said.done():
            self._said.set_exception(
                LinkLostError(f"the connection ended before the answer{f': {error}' if error else ''}")
            )
            self._said.exception()  # nobody may wait for it any more
        if not self.lost.done():
            self.lost.set_result(None)

    # ---- inside

    def _handle(self, message: FromServer) -> None:
        if isinstance(message, StoreResponse):
            if not self._on_answer(message):
                raise BrokenMessageError(f"an answer to request {message.request_id}, which was not sent")
        elif isinstance(message, Notification):
            self._on_notification(message)
        elif isinstance(message, Expired):
            self._on_expired()
            self.abort()
        elif isinstance(message, Welcome | Refused):
            if self._said.done():
                raise BrokenMessageError("a second answer to a hello")
            self._said.set_result(message)

    def _ping_later(self, timeout_ms: int) -> None:
        if self._transport is not None:
            wait_s = timeout_ms / 1000 / PINGS_PER_TIMEOUT
            self._ping = self._loop.call_later(wait_s, self._send_ping, timeout_ms)

    def _send_ping(self, timeout_ms: int) -> None:
        if self._silent_pings >= SILENT_PINGS_MAX:
            _log.warning("metadata socket %s is silent: connecting again", self._path)
            self.abort()
            return
        self._silent_pings += 1
        self.write(_PING)
        self._ping_later(timeout_ms)
