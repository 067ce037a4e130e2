"""The port where a bookie answers HTTP: taken before the bookie recovers, served once it is there."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

from geminga.app.bookie_config import HttpPlace
from geminga.app.core.addresses import host_names
from geminga.app.core.descriptors import DescriptorPlan
from geminga.bookie.serving import BookieServer
from geminga.bookie.spread import SpreadBookie
from geminga.broker.rest.core.patience import Limits
from geminga.broker.rest.server import HttpServer
from geminga.model.errors import UnavailableError
from geminga.runtime import Runtime

if TYPE_CHECKING:
    from starlette.types import ASGIApp

#: Requests at once.
REQUESTS_MAX: Final = 64
#: Seconds for the headers of a request, for its body, and without progress of an answer.
PATIENCE: Final = Limits(10, 10, 60)
#: Loaded with the first request.
_SOFTWARE: Final = ("geminga.app.bookie_http",)


class BookieHttpPort:
    """Made by :meth:`take`."""

    def __init__(
        self,
        runtime: Runtime,
        place: HttpPlace,
        plan: DescriptorPlan,
        own_names: Sequence[str],
        listed_names: Sequence[str],
    ) -> None:
        self._runtime = runtime
        self._port = 0
        self._served: tuple[SpreadBookie, BookieServer] | None = None
        self._http = HttpServer(
            runtime,
            self._application,
            requests_max=REQUESTS_MAX,
            connections_max=plan.web_connections_max,
            limits=PATIENCE,
            own_names=lambda: (*own_names, *host_names(socket.gethostname())),
            listed_names=listed_names,
            keep_free=plan.keep_free_of_web,
            software=_SOFTWARE,
            keys=(f"{place.key} of a bookie", "brokerServicePort of a broker"),
        )

    @classmethod
    async def take(
        cls,
        runtime: Runtime,
        place: HttpPlace,
        plan: DescriptorPlan,
        own_names: Sequence[str] = (),
        listed_names: Sequence[str] = (),
    ) -> Self:
        """Take ``place``, where connections are refused until :meth:`start`. Raises UnavailableError.

        ``own_names``: hosts by which it is reached, beside this machine's name; ``listed_names``: by the operator.
        """
        taken = cls(runtime, place, plan, own_names, listed_names)
        try:
            taken._port = await taken._http.listen(place.host, place.port)
        except OSError as error:
            raise UnavailableError(
                f"{place.key}: can not listen on {place.host}:{place.port}: {error.strerror or error}"
            ) from error
        return taken

    async def start(self, bookie: SpreadBookie, server: BookieServer) -> int:
        """Answer for ``bookie``, which ``server`` serves; the port. Raises OSError."""
        self._served = bookie, server
        await self._http.start()
        return self._port

    async def close(self) -> None:
        """Stop answering."""
        await self._http.close()

    def _application(self) -> ASGIApp:
        from geminga.app.bookie_http import BookieHttp

        assert self._served is not None
        bookie, server = self._served
        return BookieHttp(bookie, self._runtime.clock.monotonic, (server.metrics,))
