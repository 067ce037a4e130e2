"""``/admin/v2/namespaces``: the namespaces themselves, their topics, bundles and unloading."""

from __future__ import annotations

from contextlib import nullcontext

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import NamespaceOperation, PolicyName, TenantOperation, reading
from geminga.broker.ownership.core.local_policies import bundles_data
from geminga.broker.ownership.endpoints import Endpoint
from geminga.broker.policies.core.rows import ROWS
from geminga.broker.registry.namespaces import TopicMode
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.owners import redirection
from geminga.broker.rest.calls.requests import (
    RestError,
    context_of,
    flag,
    json_response,
    namespace_of,
    no_content,
    number_setting,
    object_body,
    path_text,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.calls.targets import names_response
from geminga.broker.rest.namespace_routes.bundles import cut_of
from geminga.broker.rest.namespace_routes.deletion import (
    delete_empty_namespace,
    delete_namespace_and_topics,
    home_elsewhere,
)
from geminga.broker.rest.namespace_routes.policies import checked_policies
from geminga.broker.rest.namespace_routes.replication import require_no_peers, require_usable
from geminga.broker.subscription.limits import is_reached
from geminga.model.errors import NotFoundError, PreconditionFailedError

#: Pulsar's ``mode`` of a list of topics, and the broker's.
MODES = {"PERSISTENT": TopicMode.PERSISTENT, "NON_PERSISTENT": TopicMode.NON_PERSISTENT, "ALL": TopicMode.ALL}


async def list_namespaces(request: Request) -> Response:
    """Full names of a tenant's namespaces."""
    return json_response([*await context_of(request).resources.namespaces.list(path_text(request, "tenant"))])


async def get_policies(request: Request) -> Response:
    """The whole policies document."""
    topics = context_of(request).topics
    policies = await topics.resources.namespaces.get(namespace_of(request))
    # What Pulsar shows of every namespace, and those made by older versions do not hold.
    whole: Document = {
        "allowed_clusters": [],
        "migrated": False,
        "is_allow_auto_update_schema": context_of(request).config.allow_auto_update_schema,
    }
    document = dict(policies.document)
    # As it is cut now; the policies say how it began.
    document["bundles"] = bundles_data(await cut_of(context_of(request), namespace_of(request)))
    return json_response({**whole, **document})


async def create_namespace(request: Request) -> Response:
    """Create, with policies in the body or with defaults."""
    context, namespace = context_of(request), namespace_of(request)
    given = await object_body(request)
    tenant, most = namespace.partition("/")[0], number_setting(request, "maxNamespacesPerTenant")
    resources, refusal = context.resources, f"Exceed the maximum number of namespace in tenant :{tenant}"
    await resources.tenants.get(tenant)

    async def listed() -> list[str]:
        names = await resources.namespaces.list(tenant)
        if is_reached(most, len(names)):
            # Also to one that is there, as in Pulsar.
            raise PreconditionFailedError(refusal)
        return names

    scope, vacancies = f"namespaces of {tenant}", resources.vacancies
    with await vacancies.take(scope, (namespace,), most, listed, refusal=refusal) if most else nullcontext():
        await _create(request, namespace, given)
    return no_content()


async def _create(request: Request, namespace: str, given: Document) -> None:
    context = context_of(request)
    policies = checked_policies(given, namespace, context)
    await _require_rights(request, policies)
    clusters, allowed = (_names(policies.get(key)) for key in ("replication_clusters", "allowed_clusters"))
    if allowed and not set(clusters) <= set(allowed):
        raise RestError(
            400,
            f"[{namespace}] All replication clusters should be included in allowed clusters. "
            f"Repl clusters: [{', '.join(clusters)}], allowed clusters: [{', '.join(allowed)}]",
        )
    # As in Pulsar: this cluster, whatever else the tenant may use, and it is among those that are allowed.
    clusters = clusters or [context.cluster]
    if allowed and context.cluster not in allowed:
        allowed.append(context.cluster)
    await require_usable(context, namespace, allowed)
    await require_no_peers(context, clusters)
    policies |= {"replication_clusters": [*clusters], **({"allowed_clusters": [*allowed]} if allowed else {})}
    await context.resources.namespaces.create(namespace, policies)


async def _require_rights(request: Request, policies: Document) -> None:
    """Ask for what the own path of a policy takes beside making a namespace; raises AuthorizationError (403)."""
    for row in ROWS:
        level = row.namespace
        if level is None or level.needs is None or row.value_of([policies.get(level.key)]) == row.otherwise:
            continue
        await request.state.asks_again(request, action=level.needs)


def _names(value: Json) -> list[str]:
    return [f"{name}" for name in value] if isinstance(value, list) else []


async def delete_namespace(request: Request) -> Response:
    """Delete an empty namespace; with ``force`` (and ``forceDeleteNamespaceAllowed``) also its topics."""
    context = context_of(request)
    topics, namespace = context.topics, namespace_of(request)
    is_forced = flag(request, "force")
    if is_forced and not context.forced.force_delete_namespace:
        raise RestError(405, "Broker doesn't allow forced deletion of namespaces")
    policies = await topics.resources.namespaces.find(namespace)
    if policies is None:
        raise NotFoundError(f"Namespace {namespace} does not exist.")
    elsewhere = home_elsewhere(context, namespace, policies)
    if elsewhere:
        return await _to_cluster(request, elsewhere)
    if is_forced:
        await delete_namespace_and_topics(topics, namespace)
    else:
        await delete_empty_namespace(topics, namespace)
    return no_content()


async def _to_cluster(request: Request, cluster: str) -> Response:
    from geminga.broker.peers.http_client import addresses_of  # where clusters share a store

    data = await context_of(request).resources.clusters.get(cluster)
    urls = (data.get(key) for key in ("serviceUrl", "serviceUrlTls"))
    web, web_tls = (next(iter(addresses_of(url)), "") if isinstance(url, str) else "" for url in urls)
    return redirection(request, Endpoint(cluster, "", "", web, web_tls), is_authoritative=False)


async def list_topics(request: Request) -> Response:
    """Topics of a namespace, partitions one by one; ``mode`` picks the domain."""
    topics, namespace = context_of(request).topics, namespace_of(request)
    await topics.resources.namespaces.get(namespace)
    mode = request.query_params.get("mode") or "PERSISTENT"
    if mode not in MODES:
        # What Pulsar's HTTP software says of a parameter that it can not read.
        raise RestError(404, f"mode={mode}: expected {', '.join(MODES)}")
    return await names_response(topics, await topics.registry.list(namespace, mode=MODES[mode]))


_PATH = "/admin/v2/namespaces/{tenant}/{namespace}"

ROUTES = [
    Route("GET", "/admin/v2/namespaces/{tenant}", list_namespaces, TenantOperation.LIST_NAMESPACES),
    Route("GET", _PATH, get_policies, reading(PolicyName.ALL)),
    Route("PUT", _PATH, create_namespace, TenantOperation.CREATE_NAMESPACE),
    Route("DELETE", _PATH, delete_namespace, TenantOperation.DELETE_NAMESPACE),
    Route("GET", f"{_PATH}/topics", list_topics, NamespaceOperation.GET_TOPICS),
]
