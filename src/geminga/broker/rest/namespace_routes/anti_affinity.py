"""``/admin/v2/namespaces/{tenant}/{namespace}/antiAffinity``: which namespaces are kept apart on brokers."""

from __future__ import annotations

import json
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import PolicyName, SuperUser, reading, writing
from geminga.broker.resources.local_policies import AntiAffinity
from geminga.broker.rest.calls.requests import (
    RestError,
    body_bytes,
    context_of,
    json_response,
    namespace_of,
    no_content,
    nothing_set,
    path_text,
    plain_text,
)
from geminga.broker.rest.calls.routing import Route

#: Characters of a group's name: all of them stand in the local policies of their namespaces.
GROUP_CHARACTERS_MAX: Final = 512


async def get_group(request: Request) -> Response:
    """The name of the group, as it is; no body if there is none."""
    group = await _groups(request).get(namespace_of(request))
    return nothing_set() if group is None else plain_text(group)


async def set_group(request: Request) -> Response:
    """Put the namespace into a group; the leader keeps its rules from the next round of load on."""
    namespace, group = namespace_of(request), _group_in(await body_bytes(request))
    if not group:
        raise RestError(412, "Anti-affinity group can't be empty")
    if len(group) > GROUP_CHARACTERS_MAX:
        raise RestError(412, f"the name of an anti-affinity group has at most {GROUP_CHARACTERS_MAX} characters")
    await _groups(request).set(namespace, group)
    return no_content()


async def remove_group(request: Request) -> Response:
    """Take it out of its group."""
    await _groups(request).set(namespace_of(request), None)
    return no_content()


async def get_namespaces(request: Request) -> Response:
    """The namespaces of a group, of the tenant that ``tenant`` names."""
    tenant = request.query_params.get("tenant", "")
    if not tenant:
        raise RestError(400, "Tenant should not be null")
    context = context_of(request)
    if await context.resources.clusters.find(path_text(request, "cluster")) is None:
        raise RestError(412, f"Cluster {path_text(request, 'cluster')} does not exist.")
    return json_response([*await _groups(request).namespaces_of(tenant, path_text(request, "group"))])


def _groups(request: Request) -> AntiAffinity:
    return context_of(request).resources.anti_affinity


def _group_in(body: bytes) -> str:
    """The body is the name; some clients write it as JSON. Raises RestError."""
    try:
        text = body.decode().strip()
    except UnicodeDecodeError as error:
        raise RestError(400, f"the body is the name of a group, in UTF-8: {error}") from error
    if not text.startswith('"'):
        return text
    try:
        name = str(json.loads(text)).strip()
        name.encode()  # JSON can write half of a character
    except ValueError as error:
        raise RestError(400, f"the body is the name of a group, or that as a JSON string: {error}") from error
    return name


_PATH: Final = "/admin/v2/namespaces/{tenant}/{namespace}/antiAffinity"

ROUTES = [
    Route("GET", _PATH, get_group, reading(PolicyName.ANTI_AFFINITY)),
    Route("POST", _PATH, set_group, writing(PolicyName.ANTI_AFFINITY)),
    Route("DELETE", _PATH, remove_group, writing(PolicyName.ANTI_AFFINITY)),
    Route("GET", "/admin/v2/namespaces/{cluster}/antiAffinity/{group}", get_namespaces, SuperUser.LOOK_AT_BROKER),
]
