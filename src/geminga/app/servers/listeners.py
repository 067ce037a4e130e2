"""Advertised listeners and bind addresses, in Pulsar's notation ``listener:scheme://host:port``.

A listener is a name for a set of URLs that clients of one network are told; ``?listenerName`` of a lookup picks one.
Rules as Pulsar's: a name has at most one URL of a scheme; ``internalListenerName`` must be one of the names and is
the first if it is not given. Without ``advertisedListeners`` there is one listener, the advertised address with the
ports that are served.

Ports are bound one by one before a broker starts, and opened together when it can answer. Each of the two protocols has
a plain port and one with TLS, or one of them; ``bindAddresses`` adds further ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from geminga.app.configuration.server_config import ServerConfig
from geminga.app.servers.core.addresses import WILDCARD_ADDRESSES, host_names, is_loopback
from geminga.broker.ownership.endpoints import DEFAULT_LISTENER, Endpoint
from geminga.broker.rest.http.server import HttpServer
from geminga.model.errors import ConfigurationError, UnavailableError
from geminga.runtime import Listener, Runtime, get_logger
from geminga.runtime.ports import HeaderRule
from geminga.wire.pulsar import commands

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from geminga.app.configuration.config import Config
    from geminga.app.servers.tls_ports import TlsPorts
    from geminga.broker.composition.service import Broker
    from geminga.broker.connection.connection import Connection
    from geminga.runtime.ports import ServerTls

_log = get_logger(__name__)

#: What a client is told that would take a descriptor which is kept for others.
_FULL: Final = UnavailableError("the broker has as many connections as it may open files; try again later")

T = TypeVar("T")

BROKER_SCHEMES: Final = ("pulsar", "pulsar+ssl")
SCHEMES: Final = (*BROKER_SCHEMES, "http", "https")
#: Where pages for people are: ``web.console.ROOT``, which is loaded with the first of them.
CONSOLE: Final = "/console"


class ListenerUrl(NamedTuple):
    """One ``listener:scheme://host:port``."""

    listener: str
    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """``scheme://host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_listener(key: str, text: str) -> ListenerUrl:
    """Parse one item of ``advertisedListeners`` or ``bindAddresses``; raises :class:`ConfigurationError`."""
    listener, separator, url = text.partition(":")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if not separator or not listener or parts.scheme not in SCHEMES or not parts.hostname or port is None:
        raise ConfigurationError(
            f"{key}={text}: expected listener:scheme://host:port with a scheme of {', '.join(SCHEMES)}"
        )
    return ListenerUrl(listener, parts.scheme, parts.hostname, port)


def advertised_listeners(texts: Sequence[str], internal: str) -> list[Endpoint]:
    """The listeners that ``advertisedListeners`` names, the internal one first; raises ConfigurationError."""
    urls: dict[str, dict[str, str]] = {}
    for text in texts:
        item = parse_listener("advertisedListeners", text)
        of_listener = urls.setdefault(item.listener, {})
        if item.scheme in of_listener:
            raise ConfigurationError(f"advertisedListeners={text}: listener {item.listener} has two {item.scheme} URLs")
        of_listener[item.scheme] = item.url
    if internal and internal not in urls:
        names = ", ".join(urls) or "none"
        raise ConfigurationError(f"internalListenerName={internal}: expected one of advertisedListeners ({names})")
    return [
        Endpoint(
            name,
            urls[name].get("pulsar", ""),
            urls[name].get("pulsar+ssl", ""),
            urls[name].get("http", ""),
            urls[name].get("https", ""),
        )
        for name in sorted(urls, key=lambda name: bool(internal) and name != internal)
    ]


class BoundPorts(NamedTuple):
    """Ports that were bound; None: there is none of the kind."""

    broker: int | None
    web: int | None
    broker_tls: int | None = None
    web_tls: int | None = None


class Addresses(NamedTuple):
    """Where a running standalone is reached."""

    broker_service_url: str
    web_service_url: str
    broker_port: int
    web_port: int
    #: The same with TLS; empty: there is none.
    broker_service_url_tls: str = ""
    web_service_url_tls: str = ""


def addresses_of(default: Endpoint, bound: BoundPorts) -> Addresses:
    """Where a broker is reached: without TLS where that is there, else with it."""
    return Addresses(
        default.broker_url or default.broker_url_tls,
        default.web_url or default.web_url_tls,
        bound.broker_tls or 0 if bound.broker is None else bound.broker,
        bound.web_tls or 0 if bound.web is None else bound.web,
        default.broker_url_tls,
        default.web_url_tls,
    )


def endpoints(config: ServerConfig, ports: BoundPorts, *, host_name: str, is_alone: bool = False) -> list[Endpoint]:
    """What clients are told, given the ports that were bound and this machine's name; raises ConfigurationError.

    A listener of ``advertisedListeners`` that has no HTTP URLs gets those of the advertised address. ``is_alone``: no
    other broker is in the cluster, so that a client which came by a mapped port can come back by it.
    """
    advertised = config.advertised_address or (
        host_name if config.bind_address in WILDCARD_ADDRESSES else config.bind_address
    )
    host = f"[{advertised}]" if ":" in advertised else advertised
    _check_host(advertised, host)
    by_scheme = zip(SCHEMES, (ports.broker, ports.broker_tls, ports.web, ports.web_tls), strict=True)
    broker, broker_tls, web, web_tls = (
        "" if port is None else f"{scheme}://{host}:{port}" for scheme, port in by_scheme
    )
    own = Endpoint(DEFAULT_LISTENER, broker, broker_tls, web, web_tls)
    named = advertised_listeners(config.advertised_listeners, config.internal_listener_name)
    found = [
        replace(endpoint, web_url=endpoint.web_url or own.web_url, web_url_tls=endpoint.web_url_tls or own.web_url_tls)
        for endpoint in named
    ] or [own]
    is_derived = not config.advertised_address and not named
    return [
        replace(endpoint, is_through_service_url=is_alone and (is_derived or _is_loopback_url(endpoint)))
        for endpoint in found
    ]


def _check_host(advertised: str, host: str) -> None:
    try:
        found = urlsplit(f"http://{host}:80").hostname
    except ValueError:
        found = None
    if not found:
        raise ConfigurationError(f"advertisedAddress={advertised}: expected a host name or an IP address")


def _is_loopback_url(endpoint: Endpoint) -> bool:
    return is_loopback(urlsplit(endpoint.broker_url or endpoint.broker_url_tls).hostname or "")


def own_names(config: ServerConfig, advertised: Sequence[Endpoint], host_name: str) -> list[str]:
    """Hosts and URLs by which the broker's HTTP is reached, beside addresses."""
    urls = [url for one in advertised for url in (one.broker_url, one.broker_url_tls, one.web_url, one.web_url_tls)]
    bound = [item.host for item in bound_addresses(config.bind_addresses)]
    return [*urls, *bound, config.bind_address, config.advertised_address, *host_names(host_name)]


