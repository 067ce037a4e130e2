"""Requests are decided before their handlers run: who asks, for what, and about what the path names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import wraps
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import (
    EVERYTHING,
    Action,
    Anyone,
    ClusterOperation,
    NamespaceOperation,
    PolicyAction,
    Resource,
    TenantOperation,
    TopicOperation,
    of_namespace,
    of_topic,
)
from geminga.broker.access.ports import Allowed, Denied
from geminga.broker.access.refusals import refused_request
from geminga.broker.rest.calls.requests import (
    context_of,
    names_subscription,
    namespace_of,
    path_text,
    subscription_name,
    topic_of,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.identity import principal_of

#: Where scrapers ask.
METRICS_PATHS: Final = ("/metrics", "/metrics/")


def decided(routes: Iterable[Route]) -> list[Route]:
    """The same routes; each that needs an action is answered to those alone who are allowed it."""
    return [_metrics_asking(one) if one.path in METRICS_PATHS else one for one in _decided(routes)]


def _decided(routes: Iterable[Route]) -> list[Route]:
    return [route if isinstance(route.needs, Anyone) else _asking(route, route.needs) for route in routes]


def _metrics_asking(route: Route) -> Route:
    """Answered to who is known alone, where ``authenticateMetricsEndpoint`` says so."""
    handler = route.endpoint

    @wraps(handler)
    async def serve(request: Request) -> Response:
        if context_of(request).access.authenticates_metrics:
            await principal_of(request)
        answer: Response = await handler(request)
        return answer

    return route.answered_by(serve)


def _asking(route: Route, action: Action) -> Route:
    handler = route.endpoint

    @wraps(handler)
    async def serve(request: Request) -> Response:
        await require(request, action)
        answer: Response = await handler(request)
        return answer

    return route.answered_by(serve)


async def require(request: Request, action: Action) -> None:
    """Return if who asks may do ``action``; raises AuthenticationError (401) or AuthorizationError (403).

    Raises RestError for names in the path that can be none.
    """
    principal = await principal_of(request)
    decision = context_of(request).access.authorizer.decide(principal, action, resource_of(request, action))
    if not isinstance(decision, Allowed | Denied):
        decision = await decision
    if isinstance(decision, Denied):
        raise refused_request(principal, action, decision)


def resource_of(request: Request, action: Action) -> Resource:
    """What the path names that ``action`` is about; raises RestError."""
    named = request.path_params
    # What makes a topic is about the namespace alone, and says so first of its name.
    if "topic" in named and action is not NamespaceOperation.CREATE_TOPIC:
        name = topic_of(request, named.get("domain", "persistent"))
        if not isinstance(action, TopicOperation | PolicyAction):
            return of_namespace(name.namespace)
        return of_topic(name, subscription_name(request) if names_subscription(request) else "")
    if isinstance(action, ClusterOperation):
        return Resource(cluster=path_text(request, "cluster")) if "cluster" in named else EVERYTHING
    if "namespace" in named:
        return of_namespace(namespace_of(request))
    if isinstance(action, TenantOperation) and "tenant" in named:
        return Resource(tenant=path_text(request, "tenant"))
    return EVERYTHING
