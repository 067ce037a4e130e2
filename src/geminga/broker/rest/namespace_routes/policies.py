"""Policies of a namespace, one by one: read, set, remove.

Each is a field of the namespace's ``Policies`` document. Reading one that is not set answers 200 without a body, as
Pulsar does; setting answers 204 when the change is stored and the topics that this broker has loaded follow it. Other
brokers hear of it through the metadata store's watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import PolicyName, TenantAdministration, reading, writing
from geminga.broker.core.coercion import object_of
from geminga.broker.policies.core.deletion_rows import BACKLOG_QUOTAS, RETENTION
from geminga.broker.policies.core.row import NO_NAMESPACE, NamespaceLevel, Nothing, PolicyRow, Rest, served
from geminga.broker.policies.core.rows import ROWS
from geminga.broker.policies.core.values import (
    check_properties_fit,
    check_quota,
    checked_properties,
    is_quota_within_retention,
)
from geminga.broker.policies.rules import AGE_QUOTA, SIZE_QUOTA
from geminga.broker.resources.documents import Document, Json
from geminga.broker.resources.policies import Policies
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.filter_names import check_filters_known
from geminga.broker.rest.calls.requests import (
    NO_BODY,
    RestError,
    context_of,
    flag,
    json_body,
    json_response,
    namespace_of,
    no_content,
    nothing_set,
    path_text,
    plain_text,
    refuse_other_types,
)
from geminga.broker.rest.calls.routing import Route, policy_routes
from geminga.broker.rest.calls.targets import missing_namespace
from geminga.model.errors import NotFoundError
from geminga.runtime import get_logger

_log = get_logger(__name__)

#: Seconds that an answer waits for the loaded topics to follow: many may have to recover their deduplication. Those
#: that are not done go on by themselves.
FOLLOW_S_MAX = 10.0
QUOTA_TYPES = (SIZE_QUOTA, AGE_QUOTA)
_PATH = "/admin/v2/namespaces/{tenant}/{namespace}"
_PROPERTIES = TenantAdministration.NAMESPACE_PROPERTIES


def checked_policies(document: Document, namespace: str, context: RestContext) -> Document:
    """The policies that a namespace is created with, each as its own path would take it from this broker.

    What Pulsar's ``Policies`` has not is dropped, as there. Raises RestError.
    """
    checked: Document = {}
    for row in ROWS:
        level = row.namespace
        value = document.get(level.key) if level is not None else None
        if level is None or value is None:
            continue
        if row is BACKLOG_QUOTAS:
            checked[level.key] = _checked_quotas(value, namespace)
        elif level.is_per_cluster:
            values = object_of(value, level.key)
            checked[level.key] = {cluster: row.check(one) for cluster, one in values.items()}
        else:
            checked[level.key] = _checked(row, level, value)
            _check_here(row, checked[level.key], context)
    return checked


def _check_here(row: PolicyRow[Any], value: Json, context: RestContext) -> None:
    """What the broker's own settings forbid, after the check of the value itself."""
    if row.bound is not None:
        row.bound(value, context.policies.settings)
    check_filters_known(row, value, context.config.entry_filters_directory)


def _checked(row: PolicyRow[Any], level: NamespaceLevel, value: Json) -> Json:
    check = level.rest.check if level.rest is not None else None
    return (check or row.check)(value)


def _checked_quotas(value: Json, namespace: str) -> Document:
    given = object_of(value, "backlog_quota_map")
    unknown = sorted(set(given) - set(QUOTA_TYPES))
    if unknown:
        raise RestError(400, f"backlog_quota_map: expected {' or '.join(QUOTA_TYPES)}, not {', '.join(unknown)}")
    return {kind: check_quota(quota, namespace) for kind, quota in given.items()}


async def _set(request: Request, row: PolicyRow[Any], level: NamespaceLevel, value: Json) -> Response:
    cluster = context_of(request).cluster
    beside = _beside(request, level.rest, value)

    def change(document: Document) -> Document:
        if row is RETENTION and not is_quota_within_retention(_quotas(Policies(document)), value):
            raise RestError(412, "Retention Quota must exceed configured backlog quota for namespace.")
        return {**level.changed(document, cluster, value), **beside}

    missing = level.rest.missing if level.rest is not None else NO_NAMESPACE
    return await change_policy(request, change, missing)


