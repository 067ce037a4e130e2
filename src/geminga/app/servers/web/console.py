"""The console beside the administration: loaded, and Jinja2 with it, by the first request for one of its pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from geminga.broker.peers.links import PLAIN
from geminga.broker.rest.http.server import IMPORT_LANE
from geminga.model.errors import UnavailableError
from geminga.runtime import get_logger
from geminga.version import __version__

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from geminga.app.configuration.config import Config
    from geminga.app.console.serving.application import Console
    from geminga.broker.composition.service import Broker
    from geminga.broker.websocket.clients import SocketClients
    from geminga.client import Client

#: Where it is.
ROOT: Final = "/console"
#: Value of ``gemingaConsole``.
READ_ONLY: Final = "read-only"
_LATER: Final = b"The console could not be loaded; try again in a moment.\n"

_log = get_logger(__name__)


class ConsoleMount:
    """An ASGI application around the administration."""

    def __init__(self, administration: ASGIApp, broker: Broker, config: Config, *, is_alone: bool) -> None:
        """``is_alone``: no other broker has topics."""
        self._administration = administration
        self._broker = broker
        self._config = config
        self._is_alone = is_alone
        self._loading = asyncio.Lock()
        self._console: Console | None = None
        self._clients: SocketClients | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, as ASGI has it."""
        path = scope["path"] if scope["type"] == "http" else ""
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            await self._administration(scope, receive, send)
            return
        try:
            console = self._console or await self._load()
        except (OSError, ImportError, MemoryError) as error:
            # No descriptor, no memory: a moment of need, which the next request may find over.
            _log.warning("the console could not be loaded: %s", error)
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"retry-after", b"5")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send({"type": "http.response.body", "body": _LATER})
            return
        await console(scope, receive, send)

    async def _load(self) -> Console:
        async with self._loading:
            if self._console is None:
                threads = self._broker.runtime.threads
                self._console = await threads.call(IMPORT_LANE, self._made)
            return self._console

    def _made(self) -> Console:
        from geminga.app.console.serving.application import Console, Mounted
        from geminga.broker.authentication.class_names import ProviderKind, kinds_of

        runtime, server, links = self._broker.runtime, self._config.server, self._config.links
        authentication = self._config.authentication
        kinds = kinds_of(authentication.providers) if authentication is not None else []
        return Console(
            Mounted(
                self._administration,
                runtime.rng.token,
                runtime.clock.monotonic,
                runtime.clock.wall_ms,
                server.console != READ_ONLY,
                self._config.authentication is not None,
                self._client,
                (lambda: None) if links is None or not links.links().uses_tls else links.links().context,
                server.cluster_name,
                __version__,
                takes_tokens=ProviderKind.TOKEN in kinds or ProviderKind.OPENID in kinds,
                takes_passwords=ProviderKind.BASIC in kinds,
            )
        )

    @asynccontextmanager
    async def _client(
        self, authorization: str, certificate: bytes | None, is_through_proxy: bool
    ) -> AsyncIterator[Client]:
        """As the visitor, or not at all: raises UnavailableError where credentials can not go on to brokers."""
        from geminga.broker.websocket.clients import SocketClients, SocketOwner

        config = self._config
        if self._clients is None:
            self._clients = SocketClients(
                self._broker.runtime,
                lambda: self._broker.endpoints,
                self._broker.new_connection,
                PLAIN if config.links is None else config.links.links(),
                is_alone=self._is_alone,
                asks_who=config.authentication is not None,
                description="console",
            )
        owner = SocketOwner(authorization, certificate, is_through_proxy)
        key, client = self._clients.take(owner)
        try:
            if config.authentication is not None and key == SocketOwner():
                raise UnavailableError(
                    "messages can be read and published here by who logged in with a token or a password, not with a "
                    "certificate alone"
                )
            yield client
        finally:
            self._clients.give_back(key)
