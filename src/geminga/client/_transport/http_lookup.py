"""Service URLs of HTTP: a broker is found by the REST's lookup, and spoken to by the binary protocol from there on.

The lookup is of what somebody is about to use, so that it needs no more rights than that. With ``https://`` the broker
is spoken to with TLS, too.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlencode

from geminga.client._api.authentication import Authentication
from geminga.client._api.errors import (
    AuthenticationError,
    AuthorizationError,
    ConnectError,
    LookupError,
    PulsarException,
    ServiceUnitNotReady,
    Timeout,
    TopicNotFound,
)
from geminga.client._api.http_headers import headers_of, http_headers
from geminga.client._transport.handshake import credentials_not_had
from geminga.model.topic_name import TopicName
from geminga.runtime import Raised, Threads, attempt, attempt_await

if TYPE_CHECKING:
    from geminga.runtime.sockets.limited_http import TimeLeft

#: Threads lane of lookups.
LOOKUP_LANE: Final = "http-lookup"
#: Brokers that one lookup may be sent on to.
REDIRECTS_MAX: Final = 20
#: A larger answer is none of a lookup.
ANSWER_BYTES_MAX: Final = 1 << 20

_ERRORS: Final[dict[int, type[PulsarException]]] = {
    401: AuthenticationError,
    403: AuthorizationError,
    404: TopicNotFound,
}


class HttpLookup(NamedTuple):
    """One lookup."""

    #: ``http://host:port`` or ``https://host:port``.
    url: str
    topic: str
    listener_name: str
    #: For all of it, with those it is sent on to.
    limit_s: float
    context: ssl.SSLContext | None


async def find_broker(lookup: HttpLookup, authentication: Authentication | None, threads: Threads) -> str:
    """The broker's binary URL; raises PulsarException and nothing else: what is no answer is another attempt's."""
    # Loaded by who has such a URL.
    from geminga.runtime.sockets.limited_http import time_left

    left = time_left(lookup.limit_s)
    try:
        # The thread may be held up where nothing limits it: by the names' servers, and by an application's credentials.
        async with asyncio.timeout(lookup.limit_s):
            if authentication is None or getattr(authentication, "is_blocking", False):
                return await threads.call(
                    LOOKUP_LANE, lambda: _find(lookup, _had(attempt(http_headers, authentication)), left)
                )
            headers = _had(await attempt_await(_headers(authentication)))
            return await threads.call(LOOKUP_LANE, lambda: _find(lookup, headers, left))
    except TimeoutError:
        raise Timeout(f"lookup of {lookup.topic} at {lookup.url}: no answer within {lookup.limit_s:g} s") from None


async def _headers(authentication: Authentication) -> dict[str, str]:
    data = authentication.data()
    return headers_of(authentication, await data if isinstance(data, Awaitable) else data)


def _had(headers: dict[str, str] | Raised) -> dict[str, str]:
    if not isinstance(headers, Raised):
        return headers
    raise headers.error if isinstance(headers.error, PulsarException) else credentials_not_had(headers)


def _find(lookup: HttpLookup, headers: dict[str, str], left: TimeLeft) -> str:
    name = TopicName.parse(lookup.topic)
    url = f"{lookup.url}/lookup/v2/topic/{name.domain}/{name.namespace}/{quote(name.local_name, safe='')}"
    if lookup.listener_name:
        url += "?" + urlencode({"listenerName": lookup.listener_name})
    for _ in range(REDIRECTS_MAX + 1):
        text, there = _ask(url, headers, lookup.context, left)
        if not there:
            return _broker_url(text, url, is_tls=url.startswith("https:"))
        if url.startswith("https:") and not there.startswith("https:"):
            raise LookupError(f"{url}: sent on to {there}, which has no TLS")
        url = there
    raise LookupError(f"lookup of {lookup.topic}: more than {REDIRECTS_MAX} redirects")


def _ask(url: str, headers: dict[str, str], context: ssl.SSLContext | None, left: TimeLeft) -> tuple[bytes, str]:
    """The body, or where it is answered; raises PulsarException."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request

    from geminga.runtime.sockets.limited_http import limited_opener

    class Stay(HTTPRedirectHandler):
        """Who sends a request on is followed above, where it is looked at."""

        def redirect_request(self, *_: object) -> None:
            return None

    opener = limited_opener(left, context, Stay())
    try:
        try:
            with opener.open(Request(url, headers=headers)) as response:
                return response.read(ANSWER_BYTES_MAX), ""
        except HTTPError as error:
            with error:
                there = error.headers.get("Location", "")
                if error.code in (302, 307) and there.startswith(("http://", "https://")):
                    return b"", there
                reason = error.read(ANSWER_BYTES_MAX).decode(errors="replace")
            refusal = _ERRORS.get(error.code, ServiceUnitNotReady)(f"{url}: {error.code} {reason[:500]}")
    except (OSError, ValueError, HTTPException) as error:
        why = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise ConnectError(f"connecting to {url}: {why}") from None
    try:
        raise refusal
    finally:
        del refusal  # see runtime's value_of


def _broker_url(text: bytes, url: str, *, is_tls: bool) -> str:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    broker = found.get("brokerUrlTls" if is_tls else "brokerUrl") if isinstance(found, dict) else None
    if not isinstance(broker, str) or not broker:
        raise LookupError(f"{url}: an answer without the broker's address{' for TLS' if is_tls else ''}")
    return broker
