"""In front of every HTTP application, whatever it is: who is refused before, and bodies that nobody wants.

A request beyond the rate of all is answered 429; one whose address has a fragment 400; a foreign page's
(``wire.pages``) 403, unless settings let it (``wire.cors``); one beyond ``requests_max`` 503 with ``Retry-After``, and
so is one that a stop cuts off before its answer began. This is the only place where a cancellation ends: below, whoever
asks with a deadline of his own is to see it. What a request causes has its trace id in its lines of the log
(``docs/formats/log.md``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from geminga.broker.rest.calls.core.timeouts import RETRY_AFTER_S
from geminga.runtime.log import RequestTrace, get_logger, trace_id
from geminga.wire.pages import Names, refusal_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from geminga.broker.rest.http.request_rate import RequestRate
    from geminga.wire.cors import CorsRules

#: Bytes of a body that are read and thrown away before an answer that does not need them.
DISCARDED_BYTES_MAX: Final = 1 << 20
#: Of an answer: by which trace id its lines in the log are found.
TRACE_HEADER: Final = b"x-trace-id"
#: An id of zeros is none.
_TRACE_PARENT: Final = re.compile(rb"[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


_log = get_logger(__name__)


class PageGuard:
    """An ASGI application around another one."""

    def __init__(
        self,
        application: ASGIApp,
        names: Names,
        requests_max: int,
        warn: Callable[[str, str], None],
        draw: Callable[[int], str],
        cors: CorsRules | None = None,
        rate: RequestRate | None = None,
        *,
        trusts_forwarded: bool = False,
    ) -> None:
        """``warn`` is told, with a kind, what is refused; ``draw``: so many bytes by chance, in hexadecimal digits.
        ``cors``: what pages of other origins may; None: nothing. ``rate``: of all requests; None: any.
        ``trusts_forwarded``: a balancer says in a header (``wire.forwarded``) where a request came from."""
        self._rate = rate
        self._trusts_forwarded = trusts_forwarded
        self._cors = cors
        self._draw = draw
        self._application = application
        self._names = names
        self._requests_max = requests_max
        self._warn = warn
        #: Requests under way.
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, as ASGI has it."""
        if self._rate is not None and not self._rate.admits(scope["path"]):
            self._warn("an HTTP request is refused: more come than httpRequestsMaxPerSecond", "rate")
            await _answer(scope, receive, send, 429, "Too Many Requests")
            return
        if b"#" in scope.get("raw_path", b"") or b"#" in scope.get("query_string", b""):
            # It is none of HTTP, and whoever passes it on may cut it there: another thing would be asked for.
            self._warn("an HTTP request is refused: its address has a #", "fragment")
            await _answer(scope, receive, send, 400, "an address has no # in it here: expected %23")
            return
        if self._trusts_forwarded:
            scope = _as_forwarded(scope)
        if self._cors is None:
            reason = refusal_of(self._names, scope["method"], scope["path"], scope["headers"])
        else:
            send = _with_cors(self._cors, scope, send)
            reason = refusal_of(self._names, scope["method"], scope["path"], scope["headers"], self._cors.admits)
            if not reason and await _answer_preflight(self._cors, scope, receive, send):
                return
        if reason:
            self._warn(f"an HTTP request is refused: {reason}", "page")
            await _answer(scope, receive, send, 403, reason)
            return
        if self._running >= self._requests_max:
            reason = f"{self._requests_max} HTTP requests are under way; try again later"
            self._warn(f"an HTTP request is told to come back: {reason}", "requests")
            await _answer(scope, receive, send, 503, reason)
            return
        self._running += 1
        trace = RequestTrace(_traced(scope["headers"]) or self._draw(16))
        token = trace_id.set(trace)
        if _log.isEnabledFor(logging.DEBUG):
            from geminga.model.secret import shown_path

            _log.debug("%s %s", scope["method"], shown_path(scope["path"]))

        is_begun = False

        async def send_on(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (TRACE_HEADER, trace.encode())]}
            await send(message)

        try:
            await self._application(scope, receive, send_on)
        except asyncio.CancelledError:
            # What the server's protocol would make of it is an error of ours. The rest of a body is not waited for.
            if not is_begun:
                await _refuse(send_on, 503, "the broker is stopping")
        finally:
            self._running -= 1
            trace.is_over = True
            trace_id.reset(token)


def _as_forwarded(scope: Scope) -> Scope:
    """With the address that a balancer says, if it says one."""
    from geminga.wire.forwarded import forwarded_for

    found = forwarded_for(scope["headers"])
    return scope if found is None else {**scope, "client": found}


def _with_cors(cors: CorsRules, scope: Scope, send: Send) -> Send:
    """What a browser needs to show an answer to a page goes into each."""
    from geminga.wire.cors import answer_headers

    more = answer_headers(cors, scope["headers"])

    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return send_on


async def _answer_preflight(cors: CorsRules, scope: Scope, receive: Receive, send: Send) -> bool:
    """A browser asks what a page may do: answered before anything is asked of the page's visitor."""
    from geminga.wire.cors import preflight_headers

    found = preflight_headers(cors, scope["method"], scope["headers"])
    if found is None:
        return False

    async def answer(_scope: Scope, _receive: Receive, send_on: Send) -> None:
        await send_on({"type": "http.response.start", "status": 204, "headers": found})
        await send_on({"type": "http.response.body", "body": b""})

    await WholeBodies(answer)(scope, receive, send)
    return True


def _traced(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The trace id that the client gives (W3C Trace Context), or nothing."""
    for name, value in headers:
        if name == b"traceparent" and (found := _TRACE_PARENT.fullmatch(value)) is not None:
            return found[1].decode()
    return ""


async def _answer(scope: Scope, receive: Receive, send: Send, status: int, reason: str) -> None:
    """Once the body is there."""

    async def refuse(_scope: Scope, _receive: Receive, send_on: Send) -> None:
        await _refuse(send_on, status, reason)

    await WholeBodies(refuse)(scope, receive, send)


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"reason": reason}, separators=(",", ":")).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status in (429, 503):
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class WholeBodies:
    """An ASGI application around another one. An answer ahead of the body is lost where the connection closes then.

    A client that is still sending when its peer closes is told by the kernel that the connection was reset.
    """

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, as ASGI has it."""
        is_coming = scope["type"] == "http" and _sends_anyway(scope)

        async def receive_on() -> Message:
            nonlocal is_coming
            message = await receive()
            is_coming = is_coming and message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def send_on(message: Message) -> None:
            left = DISCARDED_BYTES_MAX
            while is_coming and left > 0:
                left -= len((await receive_on()).get("body", b""))
            await send(message)

        await self._application(scope, receive_on, send_on)


def _sends_anyway(scope: Scope) -> bool:
    """Whether a body comes that is worth waiting for, from a client that does not wait for leave to send it."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0" if b"transfer-encoding" not in headers else b"1")
    return b"expect" not in headers and 0 < int(length) <= DISCARDED_BYTES_MAX
