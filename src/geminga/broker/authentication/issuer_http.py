"""Documents of issuers over HTTP: one GET each, bounded in time and size, without redirections."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import h11

from geminga.model.errors import ConfigurationError, UnavailableError
from geminga.runtime import Runtime, StreamProtocol
from geminga.runtime.tls.contexts import Made
from geminga.runtime.tls.following import FollowedContext
from geminga.security.openid import DOCUMENT_BYTES_MAX

#: Seconds of one document.
GET_S_MAX: Final = 10.0
_READ_BYTES: Final = 64 << 10


class IssuerHttp:
    """See the module."""

    __slots__ = ("_runtime", "_system", "_trusted")

    def __init__(self, runtime: Runtime, trust_file: str = "") -> None:
        """``trust_file``: certificates in PEM that sign those of issuers, looked at again with each document, for
        issuers change who signs theirs, too; empty: the system's. Raises ConfigurationError."""
        self._runtime = runtime
        self._system: ssl.SSLContext | None = None
        self._trusted: FollowedContext | None = None
        if trust_file:
            make = partial(_trusting, trust_file)
            self._trusted = FollowedContext("issuers of tokens", [trust_file], make, at_each=True)

    async def get(self, url: str) -> bytes:
        """The document at ``url``. Raises UnavailableError."""
        try:
            async with asyncio.timeout(GET_S_MAX):
                return await self._get(url)
        except TimeoutError as error:
            raise UnavailableError(f"no answer of {url} within {GET_S_MAX:g} s") from error
        except (OSError, ValueError, h11.ProtocolError) as error:
            why = f"{error}" or type(error).__name__
            raise UnavailableError(f"{url}: {why}") from error

    async def _get(self, url: str) -> bytes:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UnavailableError(f"{url}: expected https://host/path")
        tls = self._context() if parts.scheme == "https" else None
        reader = asyncio.StreamReader()
        transport, _ = await self._runtime.network.connect(
            lambda: StreamProtocol(reader),
            parts.hostname,
            parts.port or (443 if tls is not None else 80),
            tls=tls,
        )
        try:
            http = h11.Connection(h11.CLIENT)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            headers = [("Host", parts.netloc), ("Accept", "application/json"), ("Connection", "close")]
            head = http.send(h11.Request(method="GET", target=target, headers=headers))
            transport.write((head or b"") + (http.send(h11.EndOfMessage()) or b""))
            return await _body(http, reader, url)
        finally:
            transport.abort()

    def _context(self) -> ssl.SSLContext:
        if self._trusted is not None:
            return self._trusted.context()
        if self._system is None:
            self._system = ssl.create_default_context()
        return self._system


def _trusting(path: str) -> Made:
    try:
        return Made(ssl.create_default_context(cafile=path), None)
    except OSError as error:
        reason = error.strerror or "not certificates in PEM"
        raise ConfigurationError(f"openIDTokenIssuerTrustCertsFilePath: {path}: {reason}") from None


async def _body(http: h11.Connection, reader: asyncio.StreamReader, url: str) -> bytes:
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response):
            if event.status_code != 200:
                raise UnavailableError(f"{url} answered {event.status_code}")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > DOCUMENT_BYTES_MAX:
                raise UnavailableError(f"{url} has more than {DOCUMENT_BYTES_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body)
