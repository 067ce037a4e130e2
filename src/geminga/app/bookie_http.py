"""What ``geminga bookie`` answers over HTTP: metrics, and the few of BookKeeper's paths that tell whether it is well.

Only questions: nothing here changes a bookie, so whoever reaches the port learns of it and no more. Loaded by the first
request, as an ASGI application without a framework.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.app.process_metrics import directories_metrics, parts_metrics, process_metrics, status_of
from geminga.bookie.spread import SpreadBookie
from geminga.broker.rest.core.patience import RETRY_AFTER_S
from geminga.model.bookie_port import Availability, BookieInfo
from geminga.model.errors import StorageError
from geminga.model.exposition import CONTENT_TYPE, Labels, Page, Source

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"


class _Answer(NamedTuple):
    status: int
    body: str
    media_type: str = _TEXT


class BookieHttp:
    """An ASGI application for one bookie."""

    def __init__(self, bookie: SpreadBookie, monotonic: Callable[[], float], sources: Sequence[Source] = ()) -> None:
        """``sources``: what else its process counts."""
        self._bookie = bookie
        plain: list[Source] = [process_metrics, status_of(bookie), directories_metrics(bookie.parts), *sources]
        self._sources: list[tuple[Labels, Source]] = [((), source) for source in plain]
        self._sources += parts_metrics(bookie.parts, monotonic)
        self._routes: dict[str, Callable[[], Awaitable[_Answer]]] = {
            "/metrics": self._metrics,
            "/heartbeat": self._heartbeat,
            "/api/v1/bookie/is_ready": self._is_ready,
            "/api/v1/bookie/state": self._state,
            "/api/v1/bookie/info": self._info,
        }

    async def answer(self, method: str, path: str) -> tuple[int, str, str]:
        """Status, body and media type."""
        route = self._routes.get(path.rstrip("/"))
        if route is None:
            known = ", ".join(self._routes)
            return _Answer(404, f"{path[:200]} is not served by this bookie; it has {known}\n")
        if method not in ("GET", "HEAD"):
            return _Answer(405, f"{method[:20]} of {path[:200]}: expected GET\n")
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

    async def _metrics(self) -> _Answer:
        page = Page()
        for labels, source in self._sources:
            page.add_source(source, labels)
        return _Answer(200, page.text(), CONTENT_TYPE)

    async def _heartbeat(self) -> _Answer:
        return _Answer(200, "OK\n")

    async def _is_ready(self) -> _Answer:
        """A read-only bookie is ready: it serves what it has."""
        if self._bookie.availability is Availability.DOWN:
            return _Answer(503, "Bookie is not serving: it is being stopped, or a disk failed\n")
        return _Answer(200, "OK")

    async def _state(self) -> _Answer:
        availability = self._bookie.availability
        state = {
            "running": availability is not Availability.DOWN,
            "readOnly": availability is Availability.READ_ONLY,
            "shuttingDown": availability is Availability.DOWN,
            # A full disk refuses what recovery adds as well.
            "availableForHighPriorityWrites": availability is Availability.WRITABLE,
        }
        return _Answer(200, json.dumps(state), _JSON)

    async def _info(self) -> _Answer:
        found: asyncio.Future[BookieInfo | StorageError] = asyncio.get_running_loop().create_future()

        def have(info: BookieInfo | StorageError) -> None:
            if not found.done():
                found.set_result(info)

        self._bookie.read_info(done=have)
        info = await found
        if isinstance(info, StorageError):
            return _Answer(503, f"The room on its disks can not be told: {info}\n")
        return _Answer(200, json.dumps({"freeSpace": info.free_bytes, "totalSpace": info.total_bytes}), _JSON)
