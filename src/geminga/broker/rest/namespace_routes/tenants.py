"""``/admin/v2/tenants``."""

from __future__ import annotations

from contextlib import nullcontext

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import TenantOperation
from geminga.broker.core.coercion import object_of, texts_of
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.requests import (
    RestError,
    context_of,
    flag,
    json_body,
    json_response,
    no_content,
    number_setting,
    path_text,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.namespace_routes.deletion import delete_namespace_and_topics, home_elsewhere
from geminga.broker.subscription.limits import is_reached
from geminga.model.errors import NotFoundError, PreconditionFailedError


async def list_tenants(request: Request) -> Response:
    """Names of all tenants."""
    return json_response([*await context_of(request).resources.tenants.list()])


async def get_tenant(request: Request) -> Response:
    """A tenant's info."""
    return json_response(await context_of(request).resources.tenants.get(path_text(request, "tenant")))


async def create_tenant(request: Request) -> Response:
    """Create."""
    tenants, most = context_of(request).resources.tenants, number_setting(request, "maxTenants")
    tenant, refusal = path_text(request, "tenant"), "Exceed the maximum number of tenants"

    async def listed() -> list[str]:
        names = await tenants.list()
        if is_reached(most, len(names)):
            # Also to one that is there, as in Pulsar.
            raise PreconditionFailedError(refusal)
        return names

    vacancies = context_of(request).resources.vacancies
    with await vacancies.take("tenants", (tenant,), most, listed, refusal=refusal) if most else nullcontext():
        await tenants.create(tenant, await _info(request))
    return no_content()


async def update_tenant(request: Request) -> Response:
    """Replace a tenant's info."""
    context, tenant = context_of(request), path_text(request, "tenant")
    await context.resources.tenants.update(tenant, await _info(request))
    await context.access.tenant_changed(tenant)
    return no_content()


async def _info(request: Request) -> Document:
    body = await json_body(request)
    if body is None:
        raise RestError(412, "TenantInfo is null")
    info = object_of(body, "the body")
    return {key: [*_texts(info[key], key)] for key in ("adminRoles", "allowedClusters") if info.get(key) is not None}


def _texts(value: Json, what: str) -> list[str]:
    # Pulsar takes nothing in a list for an empty name.
    return texts_of(["" if item is None else item for item in value] if isinstance(value, list) else value, what)


async def delete_tenant(request: Request) -> Response:
    """Delete; with ``force`` (and ``forceDeleteTenantAllowed``) also its namespaces and their topics."""
    context = context_of(request)
    resources = context.resources
    tenant = path_text(request, "tenant")
    if flag(request, "force"):
        if not context.forced.force_delete_tenant:
            raise RestError(405, "Broker doesn't allow forced deletion of tenants")
        namespaces = await resources.namespaces.list(tenant)
        for namespace in namespaces:
            # Before anything goes: what is another cluster's, too, is not this one's to delete.
            policies = await resources.namespaces.find(namespace)
            cluster = "" if policies is None else home_elsewhere(context, namespace, policies)
            if cluster:
                raise PreconditionFailedError(
                    f"namespace {namespace} lives in cluster {cluster}: delete it there first"
                )
        for namespace in namespaces:
            try:
                await delete_namespace_and_topics(context.topics, namespace)
            except NotFoundError:
                # Somebody else deletes it, too.
                if await resources.namespaces.find(namespace) is not None:
                    raise
    await resources.tenants.delete(tenant)
    await context.access.tenant_changed(tenant)
    return no_content()


ROUTES = [
    Route("GET", "/admin/v2/tenants", list_tenants, TenantOperation.LIST_TENANTS),
    Route("GET", "/admin/v2/tenants/{tenant}", get_tenant, TenantOperation.GET_TENANT),
    Route("PUT", "/admin/v2/tenants/{tenant}", create_tenant, TenantOperation.CREATE_TENANT),
    Route("POST", "/admin/v2/tenants/{tenant}", update_tenant, TenantOperation.UPDATE_TENANT),
    Route("DELETE", "/admin/v2/tenants/{tenant}", delete_tenant, TenantOperation.DELETE_TENANT),
]
