"""The proxy on a running loop: what its connections share, and the end of them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from geminga.broker.access.core.principal import Principal
from geminga.broker.access.core.shown_roles import NONE, shown_principal
from geminga.broker.access.ports import Access
from geminga.proxy.brokers import BrokerDirectory, Brokers
from geminga.proxy.config import ProxyConfig
from geminga.proxy.connection import ProxyConnection
from geminga.proxy.core.guests import AskedRequests, Counters, Guests
from geminga.proxy.core.room import UNTAKEN_BYTES_MAX, UntakenRoom
from geminga.proxy.services import ProxyServices
from geminga.runtime import Runtime, SparseWarnings, get_logger, wait_ms
from geminga.runtime.core.source_header import Origin

#: Milliseconds between two looks at whether requests are answered, at a stop.
_LOOK_MS: Final = 20

_log = get_logger(__name__)


class ProxyService:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        config: ProxyConfig,
        access: Access,
        brokers: Brokers,
        directory: BrokerDirectory,
        *,
        version: str,
        handshake_s: float,
        anonymizer: str = NONE,
    ) -> None:
        """``anonymizer``: how roles are shown in the log."""
        guests = Guests(config.connections_max, config.connections_per_host_max)
        self.services = ProxyServices(
            config=config,
            access=access,
            brokers=brokers,
            directory=directory,
            counters=Counters(guests, AskedRequests(config.requests_max)),
            # A client may take its time for the largest answer, and be sent a PING beside it.
            room=UntakenRoom(max(UNTAKEN_BYTES_MAX, 2 * config.message_bytes_max)),
            monotonic=runtime.clock.monotonic,
            warnings=SparseWarnings(_log, runtime.clock.monotonic),
            version=version,
            handshake_s=handshake_s,
            shown_role=_shown(anonymizer),
        )

    def connection(self, source: Origin | None = None) -> asyncio.BaseProtocol:
        """For one who comes; ``source``: where from, if a balancer said so."""
        return ProxyConnection(self.services, source)

    async def stop(self, limit_s: float) -> None:
        """Answer what was asked, for so long at most; write what was read, and end all connections.

        Nobody is taken any more. Clients that are cut off connect again, elsewhere.
        """
        services = self.services
        services.is_stopping = True
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + limit_s
        while any(one.is_busy for one in services.open) and loop.time() < deadline_s:
            await wait_ms(_LOOK_MS)
        for connection in tuple(services.open):
            connection.close("the proxy is stopping")
        while services.open and loop.time() < deadline_s:
            await wait_ms(_LOOK_MS)
        for connection in tuple(services.open):
            connection.abort()


def _shown(anonymizer: str) -> Callable[[str], str]:
    return lambda role: shown_principal(Principal(role), anonymizer)
