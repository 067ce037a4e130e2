"""Looks at what is not built whose answer is known all the same: nothing was ever migrated.

What can not be done there is refused by ``core/unbuilt.py``.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import (
    ClusterOperation,
    SuperUser,
)
from geminga.broker.rest.calls.requests import context_of, json_response, path_text
from geminga.broker.rest.calls.routing import Route


async def cluster_migration(request: Request) -> Response:
    """That of a cluster which is not migrated."""
    await context_of(request).resources.clusters.get(path_text(request, "cluster"))
    return json_response({"migrated": False})


async def metadata_migration(request: Request) -> Response:
    """That of a metadata store which is not migrated."""
    return json_response({"phase": "NOT_STARTED"})


OF_CLUSTERS: Final = [
    Route(
        "/admin/v2/clusters/{cluster}/migrate", cluster_migration, methods=["GET"], needs=ClusterOperation.GET_CLUSTER
    )
]
OF_METADATA: Final = [
    Route("/admin/v2/metadata/migration/status", metadata_migration, methods=["GET"], needs=SuperUser.LOOK_AT_BROKER)
]
