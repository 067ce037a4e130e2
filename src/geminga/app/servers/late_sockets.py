"""WebSockets of a broker, made with the first request for one: until then neither they nor our client are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from geminga.app.configuration.config import Config
    from geminga.broker.composition.service import Broker
    from geminga.broker.websocket.service import SocketService

#: Of the connections of HTTP, one in so many is left to requests.
OF_REQUESTS: Final = 10


class LateSockets:
    """See the module."""

    def __init__(self, broker: Broker, config: Config, connections_max: int, *, is_alone: bool) -> None:
        """``connections_max``: of HTTP, of which sockets are some. ``is_alone``: no other broker has topics."""
        self._broker = broker
        self._config = config
        self._connections_max = connections_max
        self._is_alone = is_alone
        self._service: SocketService | None = None

    def use(self) -> SocketService:
        """Raises ConfigurationError for credentials of the broker's own that can not be."""
        if self._service is None:
            from geminga.broker.peers.links import PLAIN
            from geminga.broker.websocket.clients import SocketClients
            from geminga.broker.websocket.service import ServiceLimits, SocketService
            from geminga.broker.websocket.socket import SocketLimits

            broker, server = self._broker, self._config.server
            links = PLAIN if self._config.links is None else self._config.links.links()
            clients = SocketClients(
                broker.runtime,
                lambda: broker.endpoints,
                broker.new_connection,
                links,
                is_alone=self._is_alone,
                asks_who=self._config.authentication is not None,
            )
            for_sockets = max(1, self._connections_max - max(1, self._connections_max // OF_REQUESTS))
            limits = ServiceLimits(
                min(server.web_sockets_max, for_sockets),
                SocketLimits(
                    server.web_socket_message_bytes_max,
                    max(0, server.web_socket_idle_ms) / 1000,
                    max(0, server.web_socket_ping_s),
                ),
                server.web_socket_published_mb << 20,
            )
            self._service = SocketService(broker.runtime.clock, clients, limits)
        return self._service

    def metrics(self) -> Mapping[str, float]:
        """Nothing until there was one."""
        return {} if self._service is None else self._service.metrics()

    async def close(self) -> None:
        """Every socket is told."""
        if self._service is not None:
            await self._service.close()
