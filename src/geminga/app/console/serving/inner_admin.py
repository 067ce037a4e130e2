"""Requests of ``geminga.admin`` to the administration of this very process: as the visitor, without a socket.

They go through the same application as those from outside, so the same is asked of rights and the same is written down,
with the visitor's address, certificate and credentials. Where it sends on to another broker, that one is asked over
HTTP.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from geminga.admin import AdminClient, AdminError, NotAvailableError, UnreachableError
from geminga.admin._calling import Lanes
from geminga.admin._http import HttpCaller, query_text, reason_of
from geminga.admin._request import Request, answer_of, body_of
from geminga.admin.errors import error_of
from geminga.runtime import Raised, attempt_await, spawn

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Scope

#: Seconds that one request has, the console's own deadline.
REQUEST_S_MAX: Final = 10.0
#: Seconds that another broker has: what hangs there holds up the rest of a page, too.
ELSEWHERE_S_MAX: Final = 5.0
#: Requests of one page that are under way at a time.
AT_ONCE_MAX: Final = 16
#: Bytes of an answer; that of 100,000 topics has 10 MB.
ANSWER_BYTES_MAX: Final = 64 << 20
#: Changes that are being made, over all pages, those that nobody waits for any more included.
CHANGES_MAX: Final = 64


class Changes:
    """Changes that pages began: each goes on to its end, as one that came over a socket does, whoever waits for it.

    Cut off by a deadline, an unload or a deletion would leave a topic half closed, which nobody could load any more.
    """

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Raised | None]] = set()

    async def carry_out(self, what: str, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Until it is done; raises what it does, and NotAvailableError where too many are under way."""
        if len(self._under_way) >= CHANGES_MAX:
            raise NotAvailableError(what, 503, f"{CHANGES_MAX} changes are being made already")
        task = spawn(attempt_await(begin()), name=f"console: {what}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.wait([task])
        outcome = task.result()
        if isinstance(outcome, Raised):
            raise outcome.error


class InnerRequests:
    """Carries out the requests of one page (``geminga.admin._calling.Asks``)."""

    def __init__(
        self,
        application: ASGIApp,
        visitors: Scope,
        authorization: str,
        context: Callable[[], ssl.SSLContext | None],
        changes: Changes,
    ) -> None:
        """``visitors``: the request that the page answers. ``context``: how another broker is verified. ``changes``:
        those of all pages."""
        self._application = application
        self._changes = changes
        self._visitors = visitors
        self._authorization = authorization
        self._context = context
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        #: By place.
        self._elsewhere: dict[str, Lanes] = {}
        #: Places that did not answer: they are not asked again for this page.
        self._silent: set[str] = set()

    async def ask(self, request: Request[Any]) -> Any:  # noqa: ANN401  (its row says what it is)
        """The answer. Raises AdminError."""
        async with self._turns:
            try:
                async with asyncio.timeout(REQUEST_S_MAX):
                    return await self._asked(request)
            except TimeoutError:
                what = f"{request.method} {request.path}"
                raise UnreachableError(what, 0, f"no answer within {REQUEST_S_MAX:.0f} seconds") from None

    async def close(self) -> None:
        """Wait for what is under way elsewhere."""
        for lanes in self._elsewhere.values():
            await lanes.close()

    async def _asked(self, request: Request[Any]) -> Any:  # noqa: ANN401
        status, headers, body = await self._answered(request)
        what = f"{request.method} {request.path}"
        if status in (301, 302, 307, 308):
            return await self._asked_elsewhere(request, what, headers.get("location", ""))
        if status >= 300:
            raise error_of(what, status, reason_of(body))
        return answer_of(request, body, headers)

    async def _answered(self, request: Request[Any]) -> tuple[int, Mapping[str, str], bytes]:
        body, is_asked = body_of(request) or b"", False
        status, headers = 500, dict[str, str]()
        parts: list[bytes] = []
        room = ANSWER_BYTES_MAX

        async def receive() -> MutableMapping[str, Any]:
            nonlocal is_asked
            if is_asked:
                # Nothing more comes, and nobody leaves: who cuts a page off cancels it.
                await asyncio.get_running_loop().create_future()
            is_asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, headers, room
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = {
                    name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]
                }
                return
            parts.append(message.get("body", b""))
            room -= len(parts[-1])
            if room < 0:
                raise AdminError(request.path, 0, f"an answer of more than {ANSWER_BYTES_MAX:,} bytes")

        async def answer() -> None:
            await self._application(self._scope(request, len(body)), receive, send)

        if request.method == "GET":
            await answer()
        else:
            await self._changes.carry_out(f"{request.method} {request.path}", answer)
        return status, headers, b"".join(parts)

    def _scope(self, request: Request[Any], length: int) -> Scope:
        visitors = self._visitors
        kept = [(name, value) for name, value in visitors["headers"] if name in (b"host", b"x-original-principal")]
        headers = [*kept, (b"accept", b"application/json"), (b"content-length", b"%d" % length)]
        if request.method != "GET":
            headers.append((b"content-type", request.content_type.encode()))
        authorization = self._authorization.encode("latin-1", "replace")
        if authorization:
            headers.append((b"authorization", authorization))
        return {
            "type": "http",
            "asgi": visitors["asgi"],
            "http_version": "1.1",
            "method": request.method,
            "scheme": visitors["scheme"],
            "path": unquote(request.path),
            "raw_path": request.path.encode(),
            "query_string": query_text(request.query).encode(),
            "root_path": "",
            "headers": headers,
            "client": visitors.get("client"),
            "server": visitors.get("server"),
            "state": dict(visitors.get("state", {})),
        }

    async def _asked_elsewhere(self, request: Request[Any], what: str, location: str) -> Any:  # noqa: ANN401
        """Raises AdminError for a place that is none, or where everybody on the way reads who asks."""
        parts = urlsplit(location)
        if parts.scheme not in ("http", "https") or (parts.scheme == "http" and self._visitors["scheme"] == "https"):
            raise AdminError(what, 307, f"sent on to {location!r}, which is no address that can be asked")
        place = f"{parts.scheme}://{parts.netloc}"
        if place in self._silent:
            raise UnreachableError(what, 0, f"the broker at {place} did not answer a moment ago")
        try:
            return await self._lanes_to(place).ask(request)
        except UnreachableError:
            self._silent.add(place)
            raise

    def _lanes_to(self, place: str) -> Lanes:
        if place not in self._elsewhere:
            said = {"Authorization": self._authorization} if self._authorization else {}
            tls = self._context() if place.startswith("https") else None
            caller = HttpCaller(place, timeout_s=ELSEWHERE_S_MAX, headers=lambda: said, tls=tls)
            self._elsewhere[place] = Lanes(caller)
        return self._elsewhere[place]


def visitors_admin(requests: InnerRequests) -> AdminClient:
    """The administration as a visitor has it."""
    return AdminClient("http://in-process", timeout_s=REQUEST_S_MAX, headers=None, tls=None, asks=requests)
