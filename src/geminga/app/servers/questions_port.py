"""A port where questions are answered over HTTP (``plain_http.py``): taken early, served once there are answers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Self

from geminga.app.configuration.bookie_config import HttpListener
from geminga.app.lifecycle.core.descriptors import DescriptorPlan
from geminga.app.servers.core.addresses import host_names
from geminga.broker.rest.calls.core.timeouts import TimeoutLimits
from geminga.broker.rest.http.server import HttpServer
from geminga.model.errors import UnavailableError
from geminga.runtime import Runtime

if TYPE_CHECKING:
    from starlette.types import ASGIApp

#: Requests at once.
REQUESTS_MAX: Final = 64
#: Seconds for the headers of a request, for its body, and without progress of an answer.
TIMEOUTS: Final = TimeoutLimits(10, 10, 60)
#: What asks for a bookie's port, and the module that answers there, which is loaded with the first request.
OF_BOOKIE: Final = ("a bookie", "geminga.app.servers.bookie_http")
OF_AUTORECOVERY: Final = ("auto-recovery", "geminga.app.lifecycle.plain_http")


class QuestionsPort:
    """Made by :meth:`take`."""

    def __init__(
        self,
        runtime: Runtime,
        listener: HttpListener,
        plan: DescriptorPlan,
        names: tuple[Sequence[str], Sequence[str]],
        of: tuple[str, str],
    ) -> None:
        whose, software = of
        own_names, listed_names = names
        self._port = 0
        self._answering: Callable[[], ASGIApp] | None = None
        self._http = HttpServer(
            runtime,
            self._application,
            requests_max=REQUESTS_MAX,
            connections_max=plan.web_connections_max,
            limits=TIMEOUTS,
            own_names=lambda: (*own_names, *host_names(socket.gethostname())),
            listed_names=listed_names,
            keep_free=plan.keep_free_of_web,
            software=(software,),
            keys=(f"{listener.key} of {whose}", "brokerServicePort of a broker"),
        )

    @classmethod
    async def take(
        cls,
        runtime: Runtime,
        listener: HttpListener,
        plan: DescriptorPlan,
        own_names: Sequence[str] = (),
        listed_names: Sequence[str] = (),
        *,
        of: tuple[str, str] = OF_BOOKIE,
        hint: str = "",
    ) -> Self:
        """Take ``listener``, where connections are refused until :meth:`start`. Raises UnavailableError, with ``hint``.

        Raises ConfigurationError for certificates that can not be used.

        ``own_names``: hosts by which it is reached, beside this machine's name; ``listed_names``: by the operator.
        """
        taken = cls(runtime, listener, plan, (own_names, listed_names), of)
        tls = None if listener.tls is None else listener.tls.served()
        try:
            taken._port = await taken._http.listen(listener.host, listener.port, tls)
        except OSError as error:
            raise UnavailableError(
                f"{listener.key}: can not listen on {listener.host}:{listener.port}: {error.strerror or error}{hint}"
            ) from error
        return taken

    async def start(self, application: Callable[[], ASGIApp]) -> int:
        """Answer with what ``application`` makes for the first request; the port. Raises OSError."""
        self._answering = application
        await self._http.start()
        return self._port

    async def close(self) -> None:
        """Stop answering."""
        await self._http.close()

    def _application(self) -> ASGIApp:
        assert self._answering is not None
        return self._answering()
