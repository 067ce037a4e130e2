"""WebSockets of a broker, as its settings say. Loaded with the first request for one, and our client with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.broker.peers.links import PLAIN
from geminga.broker.websocket.clients import SocketClients
from geminga.broker.websocket.service import ServiceLimits, SocketService
from geminga.broker.websocket.socket import SocketLimits

if TYPE_CHECKING:
    from geminga.app.configuration.config import Config
    from geminga.broker.composition.service import Broker

#: Of the connections of HTTP, one in so many is left to requests.
OF_REQUESTS: Final = 10


def web_sockets(broker: Broker, config: Config, connections_max: int, *, is_alone: bool) -> SocketService:
    """``connections_max``: of HTTP, of which sockets are some. ``is_alone``: no other broker has topics.

    Raises ConfigurationError for credentials of the broker's own that can not be.
    """
    server = config.server
    clients = SocketClients(
        broker.runtime,
        lambda: broker.endpoints,
        broker.new_connection,
        PLAIN if config.links is None else config.links.links(),
        is_alone=is_alone,
        asks_who=config.authentication is not None,
        description="websocket",
    )
    for_sockets = max(1, connections_max - max(1, connections_max // OF_REQUESTS))
    of_each = SocketLimits(
        server.web_socket_message_bytes_max, max(0, server.web_socket_idle_ms) / 1000, max(0, server.web_socket_ping_s)
    )
    limits = ServiceLimits(min(server.web_sockets_max, for_sockets), of_each, server.web_socket_published_mb << 20)
    return SocketService(broker.runtime.clock, clients, limits)
