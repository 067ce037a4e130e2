"""``/admin/v2/clusters/{cluster}/namespaceIsolationPolicies`` and ``.../failureDomains``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import ClusterOperation, SuperUser
from geminga.broker.core.coercion import BodyError, Json
from geminga.broker.resources.documents import Document
from geminga.broker.resources.isolation import (
    IsolationPolicies,
    check_failure_domain,
    check_isolation_policy,
    matcher,
    namespaces_to_unload,
)
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.requests import RestError, context_of, json_body, json_response, no_content, path_text
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.cluster_routes.brokers import active_brokers
from geminga.broker.rest.namespace_routes.bundles import unload_everywhere
from geminga.model.errors import GemingaError, NotFoundError
from geminga.runtime import again

_PATH = "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies"
_DOMAINS = "/admin/v2/clusters/{cluster}/failureDomains"


async def get_policies(request: Request) -> Response:
    """All isolation policies of a cluster, by name."""
    policies = await _resources(request).get(await _cluster(request, missing=404))
    return json_response({**policies})


async def get_policy(request: Request) -> Response:
    """One of them."""
    cluster, name = await _cluster(request), path_text(request, "policy")
    found = (await _resources(request).get(cluster)).get(name)
    if found is None:
        raise RestError(404, f"Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}")
    return json_response(found)


async def set_policy(request: Request) -> Response:
    """Set one, and unload the namespaces that may have to go elsewhere now."""
    context, cluster, name = context_of(request), await _cluster(request), path_text(request, "policy")
    try:
        policy = check_isolation_policy(await json_body(request))
    except BodyError as error:
        raise RestError(400, f"Invalid format of input policy data. policy: {name}: {error}") from error
    before = await context.resources.isolation.set(cluster, name, policy)
    patterns: Json = [*namespaces_to_unload(policy, before)]
    if patterns:
        await _unload(context, cluster, patterns)
    return no_content()


async def delete_policy(request: Request) -> Response:
    """Remove one; topics stay where they are."""
    await _resources(request).delete(await _cluster(request), path_text(request, "policy"))
    return no_content()


async def get_brokers(request: Request) -> Response:
    """What holds for each broker that is there."""
    cluster = await _cluster(request)
    policies = await _resources(request).get(cluster)
    named = await _by_broker(context_of(request), policies)
    return json_response([_of_broker(broker, policies, named) for broker in active_brokers(context_of(request))])


async def get_broker(request: Request) -> Response:
    """What would hold for a broker of this name, whether it is there or not."""
    policies = await _resources(request).get(await _cluster(request))
    named = await _by_broker(context_of(request), policies)
    return json_response(_of_broker(path_text(request, "broker"), policies, named))


async def get_domains(request: Request) -> Response:
    """All failure domains of a cluster, by name."""
    domains = await context_of(request).resources.failure_domains.all(path_text(request, "cluster"))
    return json_response({**domains})


async def get_domain(request: Request) -> Response:
    """One of them."""
    cluster = await _cluster(request)
    return json_response(await context_of(request).resources.failure_domains.get(cluster, path_text(request, "domain")))


async def set_domain(request: Request) -> Response:
    """Set or make one."""
    cluster, domains = await _cluster(request), context_of(request).resources.failure_domains
    await domains.set(cluster, path_text(request, "domain"), check_failure_domain(await json_body(request)))
    return no_content()


async def delete_domain(request: Request) -> Response:
    """Remove one."""
    await context_of(request).resources.failure_domains.delete(await _cluster(request), path_text(request, "domain"))
    return Response(status_code=200)


async def _cluster(request: Request, missing: int = 412) -> str:
    cluster = path_text(request, "cluster")
    if await context_of(request).resources.clusters.find(cluster) is None:
        raise RestError(missing, f"Cluster {cluster} does not exist.")
    return cluster


class _Named(NamedTuple):
    """Whether a policy names a broker."""

    primary: Callable[[str], bool]
    secondary: Callable[[str], bool]


async def _by_broker(context: RestContext, policies: Mapping[str, Document]) -> dict[str, _Named]:
    """By the policies' names."""
    steps, found = context.topics.steps(), {}
    for name, policy in policies.items():
        await steps.next()
        found[name] = _Named(matcher(policy.get("primary")), matcher(policy.get("secondary")))
    return found


def _of_broker(broker: str, policies: Mapping[str, Document], named: Mapping[str, _Named]) -> Document:
    """As in Pulsar the last policy that names the broker counts, and all of them their namespaces."""
    found: Document = {"brokerName": broker}
    namespaces: list[Json] = []
    is_primary = False
    for name, policy in policies.items():
        is_primary_here = named[name].primary(broker)
        if is_primary_here or named[name].secondary(broker):
            listed = policy.get("namespaces")
            namespaces += listed if isinstance(listed, list) else []
            found["policyName"], is_primary = name, is_primary_here
    return {**found, "namespaceRegex": namespaces, "primary": is_primary}


async def _unload(context: RestContext, cluster: str, patterns: Json) -> None:
    """Raises the first refusal when all was tried: the same policy, set again, unloads none."""
    steps, has = context.topics.steps(), matcher(patterns)
    refused: GemingaError | None = None
    for namespace in await context.resources.namespaces.all():
        await steps.next()
        try:
            policies = await context.resources.namespaces.find(namespace)
            if policies is not None and cluster in policies.replication_clusters and has(namespace):
                await unload_everywhere(context, namespace)
        except NotFoundError:
            continue  # it went meanwhile
        except GemingaError as error:
            refused = refused or error
    if refused is not None:
        raise again(refused)


def _resources(request: Request) -> IsolationPolicies:
    return context_of(request).resources.isolation


ROUTES = [
    Route("GET", _PATH, get_policies, SuperUser.LOOK_AT_ISOLATION),
    Route("GET", f"{_PATH}/brokers", get_brokers, SuperUser.LOOK_AT_ISOLATION),
    Route("GET", f"{_PATH}/brokers/{{broker}}", get_broker, SuperUser.LOOK_AT_ISOLATION),
    Route("GET", f"{_PATH}/{{policy}}", get_policy, SuperUser.LOOK_AT_ISOLATION),
    Route("POST", f"{_PATH}/{{policy}}", set_policy, SuperUser.CHANGE_ISOLATION),
    Route("DELETE", f"{_PATH}/{{policy}}", delete_policy, SuperUser.CHANGE_ISOLATION),
    Route("GET", _DOMAINS, get_domains, ClusterOperation.GET_FAILURE_DOMAIN),
    Route("GET", f"{_DOMAINS}/{{domain}}", get_domain, ClusterOperation.GET_FAILURE_DOMAIN),
    Route("POST", f"{_DOMAINS}/{{domain}}", set_domain, ClusterOperation.UPDATE_FAILURE_DOMAIN),
    Route("DELETE", f"{_DOMAINS}/{{domain}}", delete_domain, ClusterOperation.DELETE_FAILURE_DOMAIN),
]
