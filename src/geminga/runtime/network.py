"""TCP and TLS through asyncio's own transports: the ``Network`` port on the running loop (asyncio or uvloop).

Accepting is done here and not by the loop's servers: without descriptors asyncio's tries again for ever and logs each
time, and uvloop's closes the connection, or the listener. Here accepting pauses and goes on, and a connection that
would leave fewer descriptors than ``keep_free`` is refused with a word.

The kernel gives the lowest free number, so a new connection's own number tells how many descriptors are in use at the
least; nothing needs to be counted, and what other parts of the process hold is counted too.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from geminga.runtime.log import get_logger
from geminga.runtime.spawn import report_unexpected

if TYPE_CHECKING:
    from geminga.runtime.handshakes import Handshakes
    from geminga.runtime.ports import Connected, ConnectOptions, ListenOptions, NewProtocol
    from geminga.runtime.sockets.inherited import InheritedSockets
    from geminga.runtime.source_headers import SourceHeaders

#: Connections the kernel may hold until they are accepted: a broker's clients all come back at once.
LISTEN_BACKLOG_CONNECTIONS: Final = 1024
#: Connections accepted in one turn of the loop; and of those whose handshake of TLS follows, which takes half a
#: millisecond or more: everybody who is served already waits for some turns with each message.
ACCEPTS_PER_TURN_MAX: Final = 64
TLS_ACCEPTS_PER_TURN_MAX: Final = 4
#: Seconds until accepting goes on after the system had no descriptor or memory for a connection.
ACCEPT_PAUSE_S: Final = 0.25
#: Seconds between two warnings of one listener about connections that it could not take.
WARNING_INTERVAL_S: Final = 60.0
#: Bytes of a refused client's request that are read, so that closing does not reset what it is told.
REFUSED_READ_BYTES: Final = 64 * 1024
_PORT_MAX: Final = 65535
#: Characters of one part of a host's name (DNS), and of a name that an error shows.
_LABEL_MAX: Final = 63
_SHOWN_CHARACTERS: Final = 80
#: The attribute of a transport of TLS that is the one below it.
_BELOW: Final = "geminga_below"
#: Errors of one connection that was gone before it was accepted.
_GONE: Final = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.ECONNRESET, errno.ETIMEDOUT})

_log = get_logger(__name__)


def let_go(transport: asyncio.BaseTransport) -> None:
    """Call it from ``connection_lost``: nothing is left that only the collector would find.

    A transport of asyncio's selector loops keeps a method of its own, ``_read_ready_cb``, when it is closed; uvloop's,
    and those of the simulation, have none. ``test_dropped_connections`` fails where a version of asyncio adds another.
    """
    if hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = None
    below = getattr(transport, _BELOW, None)
    if below is not None:
        let_go(below)


class StreamProtocol(asyncio.StreamReaderProtocol):
    """asyncio's protocol for a stream that is read, which lets its transport go (:func:`let_go`)."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As of the base."""
        super().connection_made(transport)
        self._own: asyncio.BaseTransport | None = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """As of the base."""
        super().connection_lost(exc)
        transport, self._own = self._own, None
        if transport is not None:
            let_go(transport)


def keep_below(secured: asyncio.BaseTransport, below: asyncio.BaseTransport) -> None:
    """``secured`` is the transport of TLS over ``below``, which is let go with it."""
    setattr(secured, _BELOW, below)


