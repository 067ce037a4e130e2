"""Requests are decided before their handlers run: who asks, for what, and about what the path names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial, wraps
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import (
    EVERYTHING,
    Action,
    Anyone,
    ClusterOperation,
    NamespaceOperation,
    PolicyAction,
    PolicyName,
    Resource,
    TenantOperation,
    TopicOperation,
    of_namespace,
    of_topic,
    writing,
)
from geminga.broker.access.core.principal import ANONYMOUS, Principal
from geminga.broker.access.ports import Allowed, Denied
from geminga.broker.access.refusals import refused_request
from geminga.broker.rest.calls.requests import (
    context_of,
    json_body,
    names_subscription,
    namespace_of,
    path_text,
    subscription_name,
    topic_of,
)
from geminga.broker.rest.calls.routing import InBody, Route
from geminga.broker.rest.identity import principal_of
from geminga.model.errors import AuthenticationError, GemingaError
from geminga.model.topic_name import REPLICATOR_PREFIX

if TYPE_CHECKING:
    from geminga.broker.access.audit import Entry

#: What changes nothing, and is not kept.
_LOOKS: Final = frozenset(("GET", "HEAD"))
#: What is done in a whole namespace to subscriptions, of one name or all.
_OF_SUBSCRIPTIONS: Final = (NamespaceOperation.CLEAR_BACKLOG, NamespaceOperation.UNSUBSCRIBE)
#: What at a topic begins, ends or passes over a subscription; of a replicator's it is said what another cluster gets.
_OF_REPLICATORS: Final = frozenset(
    (TopicOperation.SUBSCRIBE, TopicOperation.UNSUBSCRIBE, TopicOperation.SKIP, TopicOperation.EXPIRE_MESSAGES)
)
#: Where scrapers ask.
METRICS_PATHS: Final = ("/metrics", "/metrics/")
#: Where messages are published and consumed.
MESSAGES_PATHS: Final = "/topics/"
#: Paths for load balancers and scrapers, which bring no credentials, as in Pulsar; all others answer who is known.
OPEN_PATHS: Final = (*METRICS_PATHS, "/status.html")


def decided(routes: Iterable[Route]) -> list[Route]:
    """The same routes; each that needs an action is answered to those alone who are allowed it."""
    return [_decided(route) for route in routes]


def audited(routes: Iterable[Route]) -> list[Route]:
    """The same routes; each that changes something, or shows what is in messages, has a line in the audit log, whatever
    its outcome."""
    return [_audited(route) if _is_kept(route) else route for route in routes]


def _is_kept(route: Route) -> bool:
    """Messages themselves are no administration: over the binary protocol they have no line either."""
    is_change = bool((route.methods or set()) - _LOOKS) and not route.path.startswith(MESSAGES_PATHS)
    return is_change or _is_kept_look(route)


def _is_kept_look(route: Route) -> bool:
    """Whether to look is kept too: payloads may be nobody's business who looks after brokers."""
    return route.needs is TopicOperation.PEEK_MESSAGES


def _audited(route: Route) -> Route:
    handler, needs = route.endpoint, route.needs
    action = "" if isinstance(needs, Anyone) else str(needs.action if isinstance(needs, InBody) else needs)
    passed = frozenset[str]() if _is_kept_look(route) else _LOOKS

    @wraps(handler)
    async def serve(request: Request) -> Response:
        audit = context_of(request).audit
        if audit is None or request.method in passed:
            answer: Response = await handler(request)
            return answer
        status, reason = 500, "internal error"
        try:
            answer = await handler(request)
            status, reason = answer.status_code, ""
            return answer
        except GemingaError as error:
            status, reason = error.http_status, error.told
            raise
        finally:
            audit.note(_entry(request, action, status, reason))

    return route.answered_by(serve)


def _entry(request: Request, action: str, status: int, reason: str) -> Entry:
    # Not loaded where nothing is kept.
    from geminga.broker.access.audit import Entry
    from geminga.model.secret import shown_path

    principal, peer = getattr(request.state, "principal", ANONYMOUS), request.client
    return Entry(
        principal.role,
        principal.original,
        f"{peer.host}:{peer.port}" if peer is not None else "",
        request.method,
        "?".join(filter(None, (shown_path(request.url.path), request.url.query))),
        action,
        status,
        reason,
    )


def _decided(route: Route) -> Route:
    if isinstance(route.needs, Anyone):
        if route.path in METRICS_PATHS:
            return _metrics_asking(route)
        return route if route.path in OPEN_PATHS else _let_in(route)
    return _asking_of_body(route, route.needs) if isinstance(route.needs, InBody) else _asking(route, route.needs)


def _let_in(route: Route) -> Route:
    handler = route.endpoint

    @wraps(handler)
    async def serve(request: Request) -> Response:
        await principal_of(request)
        answer: Response = await handler(request)
        return answer

    return route.answered_by(serve)


def _asking_of_body(route: Route, needs: InBody) -> Route:
    handler = route.endpoint

    @wraps(handler)
    async def serve(request: Request) -> Response:
        # Who it is comes first: strangers have nothing read.
        principal = await principal_of(request)
        request.state.body = await json_body(request, None)
        _require_unexpired(request)
        await _require(request, principal, needs.action, needs.about(request.state.body))
        answer: Response = await handler(request)
        return answer

    return route.answered_by(serve)


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
    handler, asks_again = route.endpoint, partial(require, action=action)
    require_still = partial(_require_still, action=action)

    @wraps(handler)
    async def serve(request: Request) -> Response:
        await require(request, action)
        #: For answers that last: whether who asks may still have them; or, with ``action``, may have more. Without the
        #: request, which has this state.
        request.state.asks_again = asks_again
        #: For who reads the body, which may take its time.
        request.state.require_still = require_still
        answer: Response = await handler(request)
        return answer

    return route.answered_by(serve)


async def require(request: Request, action: Action) -> None:
    """Return if who asks may do ``action``; raises AuthenticationError (401) or AuthorizationError (403).

    Raises RestError for names in the path that can be none.
    """
    await _require_named(request, await principal_of(request), action)


async def _require_still(request: Request, action: Action) -> None:
    """The same of who was found out to ask. Raises AuthenticationError where what showed it has expired."""
    _require_unexpired(request)
    await _require_named(request, request.state.principal, action)


def _require_unexpired(request: Request) -> None:
    until_s: float | None = request.state.until_s
    if until_s is not None and context_of(request).clock.monotonic() >= until_s:
        raise AuthenticationError("the credentials have expired")


async def _require_named(request: Request, principal: Principal, action: Action) -> None:
    if action in _OF_REPLICATORS and _names_replicator(request):
        action = writing(PolicyName.REPLICATION)
    await _require(request, principal, action, resource_of(request, action))


def _names_replicator(request: Request) -> bool:
    return names_subscription(request) and subscription_name(request).startswith(REPLICATOR_PREFIX)


async def _require(request: Request, principal: Principal, action: Action, resource: Resource) -> None:
    decision = context_of(request).access.authorizer.decide(principal, action, resource)
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
        about = of_namespace(namespace_of(request))
        is_of_subscription = action in _OF_SUBSCRIPTIONS and names_subscription(request)
        return about._replace(subscription=subscription_name(request)) if is_of_subscription else about
    if isinstance(action, TenantOperation) and "tenant" in named:
        return Resource(tenant=path_text(request, "tenant"))
    return EVERYTHING