def bound_addresses(texts: Sequence[str]) -> list[ListenerUrl]:
    """``bindAddresses``; raises ConfigurationError."""
    return [parse_listener("bindAddresses", text) for text in texts]


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
        #: The key by which each of our own ports was taken: the kernel lets two sockets of a process have one.
        self._keys: dict[tuple[str, int], str] = {}
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
            web = await self._bound("webServicePort", self._http.listen, host, server.web_port)
        if tls is not None and tls.web_port is not None:
            web_tls = await self._bound("webServicePortTls", self._listen_web_tls, host, tls.web_port)
        if tls is None or not tls.replaces_broker_port:
            broker = await self._bind_broker("brokerServicePort", "", host, server.broker_port)
        if tls is not None and tls.broker_port is not None:
            broker_tls = await self._bind_broker("brokerServicePortTls", "", host, tls.broker_port, self._binary_tls())
        for item in extra:
            if item.scheme == "http":
                await self._bound("bindAddresses", self._http.listen, item.host, item.port)
            elif item.scheme == "https":
                await self._bound("bindAddresses", self._listen_web_tls, item.host, item.port)
            else:
                secured = self._binary_tls() if item.scheme == "pulsar+ssl" else None
                await self._bind_broker("bindAddresses", item.listener, item.host, item.port, secured)
        return BoundPorts(broker, web, broker_tls, web_tls)

    async def _bound(self, key: str, listen: Callable[[str, int], Awaitable[T]], host: str, port: int) -> T:
        if port:
            if (host, port) in self._keys:
                raise ConfigurationError(f"{key}: {port}: expected another port than that of {self._keys[host, port]}")
            self._keys[host, port] = key
        try:
            return await listen(host, port)
        except OSError as error:
            raise UnavailableError(f"{key}: can not listen on {host}:{port}: {error.strerror or error}") from error

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
        server = self._config.server

        def connection(source: tuple[str, int] | None = None) -> asyncio.BaseProtocol:
            def made() -> Connection:
                found = self._new_connection(name)
                found.source = source
                return found

            return made() if tls is None else _Shown(made)

        header = None
        if server.has_source_header:
            header = HeaderRule(connection, server.needs_source_header, server.handshake_timeout_s)

        async def bind(host: str, port: int) -> Listener:
            return await self._runtime.network.listen(
                connection,
                host,
                port,
                tls=tls,
                keep_free=self._keep_free,
                refusal=commands.error(commands.UNREQUESTED, _FULL.server_error, str(_FULL)),
                start=False,
                header=header,
            )

        listener = await self._bound(key, bind, host, port)
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


