"""The process of ``geminga proxy``: configuration -> ports, brokers, connections; and the end.

What must go wrong at the start does so before a port is taken: keys, files of certificates and credentials. Stop: no
one is taken any more, what was asked is answered, connections end when what was read for them is written.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from geminga.app.configuration.core.log_options import parse_levels
from geminga.app.configuration.proxy_config import ProxyProcessConfig, ProxyServerConfig
from geminga.app.lifecycle.core.descriptors import plan_descriptors
from geminga.app.lifecycle.event_loop import loop_factory
from geminga.app.lifecycle.log_lines import PackageLevels
from geminga.app.lifecycle.process_life import (
    STOP_GRACE_S,
    begun,
    end_at_once,
    keep_freed_memory,
    raise_open_files,
    seconds_since_exec,
    settle_collector,
    stop_on_signals,
)
from geminga.app.servers.core.addresses import WILDCARD_ADDRESSES
from geminga.app.servers.core.open_start import OF_PROXY, Opening, check_start
from geminga.app.servers.tls_ports import TlsPorts
from geminga.broker.access.anonymous import OPEN
from geminga.broker.access.ports import Access
from geminga.model.errors import ConfigurationError, UnavailableError
from geminga.proxy.brokers import BrokerDirectory, Brokers, FixedEntry
from geminga.proxy.core.requests import target_of
from geminga.proxy.core.targets import AllowedTargets, Target
from geminga.proxy.discovery import RegisteredBrokers
from geminga.proxy.service import ProxyService
from geminga.runtime import check_address, descriptor_limit, get_logger, real_runtime
from geminga.runtime.ports import HeaderRule, Listener, Runtime, ServerTls
from geminga.version import __version__
from geminga.wire.pulsar import commands

if TYPE_CHECKING:
    from geminga.app.proxy.web import ProxyWeb
    from geminga.broker.authentication.opening import OpenedAuthentication
    from geminga.broker.peers.links import PeerLinks

_FULL: Final = UnavailableError("the proxy has as many connections as it may open files; try again later")

_log = get_logger(__name__)
T = TypeVar("T")


class ProxyPorts(NamedTuple):
    """Ports that were taken; None: there is none of the kind."""

    port: int | None
    port_tls: int | None
    web: int | None
    web_tls: int | None


class ProxyServer:
    """One proxy on the running loop."""

    def __init__(self, config: ProxyProcessConfig) -> None:
        self._config = config
        self._runtime: Runtime
        self._service: ProxyService
        self._access: Access = OPEN
        self._opened: OpenedAuthentication | None = None
        self._links: PeerLinks
        self._directory: BrokerDirectory
        self._tls: TlsPorts | None = None
        self._web: ProxyWeb | None = None
        self._listeners: list[Listener] = []
        self._closers = AsyncExitStack()

    async def start(self) -> ProxyPorts:
        """Serve; raises ConfigurationError, UnavailableError, MetadataError."""
        config, server = self._config, self._config.server
        check_start(
            [Opening("bindAddress", server.bind_address, OF_PROXY)],
            is_authenticated=config.authentication is not None,
            may_be_open=server.may_be_open,
        )
        self._runtime = runtime = real_runtime(end_at_once)
        self._closers.push_async_callback(runtime.disk.close)
        self._closers.push_async_callback(runtime.threads.close)
        if config.authentication is not None:
            from geminga.broker.authentication.opening import OpenedAuthentication

            self._opened = OpenedAuthentication(runtime, config.authentication)
            self._access = await self._opened.open()
            self._closers.push_async_callback(self._opened.close)
        if config.tls is not None:
            self._tls = TlsPorts(config.tls, server.handshake_timeout_s, ())
            self._closers.callback(self._tls.close)
        self._links = config.links.links()
        self._directory = await self._brokers_there()
        self._service = ProxyService(
            runtime,
            config.proxy,
            self._access,
            self._brokers(),
            self._directory,
            version=f"Geminga proxy {__version__}",
            handshake_s=server.handshake_timeout_s,
            anonymizer=server.role_anonymizer,
        )
        ports = await self._bind()
        if self._web is not None:
            await self._web.start()
        for listener in self._listeners:
            await _taken("servicePort", listener.start())
        if self._tls is not None:
            self._tls.follow()
        if self._opened is not None:
            self._opened.start()
        return ports

    def look_at_files(self) -> None:
        """Read certificates and credentials again: an operator says that they are new."""
        from geminga.runtime import spawn

        if self._tls is not None:
            self._tls.look()
        if self._opened is not None:
            spawn(self._opened.refresh(again=True), name="files of credentials")

    async def stop(self) -> None:
        """See the module."""
        for listener in self._listeners:
            await listener.close()
        await self._service.stop(self._config.server.shutdown_timeout_ms / 1000)
        if self._web is not None:
            await self._web.close()
        await self._closers.aclose()

    async def abandon(self) -> None:
        """Let go of what a start that failed had taken."""
        for listener in self._listeners:
            await listener.close()
        if self._web is not None:
            await self._web.close()
        await self._closers.aclose()

    # ---- brokers

    async def _brokers_there(self) -> BrokerDirectory:
        config = self._config
        proxy = config.proxy
        if config.metadata is None:
            return FixedEntry(_target(proxy.uses_tls, proxy.broker_url, proxy.broker_url_tls))
        from geminga.metadata.zookeeper import ZooKeeperMetadataStore

        metadata = await ZooKeeperMetadataStore.open(
            self._runtime, config.metadata, session_timeout_ms=config.server.session_timeout_ms
        )
        self._closers.push_async_callback(metadata.close)
        return RegisteredBrokers(metadata, self._runtime.clock.monotonic, uses_tls=proxy.uses_tls)

    def _brokers(self) -> Brokers:
        proxy = self._config.proxy
        return Brokers(
            self._runtime,
            AllowedTargets(proxy.allowed_hosts, proxy.allowed_addresses, proxy.allowed_ports),
            resolved,
            authentication=self._links.client_arguments.get("authentication"),
            tls=self._links.context if proxy.uses_tls else None,
            timeout_s=proxy.connect_timeout_ms / 1000,
            message_bytes_max=proxy.message_bytes_max,
            version=f"Geminga-{__version__}",
            sends_header=proxy.has_source_header,
        )

    # ---- ports

    async def _bind(self) -> ProxyPorts:
        config, server, tls = self._config, self._config.server, self._config.tls
        plan = plan_descriptors(
            descriptor_limit(),
            open_logs=0,
            web_connections_max=server.http_connections_max or config.proxy.connections_max,
            has_files=False,
        )
        port = port_tls = web = web_tls = None
        if server.web_port is not None or (tls is not None and tls.web_port is not None):
            from geminga.app.proxy.web import ProxyWeb

            self._web = ProxyWeb(
                self._runtime,
                config,
                self._service,
                self._access,
                self._links,
                self._directory,
                plan,
                _own_names(server),
            )
            if server.web_port is not None:
                web = await _taken("webServicePort", self._web.listen(server.bind_address, server.web_port))
            if tls is not None and tls.web_port is not None and self._tls is not None:
                listening = self._web.listen(server.bind_address, tls.web_port, self._tls.web)
                web_tls = await _taken("webServicePortTls", listening)
        if server.port is not None:
            port = await _taken("servicePort", self._listen(server.port, None, plan.keep_free_of_clients))
        if tls is not None and tls.broker_port is not None and self._tls is not None:
            listening = self._listen(tls.broker_port, self._tls.binary, plan.keep_free_of_clients)
            port_tls = await _taken("servicePortTls", listening)
        if port is None and port_tls is None:
            raise ConfigurationError("servicePort and servicePortTls are empty: expected one of them, 6650 or 6651")
        return ProxyPorts(port, port_tls, web, web_tls)

    async def _listen(self, port: int, tls: ServerTls | None, keep_free: int) -> int:
        server, proxy = self._config.server, self._config.proxy
        header = None
        if proxy.has_source_header:
            header = HeaderRule(self._service.connection, proxy.needs_source_header, server.handshake_timeout_s)
        listener = await self._runtime.network.listen(
            self._service.connection,
            server.bind_address,
            port,
            tls=tls,
            keep_free=keep_free,
            refusal=commands.error(commands.UNREQUESTED, _FULL.server_error, str(_FULL)),
            start=False,
            header=header,
        )
        self._listeners.append(listener)
        return listener.port


async def resolved(host: str, port: int) -> Sequence[str]:
    """Addresses of a host's name, in the system's order; raises OSError."""
    check_address(host, port)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def _taken(key: str, listening: Awaitable[T]) -> T:
    try:
        return await listening
    except OSError as error:
        raise UnavailableError(f"{key}: {error.strerror or error}") from error


def _target(uses_tls: bool, plain: str, secured: str) -> Target:
    key, url = ("brokerServiceURLTLS", secured) if uses_tls else ("brokerServiceURL", plain)
    scheme = "pulsar+ssl" if uses_tls else "pulsar"
    try:
        if not url.startswith(f"{scheme}://"):
            raise UnavailableError(url)
        return target_of(url)
    except UnavailableError:
        raise ConfigurationError(f"{key}={url}: expected {scheme}://host:port of one broker, or of all") from None


def _own_names(server: ProxyServerConfig) -> list[str]:
    return [server.bind_address, server.advertised_address]


def run_proxy(config: ProxyProcessConfig, *, json_line: bool) -> None:
    """Run until SIGTERM or SIGINT; raises what kept it from starting (GemingaError, OSError)."""
    raise_open_files()
    keep_freed_memory()
    for warning in config.warnings:
        _log.warning("%s", warning)
    with asyncio.Runner(loop_factory=loop_factory(config.server.event_loop)) as runner:
        runner.run(_serve(config, json_line=json_line))


async def _serve(config: ProxyProcessConfig, *, json_line: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    stop_on_signals(loop, stop, latest_s=lambda: config.server.shutdown_timeout_ms / 1000 + STOP_GRACE_S)
    PackageLevels().follow(parse_levels(config.server.log_levels))
    server = ProxyServer(config)
    if config.follows_files:
        # Without, it ends the process, as of a broker.
        loop.add_signal_handler(signal.SIGHUP, server.look_at_files)
    try:
        ports = await begun(server.start(), stop)
    except BaseException:
        await server.abandon()
        raise
    if ports is None:
        await server.abandon()
        return
    settle_collector()
    print(ready_line(config.server, ports, json_line=json_line), flush=True)
    await stop.wait()
    _log.info("stopping")
    await server.stop()


def ready_line(server: ProxyServerConfig, ports: ProxyPorts, *, json_line: bool) -> str:
    """The line that tells that it serves."""
    host = server.advertised_address or (
        socket.gethostname() if server.bind_address in WILDCARD_ADDRESSES else server.bind_address
    )
    shown = f"[{host}]" if ":" in host else host
    names = ("serviceUrl", "serviceUrlTls", "webServiceUrl", "webServiceUrlTls")
    schemes = ("pulsar", "pulsar+ssl", "http", "https")
    urls = {
        name: f"{scheme}://{shown}:{port}"
        for name, scheme, port in zip(names, schemes, ports, strict=True)
        if port is not None
    }
    seconds = round(seconds_since_exec(), 3)
    if json_line:
        return json.dumps({**urls, "startupSeconds": seconds, "pid": os.getpid(), "version": __version__})
    shown_urls = " ".join(urls.values())
    return f"Geminga {__version__}: the proxy is ready after {seconds:.2f} s: {shown_urls} (process {os.getpid()})"
