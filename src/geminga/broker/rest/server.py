"""The HTTP server: listens from the start, loads its software with the first connection.

starlette and uvicorn cost about 0.2 s and 14 MB, which a broker that nobody administers never pays. Until they are
there, connections wait unread; the import runs on a thread of its own, so that dispatching goes on. After that each
connection is handed to uvicorn's HTTP/1.1 protocol, and requests run as tasks on the broker's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from geminga.runtime import get_logger, spawn
from geminga.runtime.ports import Listener, Runtime

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn.config import Config
    from uvicorn.server import ServerState

#: Bytes of one request's line and headers.
HEADER_BYTES_MAX: Final = 64 * 1024
#: Seconds an idle connection is kept.
KEEP_ALIVE_S: Final = 75
#: Bytes that a connection may send before the software is loaded; it is paused before, so this is a safeguard.
EARLY_BYTES_MAX: Final = 256 * 1024
#: Threads lane of the import.
_IMPORT_LANE: Final = "http-import"

_log = get_logger(__name__)


class HttpServer:
    """Serves the application that ``load_app`` makes; its listeners are opened one by one."""

    __slots__ = ("_listeners", "_load_app", "_loaded", "_loading", "_requests_max", "_runtime", "_waiting")

    def __init__(self, runtime: Runtime, load_app: Callable[[], ASGIApp], *, requests_max: int) -> None:
        self._runtime = runtime
        self._load_app = load_app
        self._requests_max = requests_max
        self._listeners: list[Listener] = []
        #: uvicorn's configuration and shared state; None until the first connection.
        self._loaded: tuple[Config, ServerState] | None = None
        self._loading = False
        self._waiting: list[_WaitingConnection] = []

    async def listen(self, host: str, port: int) -> int:
        """Listen on one more address; the port that was bound. Raises OSError."""
        listener = await self._runtime.network.listen(self._protocol, host, port)
        self._listeners.append(listener)
        return listener.port

    def abort(self) -> None:
        """Cut every connection at once, answered or not."""
        for waiting in tuple(self._waiting):
            waiting.abort()
        for connection in tuple(self._loaded[1].connections) if self._loaded is not None else ():
            if connection.transport is not None:
                connection.transport.abort()

    async def close(self) -> None:
        """Stop accepting, let the requests under way finish, close the connections."""
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()
        for waiting in tuple(self._waiting):
            waiting.abort()
        if self._loaded is None:
            return
        state = self._loaded[1]
        for connection in tuple(state.connections):
            # Finishes the request under way, closes an idle connection.
            connection.shutdown()
        tasks = tuple(state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=KEEP_ALIVE_S)

    def _protocol(self) -> asyncio.Protocol:
        if self._loaded is not None:
            return self._http_protocol(self._loaded)
        waiting = _WaitingConnection(self)
        self._waiting.append(waiting)
        if not self._loading:
            self._loading = True
            spawn(self._load(), name="http-load")
        return waiting

    async def _load(self) -> None:
        await self._runtime.threads.call(_IMPORT_LANE, _import_software)
        from uvicorn.config import Config
        from uvicorn.server import ServerState

        config = Config(
            self._load_app(),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            limit_concurrency=self._requests_max,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        )
        config.load()
        self._loaded = (config, ServerState())
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            connection.hand_over(self._http_protocol(self._loaded))

    def _http_protocol(self, loaded: tuple[Config, ServerState]) -> asyncio.Protocol:
        from uvicorn.protocols.http.h11_impl import H11Protocol

        config, state = loaded
        return H11Protocol(config=config, server_state=state, app_state={})

    def forget(self, waiting: _WaitingConnection) -> None:
        """A waiting connection was lost."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)


class _WaitingConnection(asyncio.Protocol):
    """A connection that came before the software; paused until it is handed over."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._early = bytearray()
        self._is_eof = False
        #: Set when the software was loaded between accepting the connection and :meth:`connection_made`.
        self._successor: asyncio.Protocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.pause_reading()
        if self._successor is not None:
            self.hand_over(self._successor)

    def data_received(self, data: bytes) -> None:
        self._early += data
        if len(self._early) > EARLY_BYTES_MAX:
            self.abort()

    def eof_received(self) -> bool:
        self._is_eof = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)
        self._transport = None

    def abort(self) -> None:
        """Close without an answer."""
        if self._transport is not None:
            self._transport.abort()

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Let ``protocol`` have the connection, with what came early."""
        transport = self._transport
        if transport is None:
            self._successor = protocol
            return
        if transport.is_closing():
            return
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._early:
            protocol.data_received(bytes(self._early))
        if self._is_eof:
            transport.close()
        elif not transport.is_reading():
            transport.resume_reading()


def _import_software() -> None:

    import geminga.broker.rest.application  # noqa: F401
