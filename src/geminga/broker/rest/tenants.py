"""``/admin/v2/tenants``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga.broker.rest.deletion import delete_namespace_and_topics
from geminga.broker.rest.requests import (
    RestError,
    context_of,
    flag,
    json_response,
    no_content,
    object_body,
    path_text,
)


async def list_tenants(request: Request) -> Response:
    """Names of all tenants."""
    return json_response([*await context_of(request).broker.resources.tenants.list()])


async def get_tenant(request: Request) -> Response:
    """A tenant's info."""
    return json_response(await context_of(request).broker.resources.tenants.get(path_text(request, "tenant")))


async def create_tenant(request: Request) -> Response:
    """Create."""
    tenants = context_of(request).broker.resources.tenants
    await tenants.create(path_text(request, "tenant"), await object_body(request))
    return no_content()


async def update_tenant(request: Request) -> Response:
    """Replace a tenant's info."""
    tenants = context_of(request).broker.resources.tenants
    await tenants.update(path_text(request, "tenant"), await object_body(request))
    return no_content()


async def delete_tenant(request: Request) -> Response:
    """Delete; with ``force`` (and ``forceDeleteTenantAllowed``) also its namespaces and their topics."""
    context = context_of(request)
    resources = context.broker.resources
    tenant = path_text(request, "tenant")
    if flag(request, "force"):
        if not context.force_delete_tenant:
            raise RestError(405, "forced deletion of tenants needs forceDeleteTenantAllowed=true")
        for namespace in await resources.namespaces.list(tenant):
            await delete_namespace_and_topics(context.broker, namespace)
    await resources.tenants.delete(tenant)
    return no_content()


ROUTES = [
    Route("/admin/v2/tenants", list_tenants, methods=["GET"]),
    Route("/admin/v2/tenants/{tenant}", get_tenant, methods=["GET"]),
    Route("/admin/v2/tenants/{tenant}", create_tenant, methods=["PUT"]),
    Route("/admin/v2/tenants/{tenant}", update_tenant, methods=["POST"]),
    Route("/admin/v2/tenants/{tenant}", delete_tenant, methods=["DELETE"]),
]
