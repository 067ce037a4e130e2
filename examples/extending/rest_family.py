"""A family of the admin REST: what the broker knows of its topics, at paths of its own.

Files that it touches: this module, and its line in ``FAMILIES`` of ``broker/rest/families.py``, which names a function
that imports the rows: the family is loaded with the first request for it. Every row says what it needs (``needs``),
which the authorizer is asked for, and is a row of docs/rest.md after ``make rest-docs``.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import NamespaceOperation
from geminga.broker.rest.calls.requests import context_of, json_response, namespace_of
from geminga.broker.rest.calls.routing import Route

#: The family, by the first words of its paths.
FAMILY: Final = "/admin/v2/loaded-topics"


async def list_loaded(request: Request) -> Response:
    """Names of the topics of a namespace that this broker has loaded, sorted."""
    namespace = namespace_of(request)
    names = [topic.name for topic in context_of(request).topics.registry.loaded.values()]
    return json_response(sorted(str(name) for name in names if name.namespace == namespace))


ROUTES: Final = [
    Route("GET", f"{FAMILY}/{{tenant}}/{{namespace}}", list_loaded, NamespaceOperation.GET_TOPICS),
]


def rows() -> list[Route]:
    """For ``FAMILIES``."""
    return ROUTES