def descriptor_limit() -> int | None:
    """How many descriptors this process may have open now (its soft limit); None: no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


class AsyncioListener:
    """Bound sockets, which accept from :meth:`start` on."""

    __slots__ = (
        "_factory",
        "_handshakes",
        "_headers",
        "_keep_free",
        "_limit",
        "_loop",
        "_next_warning",
        "_path",
        "_pauses",
        "_place",
        "_port",
        "_refusal",
        "_refused",
        "_sockets",
        "_warned_s",
    )

    def __init__(
        self,
        sockets: list[socket.socket],
        factory: NewProtocol,
        options: ListenOptions,
        *,
        limit: Callable[[], int | None],
        path: str = "",
    ) -> None:
        tls, header = options.get("tls"), options.get("header")
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        #: Of a Unix socket, which has no port.
        self._path = path
        self._port: int = 0 if path else sockets[0].getsockname()[1]
        #: For the log.
        self._place = path or f"port {self._port}"
        self._factory = factory
        #: None: without TLS.
        self._handshakes: Handshakes | None = None
        if tls is not None:
            from geminga.runtime.handshakes import Handshakes

            self._handshakes = Handshakes(tls, factory, self._place)
        #: None: no connection begins with one.
        self._headers: SourceHeaders | None = None
        if header is not None:
            from geminga.runtime.source_headers import SourceHeaders

            self._headers = SourceHeaders(header, self._place)
        self._keep_free = options.get("keep_free", 0)
        #: A word that is not TLS nobody would understand there.
        self._refusal = options.get("refusal", b"") if tls is None else b""
        self._limit = limit
        #: Sockets on which accepting pauses, and what ends it.
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        #: Connections refused since the last warning, and the time of that and the next one.
        self._refused = 0
        self._warned_s = -WARNING_INTERVAL_S
        self._next_warning: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def handshakes_under_way(self) -> int:
        """Of TLS."""
        return 0 if self._handshakes is None else self._handshakes.under_way

    async def start(self) -> None:
        """Begin to accept; until then connections are refused by the kernel. Raises OSError."""
        for sock in self._sockets:
            sock.listen(LISTEN_BACKLOG_CONNECTIONS)
            self._loop.add_reader(sock, self._acceptable, sock)

    async def close(self) -> None:
        """Stop accepting. Not waiting for established connections: they go on."""
        for timer in self._pauses.values():
            timer.cancel()
        self._pauses.clear()
        if self._next_warning is not None:
            self._next_warning.cancel()
            self._next_warning = None
        if self._headers is not None:
            self._headers.close()
        if self._handshakes is not None:
            self._handshakes.close()
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            self._loop.remove_reader(sock)
            sock.close()
            if self._path:
                from geminga.runtime.sockets.local import remove_local

                remove_local(self._path)

    def _acceptable(self, sock: socket.socket) -> None:
        limit = self._limit()
        for _ in range(ACCEPTS_PER_TURN_MAX if self._handshakes is None else TLS_ACCEPTS_PER_TURN_MAX):
            try:
                connection, _address = sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _GONE:
                    continue
                # No descriptor (EMFILE, ENFILE), no memory, or a rule of the system: they wait in the kernel's queue.
                self._pause(sock, error)
                return
            connection.setblocking(False)
            if self._path:
                from geminga.runtime.sockets.local import widen

                widen(connection)
            if limit is not None and connection.fileno() >= limit - self._keep_free:
                self._refuse(connection, limit)
            elif self._headers is not None:
                self._headers.begin(connection, self._go_on_with)
            else:
                self._go_on_with(connection, self._factory)

    def _go_on_with(self, connection: socket.socket, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        if not self._sockets:
            connection.close()
        elif self._handshakes is not None:
            self._handshakes.begin(connection, factory)
        else:
            self._establish(self._loop.connect_accepted_socket(factory, connection), connection)

    def _establish(self, work: Coroutine[Any, Any, object], connection: socket.socket, _waited: object = None) -> None:
        """Without a task, which would cost as much as the transport: without TLS the loop's work waits once."""
        try:
            waits_for: asyncio.Future[object] = work.send(None)
        except StopIteration:
            return
        except OSError as error:
            connection.close()
            _log.debug("a connection on %s was not established: %s", self._place, error)
        except Exception as error:
            connection.close()
            report_unexpected(f"accept on {self._place}", error)
        else:
            waits_for.add_done_callback(partial(self._establish, work, connection))

    def _pause(self, sock: socket.socket, error: OSError) -> None:
        now_s = self._loop.time()
        if now_s - self._warned_s >= WARNING_INTERVAL_S:
            self._warned_s = now_s
            _log.warning("%s can not accept now, and tries again: %s", self._place, error.strerror or error)
        self._loop.remove_reader(sock)
        self._pauses[sock] = self._loop.call_later(ACCEPT_PAUSE_S, self._go_on, sock)

    def _go_on(self, sock: socket.socket) -> None:
        del self._pauses[sock]
        self._loop.add_reader(sock, self._acceptable, sock)

    def _refuse(self, connection: socket.socket, limit: int) -> None:
        try:
            if self._refusal:
                connection.send(self._refusal)
                connection.recv(REFUSED_READ_BYTES)
        except OSError:
            pass  # it does not listen, or is gone
        connection.close()
        self._refused += 1
        if self._next_warning is None:
            wait_s = self._warned_s + WARNING_INTERVAL_S - self._loop.time()
            self._next_warning = self._loop.call_later(max(wait_s, 0), self._warn_of_refused, limit)

    def _warn_of_refused(self, limit: int) -> None:
        self._next_warning = None
        refused, self._refused = self._refused, 0
        self._warned_s = self._loop.time()
        _log.warning(
            "%s refused %d connections: of the %d files that this process may have open, %d are kept for "
            "storage and other connections; raise the limit (ulimit -n, LimitNOFILE)",
            self._place,
            refused,
            limit,
            self._keep_free,
        )


async def _begun(listener: AsyncioListener, options: ListenOptions) -> AsyncioListener:
    """It accepts, if it is to; raises OSError, and is closed then."""
    if options.get("start", True):
        try:
            await listener.start()
        except OSError:
            await listener.close()
            raise
    return listener