def _beside(request: Request, rest: Rest | None, value: Json) -> Document:
    """What is set with a policy by its query, by member; raises RestError."""
    if rest is None or rest.beside is None or request.method == "DELETE":
        return {}
    parameter, key = rest.beside
    if parameter not in request.query_params:
        return {}
    is_set = flag(request, parameter)
    if value is True and not is_set:
        raise RestError(400, rest.refused_beside)
    return {key: is_set}


async def change_policy(request: Request, change: Callable[[Document], Document], missing: str) -> Response:
    """Change a namespace's policies; the topics that are loaded follow. Raises NotFoundError with ``missing``."""
    context, namespace = context_of(request), namespace_of(request)
    try:
        return await change_policies(request, namespace, change, missing)
    except NotFoundError as error:
        raise await missing_namespace(context, namespace, missing) from error


async def change_policies(
    request: Request, namespace: str, change: Callable[[Document], Document], missing: str
) -> Response:
    """The same of a namespace by its name, and always in those words."""
    context = context_of(request)
    await context.resources.namespaces.update(namespace, change, missing)
    await _follow(context, namespace)
    return no_content()


async def require_namespace_of(request: Request, missing: str = NO_NAMESPACE) -> str:
    """The namespace of the path; raises NotFoundError if it is not there."""
    context, namespace = context_of(request), namespace_of(request)
    if await context.resources.namespaces.find(namespace) is None:
        raise await missing_namespace(context, namespace, missing)
    return namespace


async def _follow(context: RestContext, namespace: str) -> None:
    try:
        async with asyncio.timeout(FOLLOW_S_MAX):
            await context.policies_changed(namespace)
    except TimeoutError:
        _log.info("%s: topics still adopt the changed policies after %g s", namespace, FOLLOW_S_MAX)


def routes_of(row: PolicyRow[Any], level: NamespaceLevel, rest: Rest) -> list[Route]:
    """What a row's level is read, set and removed by."""

    async def read(request: Request) -> Response:
        context = context_of(request)
        policies = await context.resources.namespaces.get(namespace_of(request))
        value = level.reported(policies.document, context.cluster)
        if value is None:
            value = row.broker_level(context.policies.settings) if rest.answers_broker else rest.unset
        return nothing_set(rest.unset_status) if value is None else json_response(value)

    async def write(request: Request) -> Response:
        namespace_of(request)
        if rest.fixed is not None:
            refuse_other_types(request)
        value = await json_body(request) if rest.fixed is None else rest.fixed
        if value is None and rest.nothing is Nothing.IS_REFUSED:
            raise RestError(400, NO_BODY)
        if value is not None or rest.nothing is Nothing.IS_CHECKED:
            value = _checked(row, level, value)
            _check_here(row, value, context_of(request))
        return await _set(request, row, level, value)

    async def remove(request: Request) -> Response:
        return await _set(request, row, level, None)

    return policy_routes(f"{_PATH}/{rest.path}", row.policy, read, write, remove, set_by=rest.set_by)


async def get_backlog_quotas(request: Request) -> Response:
    """Quota type -> quota."""
    policies = await context_of(request).resources.namespaces.get(namespace_of(request))
    return json_response(_quotas(policies))


async def set_backlog_quota(request: Request) -> Response:
    """Set the quota of ``backlogQuotaType``."""
    kind, namespace = quota_type(request), namespace_of(request)
    quota = check_quota(await json_body(request), namespace)

    def change(document: Document) -> Document:
        if kind == SIZE_QUOTA and not is_quota_within_retention({kind: quota}, document.get("retention_policies")):
            raise RestError(
                412,
                "Backlog Quota exceeds configured retention quota for namespace. "
                "Please increase retention quota and retry",
            )
        return {**document, "backlog_quota_map": {**_quotas(Policies(document)), kind: quota}}

    return await change_policy(request, change, NO_NAMESPACE)


