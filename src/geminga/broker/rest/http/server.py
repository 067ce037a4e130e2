"""The HTTP server: listens from the start, loads its software with the first connection.

starlette and uvicorn cost about 0.2 s and 14 MB, which a broker that nobody administers never pays. Until they are
there, connections wait unread; the import runs on a thread of its own, so that dispatching goes on. After that each
connection is handed to uvicorn's HTTP/1.1 protocol, and requests run as tasks on the broker's loop. If the software can
not be loaded (no descriptor, no thread, no memory), those who wait are told 503 and the next connection tries again.

A connection has so long for its headers, its body and taking the answer (``core.timeouts``), and there are so many of
them; where they are too many, idle ones make room, and what comes then is told 503. Bodies take room that all
share. What the server itself takes is not the client's: the time while the software loads (who waited too long for that
is told 503), and while the loop stood still.

Whatever the application is, ``front`` stands before it.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from weakref import WeakSet

from geminga.broker.rest.calls.core.timeouts import (
    BODY_BYTES_MAX_DEFAULT,
    RETRY_AFTER_S,
    RequestTimeouts,
    TimeoutLimits,
)
from geminga.runtime import SparseWarnings, get_logger, let_go, next_turn, spawn, wait_ms
from geminga.runtime.frame_room import FrameRoom
from geminga.runtime.ports import HeaderRule, Listener, Runtime, ServerTls

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from geminga.broker.rest.http.http_connection import HttpConnection, Shared, Successor
    from geminga.broker.rest.http.request_rate import RequestRate
    from geminga.wire.cors import CorsRules
    from geminga.wire.pulsar.foreign import Protocol

#: Bytes of one request's line and headers, unless set: as in Pulsar.
HEADER_BYTES_MAX: Final = 8192
#: Bytes of bodies that did not come with their headers, of all connections, until their requests are answered.
BODIES_BYTES_MAX: Final = 64 * 1024 * 1024
#: Bytes of answers that clients do not take, of all connections.
UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
#: Seconds an idle connection is kept.
KEEP_ALIVE_S: Final = 75
#: Seconds that requests under way have to finish at a stop, and then to end after they were cancelled.
REQUEST_GRACE_S: Final = 0.5
#: Seconds that the peer of a connection that speaks another protocol has to let go at the end; ms between two looks.
SUCCESSOR_GRACE_S: Final = 1.0
SUCCESSOR_LOOK_MS: Final = 20
#: Bytes that a connection may send before the software is loaded; it is paused before, so this is a safeguard.
EARLY_BYTES_MAX: Final = 256 * 1024
#: Seconds between two looks at how long each connection takes; fewer where a limit is short.
LOOK_INTERVAL_S: Final = 1.0
#: Seconds that a connection waits for the software; then it is told to come back. Loading goes on.
LOADING_S_MAX: Final = 60.0
#: Threads lane of imports.
IMPORT_LANE: Final = "http-import"
#: What the application of a broker is.
BROKERS_SOFTWARE: Final = ("geminga.broker.rest.application",)
#: What the server itself takes, whatever the application is.
_OWN_SOFTWARE: Final = ("geminga.broker.rest.http.http_connection", "geminga.broker.rest.http.front")
#: Seconds until a connection that was refused is closed, so that what it still sends does not take the answer from it.
LINGER_S: Final = 1.0
#: What a connection is told that can not be served now.
UNAVAILABLE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: %d\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    % RETRY_AFTER_S
)

_log = get_logger(__name__)


class HttpFront(NamedTuple):
    """What stands before a server, and how much it lets in."""

    #: Requests that are answered (``httpRequestsMaxPerSecond``); None: any number.
    requests_per_s: float | None = None
    #: A balancer says in X-Forwarded-For where requests came from.
    trusts_forwarded: bool = False
    #: Connections may begin with the PROXY header, which says it too.
    has_source_header: bool = False


NO_FRONT: Final = HttpFront()


class HttpServer:
    """Serves the application that ``load_app`` makes; its listeners are bound one by one, and open together."""

    __slots__ = (
        "_body_bytes_max",
        "_body_room",
        "_connections_max",
        "_cors",
        "_front",
        "_header_bytes_max",
        "_keep_free",
        "_keys",
        "_limits",
        "_listed_names",
        "_listeners",
        "_load_app",
        "_loaded",
        "_loading",
        "_look",
        "_look_due_s",
        "_own_names",
        "_rate",
        "_requests_max",
        "_runtime",
        "_served",
        "_shared",
        "_software",
        "_stood_still_s",
        "_waiting",
        "_warnings",
    )

    def __init__(
        self,
        runtime: Runtime,
        load_app: Callable[[], ASGIApp],
        *,
        requests_max: int,
        connections_max: int,
        limits: TimeoutLimits,
        own_names: Callable[[], Iterable[str]],
        listed_names: Sequence[str] = (),
        keep_free: int = 0,
        header_bytes_max: int = HEADER_BYTES_MAX,
        body_bytes_max: int = -1,
        software: Sequence[str] = BROKERS_SOFTWARE,
        keys: tuple[str, str] = ("webServicePort", "brokerServicePort"),
        cors: CorsRules | None = None,
        front: HttpFront = NO_FRONT,
    ) -> None:
        """``own_names``: hosts and URLs by which this server is reached, asked for with the first connection;
        ``listed_names``: further ones, by the operator (``wire.pages``). ``keep_free``: descriptors of the process that
        connections must leave. ``software``: modules that ``load_app`` needs. ``keys``: of this port, and of the one of
        the binary protocol, for those who mix them up. ``cors``: what pages of other origins may.
        ``front``: what stands before it, and how much it lets in."""
        self._runtime = runtime
        self._cors = cors
        self._front = front
        #: Of all requests, where there is a limit; made with the software.
        self._rate: RequestRate | None = None
        self._load_app = load_app
        self._requests_max = requests_max
        self._connections_max = connections_max
        self._limits = limits
        self._own_names = own_names
        self._listed_names = listed_names
        self._keep_free = keep_free
        self._header_bytes_max = header_bytes_max
        self._body_bytes_max = body_bytes_max if body_bytes_max >= 0 else BODY_BYTES_MAX_DEFAULT
        #: For bodies that did not come at once, of all connections.
        self._body_room = FrameRoom(runtime.clock.monotonic, BODIES_BYTES_MAX)
        #: What connections have together; None until the first one.
        self._shared: Shared | None = None
        self._software = software
        self._keys = keys
        self._listeners: list[Listener] = []
        #: uvicorn's configuration and shared state; None until the first connection.
        self._loaded: tuple[Config, ServerState] | None = None
        self._loading = False
        self._waiting: list[_WaitingConnection] = []
        #: Connections that the software has; weakly, for one that is lost before it was made tells nobody.
        self._served: WeakSet[HttpConnection] = WeakSet()
        #: The next look at the connections, while there are any.
        self._look: asyncio.TimerHandle | None = None
        #: When it is due, in the loop's time.
        self._look_due_s = 0.0
        #: Seconds by which looks came late, in all: the loop stood still, and read nothing meanwhile.
        self._stood_still_s = 0.0
        self._warnings = SparseWarnings(_log, runtime.clock.monotonic)

    async def listen(self, host: str, port: int, tls: ServerTls | None = None) -> int:
        """Bind one more address, which is served from :meth:`start` on; the port. Raises OSError."""
        # Not needed by anybody: a health check of the host comes without.
        header = HeaderRule(self._protocol, False, self._limits.head_s) if self._front.has_source_header else None
        listener = await self._runtime.network.listen(
            self._protocol,
            host,
            port,
            tls=tls,
            keep_free=self._keep_free,
            refusal=UNAVAILABLE,
            start=False,
            header=header,
        )
        self._listeners.append(listener)
        return listener.port

    async def start(self) -> None:
        """Accept connections on what was bound; raises OSError."""
        for listener in self._listeners:
            await listener.start()

    def metrics(self) -> Mapping[str, float]:
        """Samples for ``/metrics``."""
        return {} if self._rate is None else self._rate.metrics()

    def abort(self) -> None:
        """Cut every connection at once, answered or not."""
        for waiting in tuple(self._waiting):
            waiting.abort()
        for connection in tuple(self._loaded[1].connections) if self._loaded is not None else ():
            if connection.transport is not None:
                connection.transport.abort()
        for successor in tuple(self._successors):
            if successor.transport is not None:
                successor.transport.abort()

    async def close(self) -> None:
        """Stop accepting, let the requests under way finish for a moment, cancel them, close the connections."""
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._body_room.close()
        for waiting in tuple(self._waiting):
            waiting.refuse(lingers=False)
        if self._loaded is None:
            return
        state = self._loaded[1]
        for connection in tuple(state.connections):
            # Finishes the request under way, closes an idle connection.
            connection.shutdown()
        await self._end_successors()
        for is_last in (False, True):
            tasks = tuple(state.tasks)
            if not tasks:
                return
            if is_last:
                _log.warning("%d HTTP requests are cut off by the stop", len(tasks))
                for task in tasks:
                    task.cancel()
            await asyncio.wait(tasks, timeout=REQUEST_GRACE_S)

    async def _end_successors(self) -> None:
        """Tell them, and cut whose peer does not let go in a moment: none may outlive the loop."""
        for successor in tuple(self._successors):
            successor.shutdown()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SUCCESSOR_GRACE_S
        while self._successors and loop.time() < until_s:
            await wait_ms(SUCCESSOR_LOOK_MS)
        for successor in tuple(self._successors):
            if successor.transport is not None:
                successor.transport.abort()
        await next_turn()

    def _protocol(self, source: tuple[str, int] | None = None) -> asyncio.Protocol:
        """``source``: where the connection came from, if somebody says so who passes it on."""
        if not self._has_room():
            self._warnings.warn(
                f"{self._connections_max} HTTP connections are open; further ones are told to come back"
            )
            return _RefusedConnection()
        if self._look is None:
            self._look_later()
        if self._loaded is not None:
            return self._http_protocol(self._loaded, source)
        waiting = _WaitingConnection(self, self._now_s(), source)
        self._waiting.append(waiting)
        if not self._loading:
            self._loading = True
            spawn(self._load(), name="http-load")
        return waiting

    async def _load(self) -> None:
        try:
            self._loaded = await self._load_software()
        except (OSError, ImportError, MemoryError) as error:
            self._warnings.warn(
                f"the HTTP software could not be loaded, requests are told to come back: {error}", "load"
            )
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                connection.refuse()
        else:
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                connection.hand_over(self._http_protocol(self._loaded, connection.source))
        finally:
            self._loading = False

    async def _load_software(self) -> tuple[Config, ServerState]:
        await self._runtime.threads.call(IMPORT_LANE, partial(_import_software, self._software))
        from uvicorn.config import Config
        from uvicorn.server import ServerState

        from geminga.broker.rest.http.front import PageGuard
        from geminga.broker.rest.http.http_connection import HttpConnection
        from geminga.wire.pages import names_of

        names = names_of(self._own_names(), self._listed_names)
        if self._front.requests_per_s is not None:
            from geminga.broker.rest.http.request_rate import RequestRate

            self._rate = RequestRate(self._front.requests_per_s, self._runtime.clock.monotonic)
        config = Config(
            PageGuard(
                self._load_app(),
                names,
                self._requests_max,
                self._warnings.warn,
                self._runtime.rng.token,
                self._cors,
                self._rate,
                trusts_forwarded=self._front.trusts_forwarded,
            ),
            http=HttpConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            h11_max_incomplete_event_size=self._header_bytes_max,
        )
        config.load()
        return config, ServerState()

    def _http_protocol(self, loaded: tuple[Config, ServerState], source: tuple[str, int] | None) -> asyncio.Protocol:
        from geminga.broker.rest.http.http_connection import HttpConnection, Shared, StrangersLog
        from geminga.runtime.frame_room import UnreadResponses

        if self._shared is None:
            self._shared = Shared(
                self._body_room,
                self._body_bytes_max,
                UnreadResponses(UNREAD_BYTES_MAX),
                StrangersLog(self._warnings.warn),
                set(),
            )
        connection = HttpConnection(
            *loaded,
            self._new_timeouts(),
            self._served.discard,
            self._warn_of_wrong_port,
            self._keys,
            self._shared,
        )
        connection.source = source
        # Before connection_made: many are accepted in one turn.
        self._served.add(connection)
        return connection

    # ---- how many, and for how long

    def _now_s(self) -> float:
        """The loop's time, without what it stood still: the time that clients had."""
        return asyncio.get_running_loop().time() - self._stood_still_s

    def _new_timeouts(self) -> RequestTimeouts:
        return RequestTimeouts(self._limits, self._now_s())

    def _has_room(self) -> bool:
        if len(self._waiting) + len(self._served) + len(self._successors) < self._connections_max:
            return True
        # A client whose connection is closed between two requests opens another one.
        idle = [connection for connection in self._served if connection.is_idle]
        for connection in idle:
            connection.shutdown()
        return bool(idle)

    @property
    def _successors(self) -> Collection[Successor]:
        """Connections that speak another protocol now."""
        return () if self._shared is None else self._shared.successors

    def _look_later(self) -> None:
        limits = self._limits
        interval_s = min(LOOK_INTERVAL_S, limits.head_s / 4, limits.body_s / 4, limits.stalled_s / 4)
        loop = asyncio.get_running_loop()
        self._look_due_s = loop.time() + interval_s
        self._look = loop.call_at(self._look_due_s, self._look_at_all)

    def _look_at_all(self) -> None:
        self._look = None
        self._stood_still_s += max(0.0, asyncio.get_running_loop().time() - self._look_due_s)
        now_s = self._now_s()
        for waiting in tuple(self._waiting):
            waiting.look(now_s)
        for connection in tuple(self._served):
            connection.look(now_s)
        if self._waiting or self._served:
            self._look_later()

    def _warn_of_wrong_port(self, peer: str, spoken: Protocol) -> None:
        advice = "there is none on this port" if spoken.name == "TLS" else f"it is on {self._keys[1]}"
        self._warnings.warn(
            f"closing connection {peer}: it speaks {spoken.value} on a port of HTTP; {advice}", spoken.name
        )

    def forget(self, waiting: _WaitingConnection) -> None:
        """A waiting connection was lost."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)


class _WaitingConnection(asyncio.Protocol):
    """A connection that came before the software; paused until it is handed over.

    The client's time begins then: it may have sent its request long ago, which is not read before.
    """

    def __init__(self, server: HttpServer, now_s: float, source: tuple[str, int] | None) -> None:
        self._server = server
        self.source = source
        #: When it was accepted.
        self._since_s = now_s
        self._transport: asyncio.Transport | None = None
        self._early = bytearray()
        self._is_eof = False
        self._is_refused = False
        #: Set when the software was loaded between accepting the connection and :meth:`connection_made`.
        self._successor: asyncio.Protocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.pause_reading()
        # uvloop begins to read behind this call, whatever is said in it.
        asyncio.get_running_loop().call_soon(self._pause)
        if self._is_refused:
            self.refuse()
        elif self._successor is not None:
            self.hand_over(self._successor)

    def _pause(self) -> None:
        transport = self._transport
        if (
            transport is not None
            and transport.get_protocol() is self
            and not (self._is_refused or transport.is_closing())
        ):
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._early += data
        if len(self._early) > EARLY_BYTES_MAX:
            self.abort()

    def eof_received(self) -> bool:
        self._is_eof = True
        return not self._is_refused

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)
        transport, self._transport = self._transport, None
        if transport is not None:
            let_go(transport)

    def look(self, now_s: float) -> None:
        """Tell it to come back if the software does not come; ``now_s`` as :meth:`HttpServer._now_s`."""
        if now_s - self._since_s >= LOADING_S_MAX:
            self._server.forget(self)
            self.refuse()

    def refuse(self, *, lingers: bool = True) -> None:
        """Close with a word: the software could not be loaded, or not in time.

        ``lingers``: what comes yet is read for a moment. Closed at once, with a request that was not read, the kernel
        would reset the connection, and the word might be lost.
        """
        self._is_refused = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(UNAVAILABLE)
        if not lingers or self._is_eof:
            transport.close()
            return
        transport.write_eof()
        if not transport.is_reading():
            transport.resume_reading()
        asyncio.get_running_loop().call_later(LINGER_S, transport.close)

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
        if not (self._is_eof or transport.is_reading()):
            transport.resume_reading()
        # Behind that: it may stop reading for want of room.
        if self._early:
            protocol.data_received(bytes(self._early))
        if self._is_eof:
            transport.close()


class _RefusedConnection(asyncio.Protocol):
    """A connection beyond the limit: told so, and closed. It counts among none, and does not wait for its peer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = accepted = cast("asyncio.Transport", transport)
        accepted.write(UNAVAILABLE)
        accepted.close()
        # With TLS the loop would wait half a minute for the peer's goodbye.
        self._end = asyncio.get_running_loop().call_later(LINGER_S, accepted.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        let_go(self._transport)


def _import_software(modules: Sequence[str]) -> None:
    # All of it, here: what were imported later could fail for want of a descriptor in the middle of a request.
    for name in (*modules, *_OWN_SOFTWARE):
        importlib.import_module(name)
