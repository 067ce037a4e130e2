"""Resource groups, and which namespaces are in them."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import PolicyName, SuperUser, reading, writing
from geminga.broker.policies.core.row import NO_POLICIES
from geminga.broker.resources.documents import Document
from geminga.broker.resources.resource_groups import MISSING, checked_limits
from geminga.broker.rest.calls.requests import (
    context_of,
    json_response,
    no_content,
    nothing_set,
    path_text,
    plain_text,
    required_body,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.namespace_routes.policies import change_policy, require_namespace_of
from geminga.model.errors import PreconditionFailedError

_MEMBER: Final = "resource_group_name"


async def list_groups(request: Request) -> Response:
    """Their names."""
    return json_response([*await context_of(request).resources.resource_groups.list()])


async def get_limits(request: Request) -> Response:
    """A group's limits; 404 if there is no such group."""
    return json_response(await context_of(request).resources.resource_groups.get(path_text(request, "group")))


async def put_group(request: Request) -> Response:
    """Make a group, or change the limits that the body names."""
    value = await required_body(request)
    limits = checked_limits(value)
    await context_of(request).resources.resource_groups.put(path_text(request, "group"), limits)
    return no_content()


async def delete_group(request: Request) -> Response:
    """404 if there is no such group, 412 while a namespace is in it."""
    await context_of(request).resources.resource_groups.delete(path_text(request, "group"))
    return no_content()


async def get_group(request: Request) -> Response:
    """The name of the namespace's resource group, as it is; no body if there is none."""
    policies = await context_of(request).resources.namespaces.get(await require_namespace_of(request))
    group = policies.document.get(_MEMBER)
    return nothing_set() if group is None else plain_text(str(group))


async def set_group(request: Request) -> Response:
    """The namespace is in this group from now on; 412 if there is none of that name, as in Pulsar."""
    group = path_text(request, "group")
    await require_namespace_of(request, NO_POLICIES)
    if await context_of(request).resources.resource_groups.find(group) is None:
        raise PreconditionFailedError(MISSING)
    return await change_policy(request, lambda document: {**document, _MEMBER: group}, NO_POLICIES)


async def remove_group(request: Request) -> Response:
    """The namespace is in none any more."""

    def change(document: Document) -> Document:
        return {key: value for key, value in document.items() if key != _MEMBER}

    return await change_policy(request, change, NO_POLICIES)


_GROUPS: Final = "/admin/v2/resourcegroups"
_OF_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"

OF_NAMESPACES: Final = [
    Route("GET", _OF_NAMESPACE, get_group, reading(PolicyName.RESOURCEGROUP)),
    Route("DELETE", _OF_NAMESPACE, remove_group, writing(PolicyName.RESOURCEGROUP)),
    Route("POST", f"{_OF_NAMESPACE}/{{group}}", set_group, writing(PolicyName.RESOURCEGROUP)),
]
ROUTES: Final = [
    Route("GET", _GROUPS, list_groups, SuperUser.LOOK_AT_QUOTAS),
    Route("GET", f"{_GROUPS}/{{group}}", get_limits, SuperUser.LOOK_AT_QUOTAS),
    Route("PUT", f"{_GROUPS}/{{group}}", put_group, SuperUser.CHANGE_QUOTAS),
    Route("DELETE", f"{_GROUPS}/{{group}}", delete_group, SuperUser.CHANGE_QUOTAS),
]
