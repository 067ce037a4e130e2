"""Which handler a path and method have: what is built, and 501 for what only Pulsar has.

The more particular path comes first, as in Pulsar: ``brokers/health`` before ``brokers/{cluster}``. A path that is
known with other methods only answers 405, an unknown one 404.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Router
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from geminga.broker.access.core.actions import (
    Action,
    Anyone,
    NamespaceOperation,
    PolicyAction,
    PolicyName,
    Resource,
    SuperUser,
    TenantAdministration,
    TopicOperation,
    reading,
    writing,
)
from geminga.broker.core.coercion import Json, NotBuiltError
from geminga.broker.rest.calls.core import unbuilt
from geminga.model.errors import InvariantError

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class InBody(NamedTuple):
    """An action about what the body names; the handler finds the body in ``request.state.body``."""

    action: Action
    #: Raises RestError for a body that names nothing, and BodyError.
    about: Callable[[Json], Resource]


#: What a row may need.
Needs: TypeAlias = Action | Anyone | InBody

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


class Route(StarletteRoute):
    """A row: method and path, who answers, and what must be allowed before."""

    def __init__(self, methods: str, path: str, endpoint: Handler, needs: Needs) -> None:
        """``methods``: mostly one, such as ``GET``; else each behind a space. ``needs``: an action, about what the
        path names; or why anyone may. Raises InvariantError where the path names nothing that the action could be
        about."""
        super().__init__(path, endpoint, methods=methods.split())
        self.needs: Final = needs
        parameter = _parameter_of(needs)
        if parameter and f"{{{parameter}}}" not in path:
            raise InvariantError(f"{path} needs {needs!r}, and names no {parameter}")

    def answered_by(self, endpoint: Handler) -> Route:
        """The same row with another handler."""
        return Route(" ".join(sorted(self.methods or ())), self.path, endpoint, self.needs)


def policy_routes(
    path: str, policy: PolicyName, read: Handler, write: Handler, remove: Handler, *, set_by: str = "POST"
) -> list[Route]:
    """The rows by which a policy is read, set and removed at one path."""
    return [
        Route("GET", path, read, reading(policy)),
        Route(set_by, path, write, writing(policy)),
        Route("DELETE", path, remove, writing(policy)),
    ]


def _parameter_of(needs: Needs) -> str:
    """What a path must name for this to be about something."""
    if isinstance(needs, TopicOperation):
        return "topic"
    if (
        isinstance(needs, NamespaceOperation | PolicyAction | TenantAdministration)
        or needs is SuperUser.UNLOAD_NAMESPACE
    ):
        return "namespace"
    return ""


def distinct(routes: Iterable[Route]) -> list[Route]:
    """The routes; raises InvariantError for two that answer the same method and path."""
    rows = list(routes)
    found: dict[tuple[str, str], Route] = {}
    for route in rows:
        for method in sorted(route.methods or ()):
            # Parameters of the same place are the same, whatever they are called; a domain is not any name.
            shape = (method, _PARAMETER.sub("{}", route.path.replace(DOMAIN, "<domain>")))
            if shape in found:
                raise InvariantError(f"two rows for {method} {route.path}, the other one is {found[shape].path}")
            found[shape] = route
    return rows


class SegmentRouter(Router):
    """A router that looks at those routes only whose paths have as many segments as that of the request."""

    def __init__(self, routes: Iterable[StarletteRoute]) -> None:
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
    # A domain is as particular as the word that it stands for: no other path has that word there.
    return -len(_PARAMETER.sub("", path.replace(DOMAIN, "non-persistent")))


#: Whoever builds one of them gives it a row of its own.
_REFUSED: Final = Anyone("it is answered 501, or that what it names is missing: there is nothing behind it")
#: Paths that name what is there before anything is done about it.
_OF_SOMETHING: Final = ("/admin/v2/clusters/", "/admin/v2/namespaces/{tenant}/{namespace}", "/admin/v2/{domain}")


def unbuilt_routes() -> list[Route]:
    """A route for each row of :data:`geminga.broker.rest.calls.core.unbuilt.ROUTES`, which answers 501."""
    return [
        Route(
            " ".join(row.methods),
            row.path.replace("{domain}", DOMAIN),
            _refuser(row.what, is_of_something=row.path.startswith(_OF_SOMETHING)),
            _REFUSED,
        )
        for row in unbuilt.ROUTES
    ]


def _refuser(what: str, *, is_of_something: bool) -> Handler:
    async def refuse(request: Request) -> Response:
        if is_of_something:
            from geminga.broker.rest.calls.targets import require_named

            await require_named(request)
        raise NotBuiltError(what)

    return refuse
