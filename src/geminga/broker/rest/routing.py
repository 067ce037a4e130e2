"""Which handler a path and method have: what is built, and 501 for what only Pulsar has.

The more particular path comes first, as in Pulsar: ``brokers/health`` before ``brokers/{cluster}``. A path that is
known with other methods only answers 405, an unknown one 404.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby
from typing import Final

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from geminga.broker.rest.core import unbuilt
from geminga.model.errors import NotBuiltError

_PARAMETER: Final = re.compile(r"\{[^}]*\}")


class _Domain(Convertor[str]):
    """The two domains that topics have; anything else is no topic's path."""

    regex = "persistent|non-persistent"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("domain", _Domain())

#: The domain in a path.
DOMAIN: Final = "{domain:domain}"
#: Paths of a namespace's topics and of a topic.
TOPICS_PATH: Final = f"/admin/v2/{DOMAIN}/{{tenant}}/{{namespace}}"
TOPIC_PATH: Final = f"{TOPICS_PATH}/{{topic}}"


class SegmentRouter(Router):
    """A router that looks at those routes only whose paths have as many segments as that of the request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        ordered = sorted(routes, key=lambda route: (_segments(route.path), _generality(route.path)))
        super().__init__(routes=ordered, redirect_slashes=False)
        self._by_segments: dict[int, Router] = {
            count: Router(routes=list[BaseRoute](group), redirect_slashes=False)
            for count, group in groupby(ordered, lambda route: _segments(route.path))
        }
        self._no_routes = Router(redirect_slashes=False)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve with the routes that can fit."""
        count = _segments(scope["path"]) if scope["type"] == "http" else 0
        await self._by_segments.get(count, self._no_routes).app(scope, receive, send)


def _segments(path: str) -> int:
    return path.count("/")


def _generality(path: str) -> int:
    """The fewer literal characters, the more general: Pulsar's own order."""
    return -len(_PARAMETER.sub("", path))


def unbuilt_routes() -> list[Route]:
    """A route for each row of :data:`geminga.broker.rest.core.unbuilt.ROUTES`, which answers 501."""
    return [
        Route(row.path.replace("{domain}", DOMAIN), _refuser(row.what), methods=list(row.methods))
        for row in unbuilt.ROUTES
    ]


def _refuser(what: str) -> Callable[[Request], Awaitable[Response]]:
    async def refuse(request: Request) -> Response:
        raise NotBuiltError(what)

    return refuse
