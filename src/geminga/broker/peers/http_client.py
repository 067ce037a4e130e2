"""HTTP requests to other brokers: one connection each, redirections followed, with a limit to everything."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

import h11

from geminga.broker.core.coercion import Json
from geminga.broker.peers.links import PLAIN, PeerLinks
from geminga.model.errors import UnavailableError
from geminga.runtime import KeyedLocks, Runtime, StreamProtocol, again
from geminga.runtime.log import trace_id

if TYPE_CHECKING:
    import ssl

#: Seconds that a request may take, redirections and waiting for its turn included.
REQUEST_S_MAX: Final = 60.0
#: Requests under way at the same time at one place; others wait. One that hangs keeps none from another.
REQUESTS_AT_ONCE: Final = 32
#: To the leader, from there to whom it chose; more where brokers change meanwhile.
REDIRECTS_MAX: Final = 5
#: Bytes of an answer, and of all that are being read: who is beyond is told so.
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
ANSWERS_BYTES_MAX: Final = 128 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
#: Characters of an address that an error shows.
_SHOWN: Final = 200
#: All that an address has; another broker may have said it.
_VISIBLE: Final = re.compile("[!-~]+")


class PeerAnswer(NamedTuple):
    """What a broker answered in the end."""

    status: int
    body: bytes
    #: Who answered.
    url: str

    @property
    def is_good(self) -> bool:
        """Whether it was done."""
        return 200 <= self.status < 300

    def json(self) -> Json:
        """The body; None if it is empty. Raises UnavailableError for what is not JSON."""
        if not self.body:
            return None
        try:
            value: Json = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise UnavailableError(f"the broker at {self.url} answered what is not JSON") from error
        return value

    @property
    def reason(self) -> str:
        """What the broker said against it."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            found = None
        reason = found.get("reason") if isinstance(found, dict) else None
        return reason if isinstance(reason, str) and reason else f"status {self.status}"


def addresses_of(web_url: str) -> list[str]:
    """``http://one:8080,two:8080`` names two web services of one cluster, as Pulsar's service URLs do."""
    scheme, _, hosts = web_url.partition("://")
    return [f"{scheme}://{host.strip('/ ')}" for host in hosts.split(",") if host.strip("/ ")]


