"""Which topics lie in a bundle, and where in it: asked of the bundle's owner, who has them loaded."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import NamespaceOperation, PolicyName, reading
from geminga.broker.ownership.core.bundles import Bundle, topic_hash
from geminga.broker.ownership.core.direction import Direction, direct_request
from geminga.broker.ownership.lookup import no_owner
from geminga.broker.ownership.ports import Elsewhere
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.owners import is_authoritative, redirection
from geminga.broker.rest.calls.requests import RestError, context_of, json_response, namespace_of, no_content, path_text
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.namespace_routes.bundles import cut_of


async def topic_hash_positions(request: Request) -> Response:
    """The hash of each topic that is loaded, by which a split takes it; ``topics`` picks some. 412: nobody owns it."""
    bundle = await _bundle(request)
    names = await _loaded_or_away(request, bundle)
    if isinstance(names, Response):
        return names
    if names is None:
        raise RestError(412, f"Failed to find ownership for ServiceUnit:{bundle}")
    wanted = {name for text in request.query_params.getlist("topics") for name in text.split(",") if name}
    positions: Document = {name: topic_hash(name) for name in names if not wanted or name in wanted}
    return json_response(
        {"namespace": bundle.namespace, "bundle": bundle.range, "topicHashPositions": positions},
    )


async def list_non_persistent(request: Request) -> Response:
    """The non-persistent topics of a bundle; 204 for one that nobody owns."""
    loaded = await _loaded_or_away(request, await _bundle(request))
    if isinstance(loaded, Response):
        return loaded
    if loaded is None:
        return no_content()
    names: list[Json] = [name for name in loaded if name.startswith("non-persistent://")]
    return json_response(names)


async def _bundle(request: Request) -> Bundle:
    cut = await cut_of(context_of(request), namespace_of(request))
    return cut.named(path_text(request, "bundle"))


async def _sent_away(request: Request, context: RestContext, bundle: Bundle) -> Response | None:
    """The redirection to the owner; None where that is this broker, or nobody. Raises UnavailableError."""
    owner = None if context.membership is None else await context.membership.ownership.owner_now(bundle)
    if owner is None:
        return None
    direction = direct_request(owner, is_authoritative=is_authoritative(request))
    if direction is Direction.STAY:
        return None
    if direction is Direction.TRY_AGAIN or not isinstance(owner, Elsewhere):
        raise no_owner(f"bundle {bundle}", owner)
    return redirection(request, owner.endpoints.default)


async def _loaded_or_away(request: Request, bundle: Bundle) -> list[str] | Response | None:
    """As :func:`_loaded`, or where the request is sent."""
    context = context_of(request)
    away = await _sent_away(request, context, bundle)
    return _loaded(context, bundle) if away is None else away


def _loaded(context: RestContext, bundle: Bundle) -> list[str] | None:
    """Sorted; None of a bundle that is not this broker's: alone, one of which nobody uses anything."""
    names = sorted(str(topic.name) for topic in context.topics.registry.loaded.values() if bundle.has(topic.name))
    if context.membership is None:
        return names or None
    return names if bundle in context.membership.ownership.owned else None


ROUTES = [
    Route(
        "GET",
        "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/topicHashPositions",
        topic_hash_positions,
        reading(PolicyName.PERSISTENCE),
    ),
    Route(
        "GET",
        "/admin/v2/non-persistent/{tenant}/{namespace}/{bundle}",
        list_non_persistent,
        NamespaceOperation.GET_BUNDLE,
    ),
]