class AsyncioNetwork:
    """The system's TCP; ``TCP_NODELAY`` is set by the loop."""

    __slots__ = ("_limit",)

    def __init__(self, limit: Callable[[], int | None] = descriptor_limit) -> None:
        """``limit``: tells how many descriptors the process may have open now."""
        self._limit = limit

    async def listen(
        self, protocol_factory: NewProtocol, host: str, port: int, **options: Unpack[ListenOptions]
    ) -> AsyncioListener:
        """Listen on ``host:port`` (0: the kernel picks); raises OSError."""
        sockets = await _bound(host, port)
        return await _begun(AsyncioListener(sockets, protocol_factory, options, limit=self._limit), options)

    async def connect(
        self, protocol_factory: NewProtocol, host: str, port: int, **options: Unpack[ConnectOptions]
    ) -> Connected:
        """See ``Network.connect``; raises OSError."""
        tls, server_name, preface = options.get("tls"), options.get("server_name", ""), options.get("preface", b"")
        check_address(host, port)
        if server_name:
            check_address(server_name, port)
        loop = asyncio.get_running_loop()
        name = None if tls is None or not (server_name or preface) else server_name or host
        if not preface:
            return await loop.create_connection(protocol_factory, host, port, ssl=tls, server_hostname=name)
        sock = await _connected(loop, host, port)
        try:
            await loop.sock_sendall(sock, preface)
            return await loop.create_connection(protocol_factory, sock=sock, ssl=tls, server_hostname=name)
        except BaseException:
            sock.close()
            raise

    async def listen_local(
        self, protocol_factory: NewProtocol, path: str, *, keep_free: int = 0, start: bool = True
    ) -> AsyncioListener:
        """See ``Network.listen_local``; raises OSError."""
        from geminga.runtime.sockets.local import bound_local  # loaded by who has such a socket

        options: ListenOptions = {"keep_free": keep_free, "start": start}
        listener = AsyncioListener([bound_local(path)], protocol_factory, options, limit=self._limit, path=path)
        return await _begun(listener, options)

    async def connect_local(self, protocol_factory: NewProtocol, path: str) -> Connected:
        """See ``Network.connect_local``; raises OSError."""
        from geminga.runtime.sockets.local import short_address, widen

        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            widen(sock)
            with short_address(path) as address:
                await loop.sock_connect(sock, address)
            return await loop.create_unix_connection(protocol_factory, sock=sock)
        except BaseException:
            sock.close()
            raise


class _PassedOn:
    """Sockets that a service manager passed to this process: read with the first that listens, each taken once."""

    __slots__ = ("_sockets",)

    def __init__(self) -> None:
        #: None: nobody has listened yet, or nothing was passed.
        self._sockets: InheritedSockets | None = None

    def take(self, host: str, port: int) -> socket.socket | None:
        """The one on just that address. Raises OSError."""
        if self._sockets is None:
            if "LISTEN_FDS" not in os.environ:
                return None
            from geminga.runtime.sockets.inherited import inherited_sockets

            try:
                self._sockets = inherited_sockets()
            except ValueError as error:
                raise OSError(errno.EINVAL, str(error)) from None
        return self._sockets.take((host, port))

    def left(self) -> list[tuple[str, int]]:
        """Addresses that nobody listens on."""
        return [] if self._sockets is None else self._sockets.addresses


_PASSED_ON: Final = _PassedOn()


def unclaimed_sockets() -> list[tuple[str, int]]:
    """Addresses of sockets that a service manager passed on, and nothing listens there."""
    return _PASSED_ON.left()


def check_address(host: str, port: int) -> None:
    """Raise OSError for what can be no address, as for one that nobody has.

    The system's own calls raise other errors there, by what is wrong, or take the lower half of a port.
    """
    if not 0 <= port <= _PORT_MAX or "\0" in host or not _is_name(host):
        raise OSError(errno.EINVAL, f"{host[:_SHOWN_CHARACTERS]!r}, port {port}, is no address")


def _is_name(host: str) -> bool:
    if host.isascii():
        # As the codec has it, which is not loaded for these.
        return not host or all(0 < len(label) <= _LABEL_MAX for label in host.removesuffix(".").split("."))
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


async def _connected(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A socket that is connected to the first address of ``host`` that answers; raises OSError."""
    last: OSError | None = None
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            last = error
            continue
        except BaseException:
            sock.close()
            raise
        return sock
    raise last or OSError(errno.EADDRNOTAVAIL, "the name has no address")


async def _bound(host: str, port: int) -> list[socket.socket]:
    """A bound socket for each address of ``host``, all on one port; raises OSError."""
    check_address(host, port)
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            passed_on = _PASSED_ON.take(str(address[0]), port)
            if passed_on is not None:
                sockets.append(passed_on)
                continue
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:
                    raise
                missing = error  # the name has an address of a family that this machine does not have
                continue
            sockets.append(sock)
            sock.setblocking(False)
            if os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                sock.bind((address[0], port, *address[2:]))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                missing = error
                sockets.pop().close()
                continue
            port = port or sock.getsockname()[1]
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    if not sockets:
        raise missing or OSError(errno.EADDRNOTAVAIL, "the name has no address")
    return sockets
