"""The admin REST, lookup and metrics as one ASGI application.

``/admin/v2`` (clusters, tenants, namespaces, topics, schemas, brokers), ``/admin/v3/transactions``, ``/lookup/v2`` and
``/metrics``, at Pulsar's paths.
Errors are ``{"reason": ...}`` with Pulsar's status; an unexpected one is logged in full here and answered as 500
without any of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from geminga.broker.core.coercion import NotBuiltError
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.core import unbuilt
from geminga.broker.rest.calls.requests import context_of, error_response
from geminga.broker.rest.calls.routing import SegmentRouter, distinct, unbuilt_routes
from geminga.broker.rest.doors import audited, decided
from geminga.broker.rest.families import FAMILIES, family_of, rows_of
from geminga.broker.rest.http.front import WholeBodies
from geminga.model.errors import GemingaError, StorageError
from geminga.runtime import get_logger, report_unexpected, unwound_storage

_log = get_logger(__name__)


#: Of paths below ``/admin`` before they had a version.
_FIRST_WORDS: Final = [[word] for word in ("persistent", "non-persistent", "namespaces", "properties", "schemas")]
_OF_PULSAR_1: Final = (
    "a path of Pulsar 1, whose names have a cluster in them (tenant/cluster/namespace/topic): they are not served, as "
    "in Pulsar 4; a name is tenant/namespace/topic, a path begins with /admin/v2"
)

#: Has a router made, on a thread where there are threads; raises what making it raised.
Loads = Callable[[Callable[[], SegmentRouter]], Awaitable[SegmentRouter]]


def make_application(context: RestContext, load: Loads) -> ASGIApp:
    """The application; ``context`` is what its handlers administer."""
    application = Starlette(
        exception_handlers={
            GemingaError: _refused,
            HTTPException: _http_error,
            ClientDisconnect: _disconnected,
            Exception: _unexpected,
        },
    )
    application.state.context = context
    application.router = _FamiliesRouter(load)
    return _EncodedPaths(WholeBodies(application))


class _FamiliesRouter(Router):
    """Routes to a family of rows, which is loaded with the first request for one of it."""

    def __init__(self, load: Loads) -> None:
        super().__init__(redirect_slashes=False)
        self._load = load
        self._loaded: dict[str, SegmentRouter] = {}
        self._known = frozenset(FAMILIES) | {family_of(row.path) for row in unbuilt.ROUTES}
        self._none = SegmentRouter(())

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve with the rows of the request's family."""
        family = family_of(scope["path"]) if scope["type"] == "http" else ""
        router = self._loaded.get(family) or await self._load_family(family)
        await router.app(scope, receive, send)

    async def _load_family(self, family: str) -> SegmentRouter:
        if family not in self._known:
            # Of a stranger's own invention, who must not make this work or grow.
            return self._none
        try:
            router = await self._load(partial(_router_of, family))
        except (OSError, ImportError, MemoryError) as error:
            # No descriptor, no memory: a moment of need, which the next request may find over.
            _log.warning("what answers %s could not be loaded: %s", family, error)
            raise HTTPException(503, f"the broker could not load what answers {family}") from error
        # Another request may have had it loaded meanwhile.
        return self._loaded.setdefault(family, router)


@cache
def _router_of(family: str) -> SegmentRouter:
    """Of a process, whatever applications it has: rows hold nothing of one."""
    refused = [route for route in unbuilt_routes() if family_of(route.path) == family]
    return SegmentRouter(distinct(audited(decided([*rows_of(family), *refused]))))


class _EncodedPaths:
    """Lets the application route on the path as it was sent: ``%2F`` in a name is no separator."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw = scope.get("raw_path")
            path = raw.decode("latin-1") if raw else scope["path"]
            # One slash at the end says nothing; more are another path.
            scope = {**scope, "path": path[:-1] if len(path) > 1 and path.endswith("/") else path}
        await self._application(scope, receive, send)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, GemingaError)
    if isinstance(error, StorageError):
        _log.warning("%s %s: %s", request.method, _shown_path(request), error)
    reason = error.told
    if isinstance(error, NotBuiltError):
        reason += f" in Geminga {context_of(request).version}"
    return error_response(error.http_status, reason)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    missing = f"{path} is {_OF_PULSAR_1}" if _is_of_pulsar_1(path) else f"no such resource: {request.url.path}"
    reasons = {404: missing, 405: f"{request.method} is not possible here"}
    response = error_response(error.status_code, reasons.get(error.status_code, error.detail))
    response.headers.update(error.headers or {})
    return response


def _is_of_pulsar_1(path: str) -> bool:
    """Tools send names with a slash too much there: with a cluster, as they think."""
    words = path.split("/", 4)
    return (words[1:2] == ["admin"] and words[2:3] in _FIRST_WORDS) or words[1:4] == ["lookup", "v2", "destination"]


async def _disconnected(request: Request, error: Exception) -> Response:
    return Response(status_code=400)


def _shown_path(request: Request) -> str:
    # Loaded where something fails.
    from geminga.model.secret import shown_path

    return shown_path(request.url.path)


async def _unexpected(request: Request, error: Exception) -> Response:
    path = _shown_path(request)
    _log.error("%s %s failed", request.method, path, exc_info=error)
    if unwound_storage(error):
        report_unexpected(f"{request.method} {path}", error)
    return error_response(500, "internal error; the broker's log has it")
