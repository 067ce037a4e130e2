"""Looks at what is not built whose answer is known all the same: nothing was ever migrated.

What can not be done there is refused by ``core/unbuilt.py``.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import (
    SuperUser,
)
from geminga.broker.rest.calls.requests import json_response
from geminga.broker.rest.calls.routing import Route


async def metadata_migration(request: Request) -> Response:
    """That of a metadata store which is not migrated."""
    return json_response({"phase": "NOT_STARTED"})


OF_METADATA: Final = [Route("GET", "/admin/v2/metadata/migration/status", metadata_migration, SuperUser.LOOK_AT_BROKER)]
