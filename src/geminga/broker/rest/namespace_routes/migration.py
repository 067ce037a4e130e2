"""``clusters/{cluster}/migrate``, ``namespaces/{tenant}/{namespace}/migration``: topics that go to another cluster."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import ClusterOperation, SuperUser
from geminga.broker.core.coercion import boolean_of, object_of, text_of
from geminga.broker.geo.moves import URLS
from geminga.broker.policies.core.row import NO_POLICIES
from geminga.broker.resources.documents import Document
from geminga.broker.rest.calls.requests import (
    RestError,
    context_of,
    flag,
    json_body,
    json_response,
    no_content,
    path_text,
    required_body,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.namespace_routes.policies import change_policy

#: Schemes of the addresses, in the order of ``URLS``.
SCHEMES: Final = ("http", "https", "pulsar", r"pulsar\+ssl")
_ADDRESSES: Final = r"://([^\s/]+)/?"
#: One of them, as clients read it, and its port.
_ADDRESS: Final = re.compile(r"(?:[^\s/:\[\]]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_PORT_MAX: Final = 65_535


async def of_cluster(request: Request) -> Response:
    """Whether a cluster's topics move, and where."""
    clusters, cluster = context_of(request).resources.clusters, path_text(request, "cluster")
    await clusters.get(cluster)
    found = await clusters.policies(cluster) or {}
    return json_response({"migrated": False, **found})


async def move_cluster(request: Request) -> Response:
    """Say where topics of a cluster go, and with ``migrated=true`` that all of them go; the body: a ``ClusterUrl``."""
    clusters, cluster = context_of(request).resources.clusters, path_text(request, "cluster")
    await clusters.get(cluster)
    is_migrated, urls = flag(request, "migrated"), _urls(await json_body(request))

    def change(before: Document) -> Document:
        known = before.get("migratedClusterUrl")
        place = urls or (known if isinstance(known, dict) else {})
        if is_migrated and not (place.get("brokerServiceUrl") or place.get("brokerServiceUrlTls")):
            raise RestError(
                412, "The other cluster needs a brokerServiceUrl or a brokerServiceUrlTls, where clients go"
            )
        return {"migrated": is_migrated, **({"migratedClusterUrl": place} if place else {})}

    await clusters.change_policies(cluster, change)
    return no_content()


def _urls(body: object) -> Document:
    if body is None:
        return {}
    given = object_of(body, "the body")  # type: ignore[arg-type]
    urls: Document = {}
    for key, scheme in zip(URLS, SCHEMES, strict=True):
        if given.get(key):
            text = text_of(given[key], key)
            found = re.fullmatch(scheme + _ADDRESSES, text)
            if found is None or not all(map(_is_address, found[1].rstrip(",").split(","))):
                raise RestError(400, f"{key} must be {scheme.replace(chr(92), '')}://host:port, not {text}")
            urls[key] = text
    return urls


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text.strip())
    return found is not None and (found[1] is None or 0 < int(found[1]) <= _PORT_MAX)


async def move_namespace(request: Request) -> Response:
    """Say whether the topics of a namespace move to where the cluster's policies say; the body: true or false.

    While those name no place nothing moves, as in Pulsar.
    """
    body = await required_body(request)
    is_migrated = boolean_of(body, "the body")
    return await change_policy(request, lambda document: {**document, "migrated": is_migrated}, NO_POLICIES)


_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_CLUSTER: Final = "/admin/v2/clusters/{cluster}/migrate"

OF_CLUSTERS: Final = [
    Route("GET", _CLUSTER, of_cluster, ClusterOperation.GET_CLUSTER),
    Route("POST", _CLUSTER, move_cluster, ClusterOperation.UPDATE_CLUSTER),
]
OF_NAMESPACES: Final = [
    Route("POST", f"{_NAMESPACE}/migration", move_namespace, SuperUser.MIGRATE_NAMESPACE),
]
