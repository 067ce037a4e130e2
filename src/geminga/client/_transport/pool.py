"""Connections of one client, made on demand and shared: one (or a few) per broker."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from geminga.client._api.errors import AlreadyClosed, ConnectError, LookupError, PulsarException, Timeout, WrongProtocol
from geminga.client._api.options import ClientOptions
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.service_urls import Address, ServiceUrls, parse_proxy, told_addresses
from geminga.runtime import Runtime, SparseWarnings, again, get_logger, spawn, value_of

if TYPE_CHECKING:
    from geminga.runtime.tls.following import FollowedContext

_log = get_logger(__name__)

#: What OpenSSL makes of an answer that is no TLS, or says that there is none.
_NO_TLS_THERE: Final = frozenset(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"))
#: What brokers were told last may take so long to leave; then it is dropped.
CLOSE_PATIENCE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker as lookup gives it: who it is, and where to connect to (a proxy, if the two differ)."""

    broker_url: str
    #: Empty: an address of the service URL, which passes everything on to ``broker_url``.
    physical_url: str


class ConnectionPool:
    """Makes, shares and closes connections; concurrent requests for one broker share one attempt."""

    def __init__(
        self,
        runtime: Runtime,
        service_urls: ServiceUrls,
        options: ClientOptions,
        next_request_id: Callable[[], int],
    ) -> None:
        """Raises InvalidUrl for a proxy that can not be, or brokers that it can not lead to."""
        self._proxy = parse_proxy(options.proxy_service_url, service_urls.addresses)
        self._runtime = runtime
        self._service_urls = service_urls
        self._options = options
        self._next_request_id = next_request_id
        self._connections: dict[tuple[str, str, int], ClientConnection] = {}
        self._attempts: dict[tuple[str, str, int], asyncio.Task[ClientConnection | PulsarException]] = {}
        #: Made with the first address that wants it; follows its files.
        self._tls: FollowedContext | None = None
        self._turn = 0
        self.is_closed = False
        #: Called once, with the first connection; None: nothing begins then.
        self.begin: Callable[[], None] | None = None
        #: Who has lost his connection and does not come back.
        self.away = SparseWarnings(_log, runtime.clock.monotonic)
        #: How often it went on with another cluster.
        self.moves = 0
        #: Set when it does: who waits for the next attempt makes it now.
        self.resting: set[asyncio.Event] = set()

    async def service_connection(self, topic: str) -> ClientConnection:
        """A connection to the service URL: each of its addresses is tried once; raises the last one's error.

        Where that is of HTTP, to the broker that is told there for ``topic``, which need not exist.
        """
        return await self._first_reached(lambda address, until_s: self._led_to(address, topic, until_s))

    async def _led_to(self, address: Address, topic: str, until_s: float) -> ClientConnection:
        if not address.is_http:
            return await self._shared(address.url, address, until_s)
        url = await self._told_over_http(address, topic, until_s - asyncio.get_running_loop().time())
        return await self._shared(url, told_addresses(url)[0], until_s)

    async def _first_reached(
        self, connect: Callable[[Address, float], Awaitable[ClientConnection]]
    ) -> ClientConnection:
        """By an address of the service URL: each is tried once, and has its part of the operation timeout."""
        urls, now_s = self._service_urls, asyncio.get_running_loop().time
        end_s = now_s() + self._options.operation_timeout_ms / 1000
        last: PulsarException | None = None
        for left in range(len(urls.addresses), 0, -1):
            address = urls.current
            try:
                return await connect(address, now_s() + max(0.0, end_s - now_s()) / left)
            except (ConnectError, Timeout) as error:
                last = again(error)
                urls.failed(address)
        raise again(last) if last is not None else ConnectError("the service URL has no address")

    @property
    def uses_tls(self) -> bool:
        """Whether brokers are spoken to with TLS."""
        return self._service_urls.current.url.startswith(("pulsar+ssl", "https"))

    def way_back(self, connection: ClientConnection) -> str:
        """By which address what is behind ``connection`` is reached again; empty: those of the service URL."""
        return connection.url if self._service_urls.current.is_http else ""

    async def broker_connection(self, address: BrokerAddress) -> ClientConnection:
        """A connection to a broker, through the service URL if that is a proxy. Raises LookupError for one without TLS
        where the service URL has it."""
        if not address.physical_url:
            return await self._first_reached(
                lambda physical, until_s: self._shared(address.broker_url, physical, until_s)
            )
        until_s = asyncio.get_running_loop().time() + self._options.operation_timeout_ms / 1000
        return await self._shared(address.broker_url, told_addresses(address.physical_url)[0], until_s)

    def go_on_with(self, urls: ServiceUrls, options: ClientOptions, why: PulsarException) -> None:
        """Another cluster from now on: what stands, and what is being made, ends with ``why``. Raises InvalidUrl, and
        then nothing has changed."""
        if self.is_closed:
            return
        self._proxy = parse_proxy(options.proxy_service_url, urls.addresses)
        self.moves += 1
        self._service_urls.become(urls)
        self._options, self._tls = options, None
        for attempt in self._attempts.values():
            attempt.cancel()
        for connection in list(self._connections.values()):
            # One that hangs takes nothing more, and is not waited for.
            connection.abort(why)
        for event in self.resting:
            event.set()

    async def _told_over_http(self, address: Address, topic: str, limit_s: float) -> str:
        if self.is_closed:
            raise AlreadyClosed("the client is closed")
        # Not with the pool: most service URLs are binary.
        from geminga.client._transport.http_lookup import HttpLookup, find_broker

        options = self._options
        try:
            context = self._tls_context() if address.is_tls else None
        except OSError as error:
            raise _not_connected(address, error) from None
        lookup = HttpLookup(address.url, topic, options.listener_name, limit_s, context)
        return await find_broker(lookup, options.authentication, self._runtime.threads)

    async def close(self) -> None:
        """Close every connection and end attempts under way; on return the sockets are closed, or about to be: a
        loop may end now without leaving any open."""
        self.is_closed = True
        attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.cancel()
        if attempts:
            await asyncio.wait(attempts)
        connections = list(self._connections.values())
        closed = AlreadyClosed("the client was closed")
        for connection in connections:
            connection.close(closed)
        try:
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                for connection in connections:
                    await connection.gone.wait()
        except TimeoutError:
            for connection in connections:
                connection.abort(closed)

    @property
    def open_connections(self) -> int:
        """How many connections stand now."""
        return len(self._connections)

    async def _shared(self, logical_url: str, physical: Address, until_s: float) -> ClientConnection:
        """``until_s``, of the loop's time: then who asks is told Timeout; the attempt goes on for whoever asks next."""
        if self.is_closed:
            raise AlreadyClosed("the client is closed")
        if self.uses_tls and not physical.is_tls:
            raise LookupError(f"the client was sent to {physical.url}, which has no TLS")
        if self.begin is not None:
            begin, self.begin = self.begin, None
            begin()
        self._turn += 1
        key = (logical_url, physical.url, self._turn % self._options.connections_per_broker)
        connection = self._connections.get(key)
        if connection is not None and not connection.is_closed:
            return connection
        attempt = self._attempts.get(key)
        if attempt is None:
            attempt = spawn(self._connect(key, logical_url, physical), name=f"connect to {physical.url}")
            if not attempt.done():  # with an eager task factory it may be
                self._attempts[key] = attempt
        # Shielded: one caller that gives up does not take the attempt from the others. An error is handed to all.
        began_s = asyncio.get_running_loop().time()
        # As a rule an attempt ends by itself before that.
        is_bounded = until_s - began_s < self._options.connection_timeout_ms / 1000
        try:
            async with asyncio.timeout_at(until_s if is_bounded else None):
                return value_of(await asyncio.shield(attempt))
        except TimeoutError:
            raise Timeout(f"no connection to {physical.url} within {(until_s - began_s) * 1000:.0f} ms") from None
        finally:
            del attempt  # see value_of

    async def _connect(
        self, key: tuple[str, str, int], logical_url: str, physical: Address
    ) -> ClientConnection | PulsarException:
        connection: ClientConnection | None = None
        moves, proxy = self.moves, self._proxy
        proxied = logical_url if logical_url != physical.url else ""

        def make() -> ClientConnection:
            nonlocal connection
            connection = ClientConnection(
                physical.url,
                authentication=self._options.authentication,
                keep_alive_ms=self._options.keep_alive_interval_ms,
                proxy_to_broker_url=proxied.partition("://")[2],
                description=self._options.description,
                threads=self._runtime.threads,
                next_request_id=self._next_request_id,
                on_lost=lambda lost: self._lost(key, lost),
            )
            return connection

        try:
            async with asyncio.timeout(self._options.connection_timeout_ms / 1000):
                tls = self._tls_context() if physical.is_tls else None
                if proxy is None:
                    await self._runtime.network.connect(make, physical.host, physical.port, tls=tls)
                else:
                    # TLS is of the broker, end to end: its name leads there, and its certificate must have it.
                    await self._runtime.network.connect(
                        make, proxy.host, proxy.port, tls=tls, server_name=physical.host
                    )
                assert connection is not None
                await connection.wait_connected()
        except (OSError, asyncio.CancelledError, PulsarException) as error:
            if connection is not None:
                connection.abort(ConnectError(f"connecting to {physical.url} was given up"))
            if isinstance(error, TimeoutError):
                return Timeout(f"no connection to {physical.url} within {self._options.connection_timeout_ms} ms")
            if isinstance(error, OSError):
                return _not_connected(physical, error, "" if proxy is None else f" through {proxy.host}:{proxy.port}")
            if isinstance(error, PulsarException):
                return error
            if self.is_closed:  # cancelled by close: those who wait are not
                return AlreadyClosed("the client was closed")
            if moves != self.moves:
                return ConnectError(f"{physical.url}: the client goes on with another cluster")
            raise
        finally:
            self._attempts.pop(key, None)
        if connection.is_closed:
            return ConnectError(f"connection to {physical.url} was lost at once")
        _log.debug("connected to %s (%s)", physical.url, connection.server_version)
        self._connections[key] = connection
        return connection

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            from geminga.runtime.tls.following import FollowedContext

            options = self._options
            self._tls = FollowedContext("TLS of the client", options.tls_files(), options.tls_made, at_each=True)
        return self._tls.context()

    def _lost(self, key: tuple[str, str, int], connection: ClientConnection) -> None:
        if self._connections.get(key) is connection:
            del self._connections[key]


def _not_connected(address: Address, error: OSError, way: str = "") -> ConnectError:
    """Why there is no connection; asyncio's errors of a TLS handshake have no text, or one of OpenSSL's sources."""
    what = f"connecting to {address.url}{way}: {str(error) or type(error).__name__}"
    if not address.is_tls or not isinstance(error, ssl.SSLError | ConnectionError):
        return ConnectError(what)
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS_THERE:
        return WrongProtocol(f"{address.url} does not speak TLS: without it the service URL begins with pulsar://")
    if isinstance(error, ssl.SSLCertVerificationError | ConnectionRefusedError):
        return ConnectError(what)
    return ConnectError(f"{what}; a port without TLS? Then the service URL begins with pulsar://")
