"""What Pulsar 4.2.4's REST has and Geminga has not: one table, which routing, handlers and ``docs/rest.md`` read.

Whoever asks for it is told 501 with the name of what is missing, whatever the method: an answer that pretends would be
believed. What the path names and is not there is said first. Paths are templates as the routes have them; they are
facts of Pulsar's interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from geminga.broker.core.coercion import Json, NotBuiltError, object_of
from geminga.broker.policies.core.row import NamespaceLevel, PolicyRow
from geminga.broker.policies.core.rows import ROWS

_TOPIC: Final = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_FUNCTION: Final = "{tenant}/{namespace}/{function}"
_PACKAGES: Final = "/admin/v3/packages/{type}/{tenant}/{namespace}"


class UnbuiltRoute(NamedTuple):
    """A path that Pulsar serves."""

    #: What it would take, as the answer says it.
    what: str
    methods: tuple[str, ...]
    path: str


def _is_never_unset(value: Json) -> bool:
    return False


def _names_nothing(value: Json) -> bool:
    """Whether a list is empty, but for blank texts: some tools write ``[""]`` for an empty one."""
    return isinstance(value, list) and all(isinstance(item, str) and not item.strip() for item in value)


class UnbuiltField(NamedTuple):
    """A member of a document whose effect is missing."""

    what: str
    key: str
    #: Whether a value means "not set" in Pulsar; null does always. Raises BodyError for one that can be none.
    is_unset: Callable[[Json], bool] = _is_never_unset


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


def _policies() -> Iterable[UnbuiltRoute]:
    for row in ROWS:
        for level, base in ((row.namespace, _NAMESPACE), (row.topic, _TOPIC)):
            if row.unbuilt and level is not None and level.rest is not None and not level.rest.is_by_hand:
                yield UnbuiltRoute(row.unbuilt, (level.rest.set_by,), f"{base}/{level.rest.path}")


def _sets_nothing(row: PolicyRow[Any], level: NamespaceLevel, value: Json) -> bool:
    if not level.is_per_cluster:
        return row.is_inert(row.check(value))
    return all(row.is_inert(row.check(one)) for one in object_of(value, level.key).values())


#: How policies are set whose effect is missing: values that mean "not set" are taken, others are 501. What is stored of
#: them can be read and removed.
POLICY_ROUTES: Final[tuple[UnbuiltRoute, ...]] = tuple(_policies())
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

#: Of a namespace's ``Policies``. The others have an effect, or are told back as they were given.
NAMESPACE_FIELDS: Final[tuple[UnbuiltField, ...]] = tuple(
    UnbuiltField(row.unbuilt, row.namespace.key, partial(_sets_nothing, row, row.namespace))
    for row in ROWS
    if row.unbuilt and row.namespace is not None
)


def refuse_unbuilt(document: Mapping[str, Json], fields: Iterable[UnbuiltField]) -> None:
    """Raise :class:`NotBuiltError` if ``document`` sets one of ``fields``, BodyError for what can be no value of it."""
    for field in fields:
        value = document.get(field.key)
        if value is not None and not field.is_unset(value):
            raise NotBuiltError(f"{field.key} ({field.what})")