async def remove_backlog_quota(request: Request) -> Response:
    """Remove the quota of ``backlogQuotaType``."""
    kind = quota_type(request)

    def change(document: Document) -> Document:
        quotas = _quotas(Policies(document))
        return {**document, "backlog_quota_map": {key: value for key, value in quotas.items() if key != kind}}

    return await change_policy(request, change, NO_NAMESPACE)


def quota_type(request: Request) -> str:
    """Which quota the query names; raises RestError."""
    kind = request.query_params.get("backlogQuotaType") or QUOTA_TYPES[0]
    if kind not in QUOTA_TYPES:
        # What Pulsar's HTTP software says of a parameter that it can not read.
        raise RestError(404, f"backlogQuotaType={kind}: expected {' or '.join(QUOTA_TYPES)}")
    return kind


def _quotas(policies: Policies) -> Document:
    value = policies.document.get("backlog_quota_map")
    return dict(value) if isinstance(value, dict) else {}


async def get_properties(request: Request) -> Response:
    """Names and texts."""
    policies = await context_of(request).resources.namespaces.get(namespace_of(request))
    return json_response(_properties(policies.document))


async def set_properties(request: Request) -> Response:
    """Add names, replacing those that are there."""
    namespace_of(request)
    given = checked_properties(await json_body(request))
    return await _change_properties(request, lambda present: {**present, **given})


async def clear_properties(request: Request) -> Response:
    """Remove all."""
    return await _change_properties(request, lambda _: {})


async def get_property(request: Request) -> Response:
    """The text of one name; no body if there is none."""
    policies = await context_of(request).resources.namespaces.get(namespace_of(request))
    text = _properties(policies.document).get(path_text(request, "key"))
    return nothing_set() if text is None else plain_text(str(text))


async def set_property(request: Request) -> Response:
    """Set one name."""
    given = checked_properties({path_text(request, "key"): path_text(request, "value")})
    return await _change_properties(request, lambda present: {**present, **given})


async def remove_property(request: Request) -> Response:
    """Remove one name; its text was."""
    key = path_text(request, "key")
    removed: list[Json] = []

    def change(present: Document) -> Document:
        removed[:] = [present.get(key)]
        return {name: text for name, text in present.items() if name != key}

    await _change_properties(request, change)
    return nothing_set() if removed[0] is None else plain_text(str(removed[0]))


async def _change_properties(request: Request, change: Callable[[Document], Document]) -> Response:
    def apply(document: Document) -> Document:
        present = _properties(document)
        after = change(present)
        if after != present:
            check_properties_fit(after)
        return {**document, "properties": after}

    return await change_policy(request, apply, NO_NAMESPACE)


def _properties(document: Mapping[str, Json]) -> Document:
    value = document.get("properties")
    return dict(value) if isinstance(value, dict) else {}


ROUTES = [
    Route("GET", f"{_PATH}/properties", get_properties, _PROPERTIES),
    Route("PUT", f"{_PATH}/properties", set_properties, _PROPERTIES),
    Route("DELETE", f"{_PATH}/properties", clear_properties, _PROPERTIES),
    Route("GET", f"{_PATH}/property/{{key}}", get_property, _PROPERTIES),
    Route("DELETE", f"{_PATH}/property/{{key}}", remove_property, _PROPERTIES),
    Route("PUT", f"{_PATH}/property/{{key}}/{{value}}", set_property, _PROPERTIES),
    *(
        route
        for row, level, rest in served((row, row.namespace) for row in ROWS)
        for route in routes_of(row, level, rest)
    ),
    Route("GET", f"{_PATH}/backlogQuotaMap", get_backlog_quotas, reading(PolicyName.BACKLOG)),
    Route("POST", f"{_PATH}/backlogQuota", set_backlog_quota, writing(PolicyName.BACKLOG)),
    Route("DELETE", f"{_PATH}/backlogQuota", remove_backlog_quota, writing(PolicyName.BACKLOG)),
]
