"""Looks at what is not built whose answer is known all the same: nothing was ever migrated or grouped.

What can not be done there is refused by ``core/unbuilt.py``.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import (
    PolicyName,
    SuperUser,
    reading,
    writing,
)
from geminga.broker.policies.core.row import NO_POLICIES
from geminga.broker.resources.documents import Document
from geminga.broker.rest.calls.requests import context_of, json_response, nothing_set
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.namespace_routes.policies import change_policy, require_namespace_of
from geminga.model.errors import NotFoundError

_GROUP: Final = "resource_group_name"


async def metadata_migration(request: Request) -> Response:
    """That of a metadata store which is not migrated."""
    return json_response({"phase": "NOT_STARTED"})


async def no_groups(request: Request) -> Response:
    """Resource groups: none."""
    return json_response([])


async def no_such_group(request: Request) -> Response:
    """404."""
    raise NotFoundError("ResourceGroup does not exist")


async def get_group(request: Request) -> Response:
    """The namespace's resource group, as it is stored; no body if there is none."""
    policies = await context_of(request).resources.namespaces.get(await require_namespace_of(request))
    group = policies.document.get(_GROUP)
    return nothing_set() if group is None else json_response(group)


async def remove_group(request: Request) -> Response:
    """The namespace is in none any more."""

    def change(document: Document) -> Document:
        return {key: value for key, value in document.items() if key != _GROUP}

    return await change_policy(request, change, NO_POLICIES)


_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_GROUPS: Final = "/admin/v2/resourcegroups"

OF_NAMESPACES: Final = [
    Route(f"{_NAMESPACE}/resourcegroup", get_group, methods=["GET"], needs=reading(PolicyName.RESOURCEGROUP)),
    Route(f"{_NAMESPACE}/resourcegroup", remove_group, methods=["DELETE"], needs=writing(PolicyName.RESOURCEGROUP)),
]
OF_METADATA: Final = [
    Route("/admin/v2/metadata/migration/status", metadata_migration, methods=["GET"], needs=SuperUser.LOOK_AT_BROKER)
]
OF_RESOURCE_GROUPS: Final = [
    Route(_GROUPS, no_groups, methods=["GET"], needs=SuperUser.LOOK_AT_QUOTAS),
    Route(f"{_GROUPS}/{{group}}", no_such_group, methods=["GET"], needs=SuperUser.LOOK_AT_QUOTAS),
    Route(f"{_GROUPS}/{{group}}", no_such_group, methods=["DELETE"], needs=SuperUser.CHANGE_QUOTAS),
]
