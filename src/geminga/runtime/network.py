"""TCP and TLS through asyncio's own transports: the ``Network`` port on the running loop (asyncio or uvloop)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

#: Connections the kernel may hold until they are accepted: a broker's clients all come back at once.
LISTEN_BACKLOG_CONNECTIONS = 1024


class AsyncioListener:
    """A listening server of the loop."""

    __slots__ = ("_port", "_server")

    def __init__(self, server: asyncio.AbstractServer, port: int) -> None:
        self._server = server
        self._port = port

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    async def close(self) -> None:
        """Stop accepting. Not waiting for established connections: they go on."""
        self._server.close()


class AsyncioNetwork:
    """The system's TCP; ``TCP_NODELAY`` is set by the loop."""

    __slots__ = ()

    async def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> AsyncioListener:
        """Listen on ``host:port`` (0: the kernel picks); raises OSError."""
        server = await asyncio.get_running_loop().create_server(
            protocol_factory, host, port, ssl=tls, backlog=LISTEN_BACKLOG_CONNECTIONS
        )
        return AsyncioListener(server, server.sockets[0].getsockname()[1])

    async def connect(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect; raises OSError."""
        return await asyncio.get_running_loop().create_connection(protocol_factory, host, port, ssl=tls)
