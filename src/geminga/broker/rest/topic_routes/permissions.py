"""Permissions of roles at one topic, persistent or not, partitioned or not.

What is given at a partitioned topic holds for all its partitions, also for those that are added later; taking it takes
what was given at single partitions, too.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import TenantAdministration
from geminga.broker.access.core.grants import granted_at, partitions_granted, with_topic_grant, without_topic_grant
from geminga.broker.policies.core.row import NO_NAMESPACE
from geminga.broker.resources.documents import Document
from geminga.broker.rest.calls.requests import context_of, json_body, json_response, path_text, topic_of
from geminga.broker.rest.calls.routing import TOPIC_PATH, Route
from geminga.broker.rest.calls.targets import is_partitioned
from geminga.broker.rest.namespace_routes.permissions import (
    NO_NAMESPACE_OF_TOPIC,
    actions_of,
    require_topic_of_permissions,
)
from geminga.broker.rest.namespace_routes.policies import change_policies
from geminga.model.topic_name import TopicName


async def get_permissions(request: Request) -> Response:
    """Role -> actions: those of the namespace, and the topic's own, as they are stored."""
    name = await _topic_of(request)
    policies = await context_of(request).resources.namespaces.get(name.namespace)
    return json_response(granted_at(policies.document, str(name)))


async def grant_permission(request: Request) -> Response:
    """Give a role actions at the topic, replacing those it had there."""
    name, role = await _topic_of(request), path_text(request, "role")
    actions = actions_of(await json_body(request))
    return await change_policies(
        request,
        name.namespace,
        lambda document: with_topic_grant(document, str(name), role, actions),
        NO_NAMESPACE_OF_TOPIC,
    )


async def revoke_permission(request: Request) -> Response:
    """Take every action from a role at the topic and its partitions; what the namespace gives stays."""
    name, role = await _topic_of(request), path_text(request, "role")
    has_partitions = await is_partitioned(context_of(request).topics, name)

    def revoke(document: Document) -> Document:
        partitions = partitions_granted(document, name) if has_partitions else []
        return without_topic_grant(document, [str(name), *partitions], role)

    return await change_policies(request, name.namespace, revoke, NO_NAMESPACE)


async def _topic_of(request: Request) -> TopicName:
    name = topic_of(request)
    if not context_of(request).config.acl_changes_without_topics:
        await require_topic_of_permissions(request, name)
    return name


_NEEDS: Final = TenantAdministration.TOPIC_PERMISSIONS

ROUTES: Final = [
    Route("GET", f"{TOPIC_PATH}/permissions", get_permissions, _NEEDS),
    Route("POST", f"{TOPIC_PATH}/permissions/{{role}}", grant_permission, _NEEDS),
    Route("DELETE", f"{TOPIC_PATH}/permissions/{{role}}", revoke_permission, _NEEDS),
]
