"""Requests that act on a topic go to the broker that owns it: 307 with the same path and query there, as in Pulsar.

``authoritative=true`` in the query says that a broker sent the request: it is not sent on again, but answered 503 where
brokers do not agree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.ownership.core.direction import Direction, direct_request
from geminga.broker.ownership.endpoints import Endpoint
from geminga.broker.ownership.lookup import no_owner
from geminga.broker.ownership.ports import Elsewhere, Ownership
from geminga.broker.rest.calls.routing import Handler, Route
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName

#: Says that a broker sent the request.
AUTHORITATIVE: Final = "authoritative"


#: Whose owner answers a request; None: whoever was asked.
Whose = Callable[[Request], Awaitable[TopicName | None]]


def at_owner(
    routes: Iterable[Route], topic: Callable[[Request], TopicName], ownership: Callable[[Request], Ownership]
) -> list[Route]:
    """The same routes; each request is answered by the owner of the ``topic`` that it acts on."""

    async def whose(request: Request) -> TopicName | None:
        return topic(request)

    return at_owner_of(routes, whose, ownership)


def at_owner_of(routes: Iterable[Route], whose: Whose, ownership: Callable[[Request], Ownership]) -> list[Route]:
    """The same, where it has to be found out whose owner answers."""
    return [_wrapped(route, whose, ownership) for route in routes]


def _wrapped(route: Route, whose: Whose, ownership: Callable[[Request], Ownership]) -> Route:
    handler: Handler = route.endpoint

    @wraps(handler)
    async def serve(request: Request) -> Response:
        topic = await whose(request)
        away = None if topic is None else await _sent_away(request, topic, ownership(request))
        return await handler(request) if away is None else away

    return route.answered_by(serve)


async def _sent_away(request: Request, name: TopicName, ownership: Ownership) -> Response | None:
    """The redirection, or None where the request is served here. Raises UnavailableError."""
    was_sent = is_authoritative(request)
    owner = await ownership.owner_of(name, is_authoritative=was_sent)
    direction = direct_request(owner, is_authoritative=was_sent)
    if direction is Direction.STAY:
        return None
    if direction is Direction.TRY_AGAIN or not isinstance(owner, Elsewhere):
        raise no_owner(name, owner)
    return redirection(request, owner.endpoints.default, is_authoritative=owner.is_chosen)


def is_authoritative(request: Request) -> bool:
    """Whether another broker sent it here."""
    return request.query_params.get(AUTHORITATIVE, "").lower() == "true"


def redirection(
    request: Request, there: Endpoint, *, is_authoritative: bool = True, without: str = AUTHORITATIVE
) -> Response:
    """307 to the same path and query at another broker; raises UnavailableError without a URL.

    ``is_authoritative``: it is not sent on from there. ``without``: a parameter that was done here.
    """
    url = there.web_url_tls if request.url.scheme == "https" else there.web_url
    if not url:
        raise UnavailableError("the topic is served by a broker without a web service for this scheme")
    query = request.scope["query_string"].decode("latin-1")
    kept = [item for item in query.split("&") if item and item.partition("=")[0] not in (AUTHORITATIVE, without)]
    kept.append(f"{AUTHORITATIVE}={'true' if is_authoritative else 'false'}")
    location = f"{url.rstrip('/')}{request.scope['path']}?{'&'.join(kept)}"
    return Response(status_code=307, headers={"Location": location})
