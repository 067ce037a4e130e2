"""Requests of HTTP that brokers answer: an ASGI application.

A body comes whole before it goes on, at most :data:`BODY_BYTES_MAX`, for a broker may send the request on to another
one; an answer is passed on as it comes, as fast as the client takes it. Connections to brokers are for one request.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import h11
from starlette.requests import Request

from geminga.broker.access.anonymous import EVERYBODY_IS_ANONYMOUS
from geminga.broker.access.ports import Access
from geminga.broker.rest.identity import principal_by
from geminga.client import PulsarException
from geminga.model.errors import AuthenticationError, NotAllowedError, UnavailableError
from geminga.model.secret import shown_path
from geminga.proxy.brokers import Resolve
from geminga.proxy.core.http_rules import (
    REDIRECTS,
    REDIRECTS_MAX,
    Destination,
    Headers,
    answer_headers,
    place_of,
    redirected,
    refusal_of,
    request_headers,
)
from geminga.proxy.core.targets import AllowedTargets, Target
from geminga.runtime import Runtime, StreamProtocol, get_logger, spawn
from geminga.runtime.log import trace_id

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

#: Of a request: those of the administration are small. As Pulsar's httpInputMaxReplayBufferSize.
BODY_BYTES_MAX: Final = 5 * 1024 * 1024
#: Seconds that a broker may be silent before and within its answer: some of the administration's take long.
SILENT_S_MAX: Final = 300.0
_READ_BYTES: Final = 64 * 1024
#: Of an answer's line and headers.
_HEAD_BYTES_MAX: Final = 64 * 1024

_log = get_logger(__name__)


class WebLinks(Protocol):
    """How brokers are spoken to over HTTP."""

    def context(self) -> ssl.SSLContext:
        """Of TLS. Raises PulsarException for files that are not good."""

    async def headers(self, runtime: Runtime) -> list[tuple[str, str]]:
        """Who asks. Raises UnavailableError."""


class WebRules(NamedTuple):
    """What is allowed, and for how long."""

    allowed: AllowedTargets
    resolve: Resolve
    connect_s: float


class Forwarding:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        access: Access,
        links: WebLinks,
        rules: WebRules,
        web_url: Callable[[], Awaitable[str]],
    ) -> None:
        """``web_url``: of a broker, or of all of them; raises UnavailableError."""
        self._runtime = runtime
        self._access = access
        self._links = links
        self._rules = rules
        self._web_url = web_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request, as ASGI has it."""
        refused = refusal_of(scope["path"])
        has_begun = False

        async def send_on(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            if refused is not None:
                await _answer(send, *refused)
            else:
                await self._forward(scope, receive, send_on)
        except AuthenticationError as error:
            await _answer(send, 401, error.told)
        except NotAllowedError as error:
            _log.warning("a broker sends a request on to where this proxy may not connect to: %s", error)
            await _answer(send, 502, error.told)
        except UnavailableError as error:
            _log.info("%s %s: %s", scope["method"], shown_path(scope["path"]), error)
            if not has_begun:  # else the connection is closed, so that half an answer is seen to be one
                await _answer(send, 502, error.told)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_authenticated = self._access.authenticator is not EVERYBODY_IS_ANONYMOUS
        principal = await principal_by(self._access, Request(scope))
        body = await _body(receive)
        if body is None:
            await _answer(send, 413, f"expected a body of at most {BODY_BYTES_MAX} bytes")
            return
        own = await self._links.headers(self._runtime)
        client = scope.get("client")
        headers = request_headers(
            scope["headers"],
            is_authenticated=is_authenticated,
            role=principal.role if is_authenticated else "",
            own=own,
            host=client[0] if client else "",
            trace=str(trace_id.get()),
        )
        query = scope.get("query_string", b"")
        path = (scope.get("raw_path") or scope["path"].encode()) + (b"?" + query if query else b"")
        try:
            async with asyncio.timeout(None) as stay:
                leaving = spawn(_until_gone(receive, stay), name="a client of HTTP leaves")
                try:
                    await self._follow(path, scope["method"], headers, body, send)
                finally:
                    leaving.cancel()
        except TimeoutError:
            _log.info("%s %s: the client has gone", scope["method"], shown_path(scope["path"]))

    async def _follow(self, path: bytes, method: str, headers: Headers, body: bytes, send: Send) -> None:
        """From broker to broker, until one answers."""
        place = place_of(await self._web_url(), path)
        is_named = False
        for _ in range(REDIRECTS_MAX + 1):
            following = await self._ask(place, method, headers, body, send, is_named=is_named)
            if following is None:
                return
            place, is_named = following, True
        raise UnavailableError(f"brokers sent the request on more than {REDIRECTS_MAX} times")

    async def _ask(
        self, place: Destination, method: str, headers: Headers, body: bytes, send: Send, *, is_named: bool
    ) -> Destination | None:
        """Pass on the answer of one broker, or say whom it sends to. ``is_named``: by a broker."""
        reader, transport = await self._connected(place, is_named=is_named)
        try:
            http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)
            said = [(b"host", place.netloc.encode()), (b"connection", b"close"), *headers]
            if body or method in ("POST", "PUT", "PATCH"):
                said.append((b"content-length", b"%d" % len(body)))
            transport.write(http.send(h11.Request(method=method, target=place.path, headers=said)) or b"")
            if body:
                transport.write(http.send(h11.Data(body)) or b"")
            http.send(h11.EndOfMessage())
            answer = await _event(http, reader)
            while isinstance(answer, h11.InformationalResponse):
                answer = await _event(http, reader)
            if not isinstance(answer, h11.Response):
                raise UnavailableError(f"{place.netloc} ended the connection without an answer")
            location = dict(answer.headers).get(b"location")
            if answer.status_code in REDIRECTS and location is not None:
                return redirected(place, location.decode("latin-1"))
            await _pass_on(answer, http, reader, send)
            return None
        except h11.ProtocolError as error:
            # As in ``broker.peers.http_client``.
            raise UnavailableError(f"{place.netloc}: {error}") from error.with_traceback(None)
        finally:
            transport.abort()

    async def _connected(self, place: Destination, *, is_named: bool) -> tuple[asyncio.StreamReader, asyncio.Transport]:
        allowed, resolve, connect_s = self._rules
        target = Target(place.host, place.port)
        if is_named:
            allowed.check_host(target)
        reader = asyncio.StreamReader(limit=_READ_BYTES)
        try:
            async with asyncio.timeout(connect_s):
                addresses = await resolve(place.host, place.port)
                if is_named:
                    addresses = allowed.allowed(target, addresses)
                return reader, await self._first(place, addresses, reader)
        except OSError as error:  # a timeout is one
            reason = error.strerror or str(error) or f"not connected within {connect_s:g} s"
            raise UnavailableError(f"the web service {place.netloc}: {reason}") from error
        except PulsarException as error:
            raise UnavailableError(f"TLS to brokers: {error}") from error

    async def _first(
        self, place: Destination, addresses: Sequence[str], reader: asyncio.StreamReader
    ) -> asyncio.Transport:
        tls = self._links.context() if place.scheme == "https" else None
        last: OSError | None = None
        for address in addresses:
            try:
                transport, _ = await self._runtime.network.connect(
                    lambda: StreamProtocol(reader), address, place.port, tls=tls, server_name=place.host
                )
            except OSError as error:
                last = error
            else:
                return transport
        raise last or ConnectionError("it has no address")


async def _until_gone(receive: Receive, stay: asyncio.Timeout) -> None:
    """The request ends when its client leaves: a broker may be silent for long."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stay.reschedule(asyncio.get_running_loop().time())


async def _event(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Event | None:
    """The next part of an answer; None: there is none."""
    while True:
        event = http.next_event()
        if isinstance(event, h11.Event):
            return event
        if event is not h11.NEED_DATA:
            return None
        try:
            async with asyncio.timeout(SILENT_S_MAX):
                http.receive_data(await reader.read(_READ_BYTES))
        except OSError as error:
            raise UnavailableError(f"no answer of a broker: {str(error) or 'it is silent'}") from error


async def _pass_on(answer: h11.Response, http: h11.Connection, reader: asyncio.StreamReader, send: Send) -> None:
    headers = answer_headers(answer.headers)
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    while True:
        event = await _event(http, reader)
        if isinstance(event, h11.Data):
            await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        else:
            await send({"type": "http.response.body", "body": b""})
            return


async def _body(receive: Receive) -> bytes | None:
    """All of it; None: it is too long, or the client has gone."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > BODY_BYTES_MAX:
            return None
        if not message.get("more_body", False):
            return bytes(body)


async def _answer(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"reason": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
