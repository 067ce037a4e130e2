"""The ports of a broker: bound one by one before it starts, opened together when it can answer.

Each of the two protocols has a plain port and one with TLS, or one of them; ``bindAddresses`` adds further ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar, cast

from geminga.app.servers.listeners import BoundPorts, bound_addresses
from geminga.broker.rest.http.server import HttpServer
from geminga.model.errors import UnavailableError
from geminga.runtime import Listener, Runtime, get_logger
from geminga.wire.pulsar import commands

if TYPE_CHECKING:
    from geminga.app.configuration.config import Config
    from geminga.app.servers.tls_ports import TlsPorts
    from geminga.broker.connection.connection import Connection
    from geminga.runtime.ports import ServerTls

#: What a client is told that would take a descriptor which is kept for others.
_FULL: Final = UnavailableError("the broker has as many connections as it may open files; try again later")

T = TypeVar("T")

_log = get_logger(__name__)


class ServicePorts:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        config: Config,
        http: HttpServer,
        new_connection: Callable[[str], Connection],
        *,
        keep_free: int,
    ) -> None:
        """``new_connection``: for who comes by a listener of ``bindAddresses``, or by the two ports (no name).

        ``keep_free``: descriptors that connections of the binary protocol leave. Raises ConfigurationError for what is
        asked of TLS.
        """
        self._runtime = runtime
        self._config = config
        self._http = http
        self._new_connection = new_connection
        self._keep_free = keep_free
        self._listeners: list[Listener] = []
        self.tls: TlsPorts | None = None
        if config.tls is not None:
            from geminga.app.servers.tls_ports import TlsPorts

            self.tls = TlsPorts(config.tls, config.server.handshake_timeout_s, config.server.bind_addresses)

    async def bind(self) -> BoundPorts:
        """Take them; nobody is served yet. Raises UnavailableError, ConfigurationError."""
        server, tls = self._config.server, self._config.tls
        host = server.bind_address
        extra = bound_addresses(server.bind_addresses)
        web = web_tls = broker = broker_tls = None
        if tls is None or not tls.replaces_web_port:
            web = await _bound("webServicePort", self._http.listen, host, server.web_port)
        if tls is not None and tls.web_port is not None:
            web_tls = await _bound("webServicePortTls", self._listen_web_tls, host, tls.web_port)
        if tls is None or not tls.replaces_broker_port:
            broker = await self._bind_broker("brokerServicePort", "", host, server.broker_port)
        if tls is not None and tls.broker_port is not None:
            broker_tls = await self._bind_broker("brokerServicePortTls", "", host, tls.broker_port, self._binary_tls())
        for item in extra:
            if item.scheme == "http":
                await _bound("bindAddresses", self._http.listen, item.host, item.port)
            elif item.scheme == "https":
                await _bound("bindAddresses", self._listen_web_tls, item.host, item.port)
            else:
                secured = self._binary_tls() if item.scheme == "pulsar+ssl" else None
                await self._bind_broker("bindAddresses", item.listener, item.host, item.port, secured)
        return BoundPorts(broker, web, broker_tls, web_tls)

    async def open(self) -> None:
        """Serve whoever connects; raises UnavailableError."""
        await _opened("webServicePort", self._http.start)
        for listener in self._listeners:
            await _opened("brokerServicePort", listener.start)
        if self.tls is not None:
            self.tls.follow()

    async def close(self) -> None:
        """Those of the binary protocol; the others are the HTTP server's."""
        if self.tls is not None:
            self.tls.close()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.close()

    async def _listen_web_tls(self, host: str, port: int) -> int:
        assert self.tls is not None
        assert self.tls.web is not None
        return await self._http.listen(host, port, self.tls.web)

    def _binary_tls(self) -> ServerTls:
        assert self.tls is not None
        assert self.tls.binary is not None
        return self.tls.binary

    async def _bind_broker(self, key: str, name: str, host: str, port: int, tls: ServerTls | None = None) -> int:
        def connection() -> asyncio.BaseProtocol:
            return self._new_connection(name) if tls is None else _Shown(lambda: self._new_connection(name))

        async def bind(host: str, port: int) -> Listener:
            return await self._runtime.network.listen(
                connection,
                host,
                port,
                tls=tls,
                keep_free=self._keep_free,
                refusal=commands.error(commands.UNREQUESTED, _FULL.server_error, str(_FULL)),
                start=False,
            )

        listener = await _bound(key, bind, host, port)
        self._listeners.append(listener)
        return listener.port


class _Shown(asyncio.Protocol):
    """Gives a connection the certificate that its client showed, and itself up to it."""

    def __init__(self, make: Callable[[], Connection]) -> None:
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        from geminga.runtime.tls.peer import peer_certificate

        connection = self._make()
        connection.handshake.certificate = peer_certificate(transport)
        cast("asyncio.Transport", transport).set_protocol(connection)
        connection.connection_made(transport)


async def _bound(key: str, listen: Callable[[str, int], Awaitable[T]], host: str, port: int) -> T:
    try:
        return await listen(host, port)
    except OSError as error:
        raise UnavailableError(f"{key}: can not listen on {host}:{port}: {error.strerror or error}") from error


async def _opened(key: str, start: Callable[[], Awaitable[None]]) -> None:
    try:
        await start()
    except OSError as error:
        raise UnavailableError(f"{key}: can not listen: {error.strerror or error}") from error