class PeerHttp:
    """See the module."""

    __slots__ = ("_held_bytes", "_places", "_runtime", "links")

    def __init__(self, runtime: Runtime, links: PeerLinks = PLAIN) -> None:
        self._runtime = runtime
        #: With TLS or without, and as whom.
        self.links = links
        #: By the place that is asked.
        self._places = KeyedLocks(partial(asyncio.Semaphore, REQUESTS_AT_ONCE))
        #: Of answers that are being read.
        self._held_bytes = 0

    async def request(self, method: str, url: str, body: bytes = b"") -> PeerAnswer:
        """Raises UnavailableError where nobody answers in time."""
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                return await self._follow(method, url, body)
        except TimeoutError as error:
            raise UnavailableError(f"no answer to {method} {url} within {REQUEST_S_MAX:g} s") from error
        except OSError as error:
            why = f"{error}" or type(error).__name__
            raise UnavailableError(f"the broker at {_place(url)} does not answer: {why}") from error
        except h11.ProtocolError as error:
            # h11's own frame has the error: with its traceback it would wait for a collector.
            cause = error.with_traceback(None)
            raise UnavailableError(f"the broker at {_place(url)} does not answer: {error}") from cause

    async def first_answer(self, addresses: Sequence[str], method: str, path: str, body: bytes = b"") -> PeerAnswer:
        """Of the first of a cluster's addresses (:func:`addresses_of`) that answers. Raises UnavailableError."""
        failure = UnavailableError("there is no address to ask")
        for address in addresses:
            try:
                return await self.request(method, address + path, body)
            except UnavailableError as error:
                failure = again(error)
        raise again(failure)

    async def _follow(self, method: str, url: str, body: bytes) -> PeerAnswer:
        for _ in range(REDIRECTS_MAX + 1):
            status, location, found = await self._once(method, url, body)
            if status != 307:
                return PeerAnswer(status, found, _place(url))
            try:
                url = urljoin(url, location, allow_fragments=False)
            except ValueError as error:
                raise UnavailableError(f"{method} {url}: sent on to {location[:_SHOWN]!r}: {error}") from error
        raise UnavailableError(f"{method} {url}: more than {REDIRECTS_MAX} redirections; the brokers do not agree")

    async def _once(self, method: str, url: str, body: bytes) -> tuple[int, str, bytes]:
        try:
            # What a client said is no fragment: it is asked for whole.
            parts = urlsplit(url, allow_fragments=False)
            _ = parts.port  # raises for what is no number
        except ValueError as error:
            raise UnavailableError(f"{url} is no address of a web service: {error}") from error
        if not url.isascii():
            raise UnavailableError(f"{url[:_SHOWN]} is no address of a web service: a request has no words for it")
        links = self.links
        if parts.scheme != ("https" if links.uses_tls else "http") or not parts.hostname:
            how = "with" if links.uses_tls else "without"
            raise UnavailableError(f"{_place(url)} is no web service {how} TLS, and another one is not spoken to")
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        if not _VISIBLE.fullmatch(f"{parts.netloc}{target}"):
            raise UnavailableError(f"{url[:200]!r} is no address of a web service")
        async with self._places.of(parts.netloc):
            return await self._ask(method, parts, target, body)

    async def _ask(self, method: str, parts: SplitResult, target: str, body: bytes) -> tuple[int, str, bytes]:
        links = self.links
        proof = await links.headers(self._runtime)
        reader = asyncio.StreamReader()
        transport, protocol = await self._runtime.network.connect(
            lambda: StreamProtocol(reader),
            parts.hostname or "",
            parts.port or (443 if links.uses_tls else 80),
            tls=self._tls(),
        )
        assert isinstance(protocol, StreamProtocol)
        try:
            http = h11.Connection(h11.CLIENT)
            headers = [("Host", parts.netloc), ("Accept", "application/json"), ("Connection", "close")]
            headers.append(("Content-Length", str(len(body))))
            headers += proof
            if trace := trace_id.get():
                headers.append(("traceparent", f"00-{trace}-{self._runtime.rng.token(8)}-00"))
            if body:
                headers.append(("Content-Type", "application/json"))
            head = http.send(h11.Request(method=method, target=target, headers=headers))
            content = http.send(h11.Data(data=body)) if body else b""
            transport.write((head or b"") + (content or b"") + (http.send(h11.EndOfMessage()) or b""))
            return await self._answer(http, reader)
        finally:
            transport.abort()

    def _tls(self) -> ssl.SSLContext | None:
        """Raises UnavailableError: files of certificates are exchanged, or gone, for a moment."""
        if not self.links.uses_tls:
            return None
        from geminga.client import PulsarException

        try:
            return self.links.context()
        except PulsarException as error:
            raise UnavailableError(f"TLS to other brokers: {error}") from error

    async def _answer(self, http: h11.Connection, reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
        body = bytearray()
        try:
            return await self._read(http, reader, body)
        finally:
            self._held_bytes -= len(body)

    async def _read(
        self, http: h11.Connection, reader: asyncio.StreamReader, body: bytearray
    ) -> tuple[int, str, bytes]:
        status, location = 0, ""
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(_READ_BYTES))
            elif isinstance(event, h11.Response):
                status = event.status_code
                location = next((value.decode("latin-1") for name, value in event.headers if name == b"location"), "")
            elif isinstance(event, h11.Data):
                body += event.data
                self._held_bytes += len(event.data)
                if len(body) > ANSWER_BYTES_MAX:
                    raise UnavailableError(f"a broker's answer has more than {ANSWER_BYTES_MAX} bytes")
                if self._held_bytes > ANSWERS_BYTES_MAX:
                    raise UnavailableError(f"answers of brokers have more than {ANSWERS_BYTES_MAX} bytes together")
            elif isinstance(event, h11.EndOfMessage):
                return status, location, bytes(body)


def _place(url: str) -> str:
    return urlsplit(url).netloc
