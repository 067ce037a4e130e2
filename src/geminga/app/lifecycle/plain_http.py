"""Questions over HTTP that a process without the admin REST answers: an ASGI application without a framework.

Only questions: nothing here changes anything, so whoever reaches the port learns of the process and no more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.broker.rest.calls.core.timeouts import RETRY_AFTER_S
from geminga.model.exposition import CONTENT_TYPE, Labels, Page, Source

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class HttpAnswer(NamedTuple):
    """Status, body and media type."""

    status: int
    body: str
    media_type: str = TEXT


class PlainHttp:
    """``/metrics`` of ``sources``, ``/heartbeat``, and whatever ``routes`` answer."""

    def __init__(
        self,
        whose: str,
        sources: Sequence[tuple[Labels, Source]],
        routes: Mapping[str, Callable[[], Awaitable[HttpAnswer]]],
    ) -> None:
        """``whose``: as a refusal names it, such as "bookie"."""
        self._whose = whose
        self._sources = sources
        self._routes = {"/metrics": self._metrics, "/heartbeat": self._heartbeat, **routes}

    async def answer(self, method: str, path: str) -> HttpAnswer:
        """To one question."""
        route = self._routes.get(path.rstrip("/"))
        if route is None:
            known = ", ".join(self._routes)
            return HttpAnswer(404, f"{path[:200]} is not served by this {self._whose}; it has {known}\n")
        if method not in ("GET", "HEAD"):
            return HttpAnswer(405, f"{method[:20]} of {path[:200]}: expected GET\n")
        return await route()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, as ASGI has it."""
        status, text, media_type = await self.answer(scope["method"], scope["path"])
        body = text.encode()
        headers = [(b"content-type", media_type.encode()), (b"content-length", b"%d" % len(body))]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        if status == 503:
            headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _metrics(self) -> HttpAnswer:
        page = Page()
        for labels, source in self._sources:
            page.add_source(source, labels)
        return HttpAnswer(200, page.text(), CONTENT_TYPE)

    async def _heartbeat(self) -> HttpAnswer:
        return HttpAnswer(200, "OK\n")
