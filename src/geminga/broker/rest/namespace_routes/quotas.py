"""``/admin/v2/resource-quotas``: what an operator lets expect of the load of bundles that nobody has seen yet."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import SuperUser
from geminga.broker.resources.bundle_quotas import checked_quota
from geminga.broker.resources.documents import Document
from geminga.broker.rest.calls.requests import (
    context_of,
    json_response,
    namespace_of,
    no_content,
    path_text,
    required_body,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.namespace_routes.bundles import cut_of


async def get_default(request: Request) -> Response:
    """Of bundles that have none of their own."""
    return json_response(await context_of(request).resources.bundle_quotas.default())


async def set_default(request: Request) -> Response:
    """Of bundles that have none of their own, from now on."""
    await context_of(request).resources.bundle_quotas.set_default(await _quota(request))
    return no_content()


async def get_quota(request: Request) -> Response:
    """The bundle's own, or the default."""
    return json_response(await context_of(request).resources.bundle_quotas.get(await _bundle(request)))


async def set_quota(request: Request) -> Response:
    """The bundle's own, from now on."""
    bundle = await _bundle(request)
    await context_of(request).resources.bundle_quotas.set(bundle, await _quota(request))
    return no_content()


async def remove_quota(request: Request) -> Response:
    """The default holds again; 404 where it did."""
    await context_of(request).resources.bundle_quotas.remove(await _bundle(request))
    return no_content()


async def _bundle(request: Request) -> str:
    cut = await cut_of(context_of(request), namespace_of(request))
    return str(cut.named(path_text(request, "bundle")))


async def _quota(request: Request) -> Document:
    told = await required_body(request)
    return checked_quota(told)


_QUOTAS: Final = "/admin/v2/resource-quotas"
_BUNDLE: Final = f"{_QUOTAS}/{{tenant}}/{{namespace}}/{{bundle}}"

ROUTES = [
    Route("GET", _QUOTAS, get_default, SuperUser.LOOK_AT_QUOTAS),
    Route("POST", _QUOTAS, set_default, SuperUser.CHANGE_QUOTAS),
    Route("GET", _BUNDLE, get_quota, SuperUser.LOOK_AT_QUOTAS),
    Route("POST", _BUNDLE, set_quota, SuperUser.CHANGE_QUOTAS),
    Route("DELETE", _BUNDLE, remove_quota, SuperUser.CHANGE_QUOTAS),
]
