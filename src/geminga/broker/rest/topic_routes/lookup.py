"""``/lookup/v2``: which broker serves a topic, and in which bundle it lies."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from geminga.broker.access.core.actions import NamespaceOperation, TopicOperation
from geminga.broker.ownership.endpoints import Endpoint
from geminga.broker.rest.calls.owners import is_authoritative, redirection
from geminga.broker.rest.calls.requests import context_of, json_response, new_topic_of, topic_of
from geminga.broker.rest.calls.routing import DOMAIN, Route
from geminga.broker.rest.namespace_routes.bundles import cut_of
from geminga.model.errors import NotFoundError


async def lookup(request: Request) -> Response:
    """The broker's URLs for the listener that ``listenerName`` (or the header) names.

    A URL that there is not is left out, but for the plain one of the broker, which is empty then. 307 to the broker
    that is to take the topic where nobody has it.
    """
    topics = context_of(request).topics
    listener = request.query_params.get("listenerName") or request.headers.get("X-Pulsar-ListenerName", "")
    name = new_topic_of(request)
    if await topics.resources.namespaces.find(name.namespace) is None:
        raise NotFoundError(f"Namespace not found{name.missing_hint}")
    places = context_of(request).lookup
    place = await places.find(name, listener, is_authoritative=is_authoritative(request))
    wait = await places.wait_for(place)
    if wait is not None:
        await wait
        place = await places.find(name, listener, is_authoritative=is_authoritative(request))
    endpoint = place.endpoint if listener else _as_reached(place.endpoint, request)
    if place.is_to_ask:
        return redirection(request, endpoint, is_authoritative=place.is_authoritative)
    found = {
        "brokerUrlTls": endpoint.broker_url_tls,
        "httpUrl": endpoint.web_url,
        "httpUrlTls": endpoint.web_url_tls,
    }
    # Where there is no plain port, Apache's leaves these out, and the C++ client, official Python's too, ends its
    # process: it wants a text. The last one is empty in Pulsar, for older ones of that client.
    always = {"brokerUrl": endpoint.broker_url, "nativeUrl": endpoint.broker_url, "brokerUrlSsl": ""}
    return json_response({**always, **{key: url for key, url in found.items() if url}})


def _as_reached(endpoint: Endpoint, request: Request) -> Endpoint:
    """Whoever came by a mapped port knows no other host than that one, and the answer has no field that says so.

    To what the other ports are mapped is not known: their own are told, which is right where the numbers are kept.
    """
    host = request.headers.get("Host", "")
    reached = urlsplit(f"//{host}").hostname
    if not endpoint.is_through_service_url or not reached:
        return endpoint
    shown = f"[{reached}]" if ":" in reached else reached

    def there(url: str) -> str:
        parts = urlsplit(url)
        came_by = host if parts.scheme == request.url.scheme else f"{shown}:{parts.port}"
        return url and f"{parts.scheme}://{came_by}"

    return replace(
        endpoint,
        broker_url=there(endpoint.broker_url),
        broker_url_tls=there(endpoint.broker_url_tls),
        web_url=there(endpoint.web_url),
        web_url_tls=there(endpoint.web_url_tls),
    )


async def bundle(request: Request) -> Response:
    """The hash range of the topic's bundle, ``0x40000000_0x80000000``."""
    name = topic_of(request)
    return PlainTextResponse((await cut_of(context_of(request), name.namespace)).find(name).range)


_PATH = f"/lookup/v2/topic/{DOMAIN}/{{tenant}}/{{namespace}}/{{topic}}"

ROUTES = [
    Route("GET", f"{_PATH}/bundle", bundle, NamespaceOperation.GET_BUNDLE),
    Route("GET", _PATH, lookup, TopicOperation.LOOKUP),
]
