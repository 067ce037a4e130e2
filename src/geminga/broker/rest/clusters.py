"""``/admin/v2/clusters``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga.broker.rest.core.unbuilt import CLUSTER_FIELDS, refuse_unbuilt
from geminga.broker.rest.requests import context_of, json_response, no_content, object_body, path_text


async def list_clusters(request: Request) -> Response:
    """Names of all clusters."""
    return json_response([*await context_of(request).broker.resources.clusters.list()])


async def get_cluster(request: Request) -> Response:
    """A cluster's data."""
    return json_response(await context_of(request).broker.resources.clusters.get(path_text(request, "cluster")))


async def create_cluster(request: Request) -> Response:
    """Create."""
    clusters = context_of(request).broker.resources.clusters
    data = await object_body(request)
    refuse_unbuilt(data, CLUSTER_FIELDS)
    await clusters.create(path_text(request, "cluster"), data)
    return no_content()


async def update_cluster(request: Request) -> Response:
    """Replace a cluster's data."""
    clusters = context_of(request).broker.resources.clusters
    data = await object_body(request)
    refuse_unbuilt(data, CLUSTER_FIELDS)
    await clusters.update(path_text(request, "cluster"), data)
    return no_content()


async def delete_cluster(request: Request) -> Response:
    """Delete."""
    await context_of(request).broker.resources.clusters.delete(path_text(request, "cluster"))
    return no_content()


ROUTES = [
    Route("/admin/v2/clusters", list_clusters, methods=["GET"]),
    Route("/admin/v2/clusters/{cluster}", get_cluster, methods=["GET"]),
    Route("/admin/v2/clusters/{cluster}", create_cluster, methods=["PUT"]),
    Route("/admin/v2/clusters/{cluster}", update_cluster, methods=["POST"]),
    Route("/admin/v2/clusters/{cluster}", delete_cluster, methods=["DELETE"]),
]
