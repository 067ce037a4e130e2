"""HTTP of the proxy: what it answers itself, and the administration, which its brokers answer."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from geminga.app.configuration.proxy_config import ProxyProcessConfig
from geminga.app.lifecycle.core.descriptors import DescriptorPlan
from geminga.app.servers.core.addresses import host_names
from geminga.broker.access.ports import Access
from geminga.broker.peers.links import PeerLinks
from geminga.broker.rest.calls.core.timeouts import TimeoutLimits
from geminga.broker.rest.http.server import HttpServer
from geminga.model.errors import AuthenticationError, ConfigurationError, UnavailableError
from geminga.proxy.brokers import BrokerDirectory
from geminga.proxy.service import ProxyService
from geminga.runtime import Runtime
from geminga.runtime.ports import ServerTls

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from geminga.app.lifecycle.plain_http import HttpAnswer, PlainHttp
    from geminga.proxy.forwarding import Forwarding

_SOFTWARE: Final = ("geminga.app.lifecycle.plain_http", "geminga.proxy.forwarding")
#: Paths that are the proxy's own.
_OWN: Final = ("/metrics", "/heartbeat", "/status.html", "/proxy-stats/connections", "/proxy-stats/topics", "/health")


class ProxyWeb:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        config: ProxyProcessConfig,
        service: ProxyService,
        access: Access,
        links: PeerLinks,
        directory: BrokerDirectory,
        plan: DescriptorPlan,
        own_names: Sequence[str],
    ) -> None:
        """Raises ConfigurationError for a URL that is none."""
        self._runtime = runtime
        self._config = config
        self._service = service
        self._access = access
        self._links = links
        self._directory = directory
        self._own: PlainHttp
        self._forwarding: Forwarding
        server = config.server
        self._web_url_given = _web_url(config)
        self._http = HttpServer(
            runtime,
            self._application,
            requests_max=server.http_requests_max,
            connections_max=plan.web_connections_max,
            limits=TimeoutLimits(server.handshake_timeout_s, server.http_body_timeout_s, server.http_body_timeout_s),
            own_names=lambda: (*own_names, *host_names(socket.gethostname())),
            listed_names=server.http_hosts,
            keep_free=plan.keep_free_of_web,
            header_bytes_max=server.http_header_bytes_max,
            software=_SOFTWARE,
            keys=("webServicePort", "servicePort"),
            front=server.http_front,
        )

    async def listen(self, host: str, port: int, tls: ServerTls | None = None) -> int:
        """Take a port; raises OSError."""
        return await self._http.listen(host, port, tls)

    async def start(self) -> None:
        """Answer; raises OSError."""
        await self._http.start()

    async def close(self) -> None:
        """Answer what is under way, for a moment, and no more."""
        await self._http.close()

    def _application(self) -> ASGIApp:
        from geminga.app.lifecycle.plain_http import PlainHttp
        from geminga.app.lifecycle.process_metrics import process_metrics
        from geminga.app.proxy.process import resolved
        from geminga.proxy.forwarding import Forwarding, WebRules

        counters = self._service.services.counters
        routes = {"/status.html": self._status, "/health": self._health}
        if self._config.proxy.has_stats:
            routes |= {"/proxy-stats/connections": self._connections, "/proxy-stats/topics": self._topics}
        self._own = PlainHttp(
            "proxy", [((), process_metrics), ((), counters.metrics), ((), self._http.metrics)], routes
        )
        rules = WebRules(self._service.services.brokers.allowed, resolved, self._config.proxy.connect_timeout_ms / 1000)
        self._forwarding = Forwarding(self._runtime, self._access, self._links, rules, self._web_url)
        return self._route

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path.rstrip("/") not in _OWN:
            await self._forwarding(scope, receive, send)
            return
        is_stats = path.startswith(("/metrics", "/proxy-stats"))
        if is_stats and not self._config.proxy.has_stats:
            await _refuse(send, 404, "enableProxyStatsEndpoints=false")
            return
        if is_stats and self._config.authentication is not None and self._access.authenticates_metrics:
            from starlette.requests import Request

            from geminga.broker.rest.identity import principal_by

            try:
                await principal_by(self._access, Request(scope))
            except AuthenticationError as error:
                await _refuse(send, 401, error.told)
                return
        await self._own(scope, receive, send)

    async def _web_url(self) -> str:
        if self._web_url_given:
            return self._web_url_given
        return await self._directory.web_url()

    async def _status(self) -> HttpAnswer:
        """For load balancers: ``OK`` while the file that ``statusFilePath`` names is there, or none is named."""
        from geminga.app.lifecycle.plain_http import HttpAnswer

        path = self._config.server.status_file
        if self._service.services.is_stopping:
            return HttpAnswer(503, "the proxy is stopping\n")
        if path:
            try:
                await self._runtime.disk.file_size(path)
            except OSError:
                return HttpAnswer(404, "the file that statusFilePath names is not there\n")
        return HttpAnswer(200, "OK")

    async def _health(self) -> HttpAnswer:
        """Whether a broker is known."""
        from geminga.app.lifecycle.plain_http import HttpAnswer

        try:
            target = await self._directory.entry()
        except UnavailableError as error:
            return HttpAnswer(503, f"{error}\n")
        return HttpAnswer(200, f"OK {target}\n")

    async def _connections(self) -> HttpAnswer:
        from geminga.app.lifecycle.plain_http import JSON, HttpAnswer

        shown = [{"client": one.peer, "state": one.state.name} for one in self._service.services.open]
        return HttpAnswer(200, json.dumps(shown), JSON)

    async def _topics(self) -> HttpAnswer:
        from geminga.app.lifecycle.plain_http import JSON, HttpAnswer

        # As Pulsar's proxy below the level 2: there is no other level here, what is relayed is not read.
        return HttpAnswer(412, json.dumps({"reason": "Proxy doesn't have logging level 2"}), JSON)


def _web_url(config: ProxyProcessConfig) -> str:
    """Where the administration is; empty: brokers say it of themselves. Raises ConfigurationError."""
    proxy = config.proxy
    key, url = (
        ("brokerWebServiceURLTLS", proxy.web_url_tls) if proxy.uses_tls else ("brokerWebServiceURL", proxy.web_url)
    )
    scheme = "https" if proxy.uses_tls else "http"
    if url and not url.startswith(f"{scheme}://"):
        raise ConfigurationError(f"{key}={url}: expected {scheme}://host:port")
    return url


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"reason": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