def with_console(
    make: Callable[[], ASGIApp], broker: Broker, config: Config, *, is_alone: bool
) -> Callable[[], ASGIApp]:
    """What makes the application of HTTP, with pages for people beside what ``make`` makes, unless they are off.

    ``is_alone``: no other broker has topics.
    """
    if config.server.console == "off":
        return make

    def mount() -> ASGIApp:
        administration = make()
        console: ASGIApp | None = None

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal console
            if console is None:
                path = scope["path"] if scope["type"] == "http" else ""
                if path != CONSOLE and not path.startswith(f"{CONSOLE}/"):
                    await administration(scope, receive, send)
                    return
                # Not loaded by a broker that nobody asks for a page.
                from geminga.app.servers.web.console import ConsoleMount

                console = ConsoleMount(administration, broker, config, is_alone=is_alone)
            await console(scope, receive, send)

        return application

    return mount


async def _opened(key: str, start: Callable[[], Awaitable[None]]) -> None:
    try:
        await start()
    except OSError as error:
        raise UnavailableError(f"{key}: can not listen: {error.strerror or error}") from error


def check_open_start(config: ServerConfig) -> None:
    """Raise ConfigurationError where strangers would reach a broker, and nobody said that this is meant."""
    extra = [item.host for item in bound_addresses(config.bind_addresses)]
    if all(is_loopback(host) for host in (config.bind_address, *extra)):
        return
    # Not loaded by who stays on this machine.
    from geminga.app.servers.core.open_start import OF_BROKER, Opening, check_start

    openings = [Opening("bindAddress", config.bind_address, OF_BROKER)]
    openings += [Opening("bindAddresses", host, OF_BROKER) for host in extra]
    check_start(openings, is_authenticated=config.authentication, may_be_open=config.may_be_open)


def warn_if_open_to_all(config: ServerConfig) -> None:
    """Say so where strangers reach a broker that asks nobody who they are."""
    if config.authentication:
        return
    hosts = [config.bind_address] + [item.host for item in bound_addresses(config.bind_addresses)]
    outside = sorted({host for host in hosts if not is_loopback(host)})
    if outside:
        _log.warning(
            "listening on %s without authentication: whoever reaches this machine can read, write and "
            "delete everything",
            ", ".join(outside),
        )
