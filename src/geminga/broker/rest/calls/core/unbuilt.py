"""What Pulsar 4.2.4's REST has and Geminga has not: one table, which routing, handlers and ``docs/rest.md`` read.

Whoever asks for it is told 501 with the name of what is missing, whatever the method: an answer that pretends would be
believed. What the path names and is not there is said first. Paths are templates as the routes have them; they are
facts of Pulsar's interface.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

_FUNCTION: Final = "{tenant}/{namespace}/{function}"
_PACKAGES: Final = "/admin/v3/packages/{type}/{tenant}/{namespace}"


class UnbuiltRoute(NamedTuple):
    """A path that Pulsar serves."""

    #: What it would take, as the answer says it.
    what: str
    methods: tuple[str, ...]
    path: str


def _routes(what: str, *rows: str) -> Iterable[UnbuiltRoute]:
    """Rows are methods and a path."""
    for row in rows:
        *methods, path = row.split()
        yield UnbuiltRoute(what, tuple(methods), path)


def _connectors(what: str, kind: str) -> Iterable[UnbuiltRoute]:
    """Paths of ``sink``, ``sinks``, ``source`` or ``sources``, which differ in that word alone."""
    base, plural = f"/admin/v3/{kind}", kind.rstrip("s") + "s"
    one = f"{base}/{{tenant}}/{{namespace}}/{{name}}"
    return _routes(
        what,
        f"GET {base}/builtin{plural}",
        f"GET {base}/builtin{plural}/{{name}}/configdefinition",
        f"POST {base}/reloadBuiltIn{plural.capitalize()}",
        f"GET {base}/{{tenant}}/{{namespace}}",
        f"GET POST PUT DELETE {one}",
        f"GET {one}/status",
        f"POST {one}/start",
        f"POST {one}/stop",
        f"POST {one}/restart",
        f"GET {one}/{{instance}}/status",
        f"POST {one}/{{instance}}/start",
        f"POST {one}/{{instance}}/stop",
        f"POST {one}/{{instance}}/restart",
    )


def _functions(base: str, *more: str) -> Iterable[UnbuiltRoute]:
    """Paths of functions under ``base`` that both versions of the interface have, and ``more``."""
    one = f"{base}/{_FUNCTION}"
    return _routes(
        "functions",
        f"GET {base}/connectors",
        f"GET {base}/download",
        f"POST {base}/upload",
        f"GET {base}/{{tenant}}/{{namespace}}",
        f"GET POST PUT DELETE {one}",
        f"GET {one}/status",
        f"POST {one}/stop",
        f"POST {one}/restart",
        f"POST {one}/trigger",
        f"GET {one}/{{instance}}/status",
        f"POST {one}/{{instance}}/stop",
        f"POST {one}/{{instance}}/restart",
        *more,
    )


#: Grouped by what is missing; :func:`_routes` expands them.
ROUTES: Final[tuple[UnbuiltRoute, ...]] = (
    *_routes(
        "migration to another metadata store",
        "POST /admin/v2/metadata/migration/start",
    ),
    *_functions("/admin/v2/functions", f"GET /admin/v2/functions/{_FUNCTION}/state/{{key}}"),
    *_functions(
        "/admin/v3/functions",
        "GET /admin/v3/functions/builtins",
        "POST /admin/v3/functions/builtins/reload",
        f"PUT /admin/v3/functions/leader/{_FUNCTION}",
        f"GET /admin/v3/functions/{_FUNCTION}/download",
        f"GET POST /admin/v3/functions/{_FUNCTION}/state/{{key}}",
        f"GET /admin/v3/functions/{_FUNCTION}/stats",
        f"POST /admin/v3/functions/{_FUNCTION}/start",
        f"GET /admin/v3/functions/{_FUNCTION}/{{instance}}/stats",
        f"POST /admin/v3/functions/{_FUNCTION}/{{instance}}/start",
    ),
    *_routes(
        "functions",
        "GET /admin/v2/worker/assignments",
        "GET /admin/v2/worker/cluster",
        "GET /admin/v2/worker/cluster/leader",
        "GET /admin/v2/worker/cluster/leader/ready",
        "GET /admin/v2/worker/connectors",
        "GET PUT /admin/v2/worker/drain",
        "GET PUT /admin/v2/worker/leader/drain",
        "PUT /admin/v2/worker/rebalance",
        "GET /admin/v2/worker-stats/functionsmetrics",
        "GET /admin/v2/worker-stats/metrics",
    ),
    *_connectors("sinks", "sinks"),
    *_connectors("sinks", "sink"),
    *_connectors("sources", "sources"),
    *_connectors("sources", "source"),
    *_routes(
        "packages",
        f"GET {_PACKAGES}",
        f"GET {_PACKAGES}/{{package}}",
        f"GET POST DELETE {_PACKAGES}/{{package}}/{{version}}",
        f"GET PUT {_PACKAGES}/{{package}}/{{version}}/metadata",
    ),
)
