"""Requests over the standard library's HTTP, on connections that are kept; blocking, for any thread."""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from geminga.admin.defaults import TIMEOUT_S
from geminga.admin.errors import UnreachableError, error_of
from geminga.runtime import SystemClock
from geminga.runtime.fork import fork_generation
from geminga.runtime.sockets.limited_answers import limited_answers

#: The type of bodies, unless told otherwise.
JSON: Final = "application/json"
#: Brokers that one request may be sent on to.
REDIRECTS_MAX: Final = 5
#: Connections that wait for the next request, over all brokers.
IDLE_MAX: Final = 16
#: Bytes of the largest answer.
ANSWER_BYTES_MAX: Final = 256 << 20
#: The same with what is not its body: chunks have heads, and headers, or answers before the answer, may have no end.
READ_BYTES_MAX: Final = 2 * ANSWER_BYTES_MAX
#: Bytes per second of an answer, once its first seconds are over: a slower one is given up.
BYTES_PER_S_MIN: Final = 16 << 10
#: How a kept connection that the broker closed meanwhile is noticed.
_STALE: Final = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)

Headers = Mapping[str, str]
#: What is asked for behind the path; a value None: it is left out.
Query = Mapping[str, Any] | None


class _UnwrittenError(ConnectionResetError):
    """The connection was closed before a whole request was written: nobody has carried it out."""


class Errand:
    """One request on its way, which another thread may give up: what it waits for then ends."""

    __slots__ = ("_caller", "_held", "_is_given_up")

    def __init__(self, caller: HttpCaller) -> None:
        self._caller = caller
        #: Its connection. Who takes it out of here has it: the one that carries the request out, or that gives it up.
        self._held: deque[http.client.HTTPConnection] = deque()
        self._is_given_up = False

    def request(
        self, method: str, path: str, query: Query = None, body: bytes | None = None, content_type: str = JSON
    ) -> tuple[bytes, Headers]:
        """As :meth:`HttpCaller.request`; UnreachableError once it is given up."""
        return self._caller.request(method, path, query, body, content_type, self)

    def give_up(self) -> None:
        """Hang up, and ask nobody any more. What is connecting goes on doing so for as long as it may."""
        self._is_given_up = True
        try:
            sock = self._held.pop().sock
            if sock is not None:
                # Not TLS's own, which would change what the other thread reads by.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except (IndexError, OSError):
            pass  # it has none, or that is over

    def check_wanted(self) -> None:
        """Raise ConnectionAbortedError once it is given up."""
        if self._is_given_up:
            raise ConnectionAbortedError("nobody waits for the answer any more")

    def hold(self, connection: http.client.HTTPConnection) -> None:
        """It waits for this one from here on. Raises ConnectionAbortedError once it is given up."""
        self._held.append(connection)
        self.check_wanted()

    def let_go(self) -> bool:
        """It waits for none any more; False: that was hung up on."""
        try:
            self._held.pop()
        except IndexError:
            return False
        return True


class HttpCaller:
    """Asks one broker, and those that it names."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = TIMEOUT_S,
        headers: Callable[[], Headers] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``url``: ``http://host:port`` or ``https://``; ``headers``: sent with each request. Raises ValueError."""
        if not _scheme_of(url):
            raise ValueError(f"the address of a broker's administration is http://host:port, not {url!r}")
        parts = urlsplit(url)
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._timeout_s = timeout_s
        self._headers = headers
        self._tls = tls
        clock = SystemClock()
        self._answers = limited_answers(lambda: _Pace(timeout_s, clock.monotonic))
        #: By scheme and address. Threads share it: a connection that was taken is nobody else's.
        self._idle: dict[str, deque[http.client.HTTPConnection]] = {}
        #: Of the process that they are of.
        self._generation = fork_generation()
        self._is_closed = False

    def close(self) -> None:
        """Close what is kept; later requests are refused."""
        self._is_closed = True
        for connections in list(self._idle.values()):
            while connections:
                connections.pop().close()

    def errand(self) -> Errand:
        """For one request that may be given up."""
        return Errand(self)

    def request(
        self,
        method: str,
        path: str,
        query: Query = None,
        body: bytes | None = None,
        content_type: str = JSON,
        errand: Errand | None = None,
    ) -> tuple[bytes, Headers]:
        """Body and headers (small letters) of the answer, wherever the broker sends it on to. Raises AdminError."""
        asked = query_text(query)
        url = f"{self._base}{path}{'?' + asked if asked else ''}"
        what = f"{method} {url}"
        for _ in range(REDIRECTS_MAX):
            status, data, headers = self._once(method, url, body, content_type, errand)
            if status in (301, 302, 307, 308):
                url = self._elsewhere(what, status, url, headers.get("Location", ""))
                continue
            if status >= 300:
                raise error_of(what, status, reason_of(data))
            return data, {name.lower(): value for name, value in headers.items()}
        raise error_of(what, 307, f"sent on more than {REDIRECTS_MAX} times, at last to {url}")

    @staticmethod
    def _elsewhere(what: str, status: int, url: str, place: str) -> str:
        scheme = _scheme_of(place)
        if not scheme:
            raise error_of(what, status, f"sent on to {place!r}, which is no address")
        if scheme == "http" and urlsplit(url).scheme == "https":
            # Who asks says who it is: not where everybody on the way can read it.
            raise error_of(what, status, f"sent on to {place}, which is not encrypted")
        return place

    def _once(
        self, method: str, url: str, body: bytes | None, content_type: str, errand: Errand | None
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        parts = urlsplit(url)
        where = f"{parts.scheme}://{parts.netloc}"
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        # A broker that is asked by a page of another site looks at the type: a page can not send this one unasked.
        headers = {"Accept": JSON, **({"Content-Type": content_type} if method != "GET" else {})}
        if self._headers is not None:
            headers |= self._headers()
            for name, value in headers.items():
                if "\n" in value or "\r" in value:
                    # http.client would repeat all of it.
                    raise ValueError(f"the header {name} has a line's end in its value, which no header can have")
        errand = Errand(self) if errand is None else errand
        connection, is_kept = self._take(where)
        try:
            try:
                self._write(connection, method, target, body, headers, errand)
                answer = self._read(connection)
            except _STALE as error:
                # What was written may have been carried out: a second DELETE would be told that there is nothing.
                if not is_kept or (method != "GET" and not isinstance(error, _UnwrittenError)):
                    raise
                errand.let_go()
                connection.close()
                connection = self._new(where)
                self._write(connection, method, target, body, headers, errand)
                answer = self._read(connection)
        except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last: of a name that no host can have
            connection.close()
            raise UnreachableError(f"{method} {url}", 0, f"no answer: {str(error) or type(error).__name__}") from error
        except BaseException:
            connection.close()
            raise
        status, data, answered, is_over = answer
        self._give(where, connection, is_over=not errand.let_go() or is_over)
        return status, data, answered

    @staticmethod
    def _write(
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: Headers,
        errand: Errand,
    ) -> None:
        if connection.sock is None:
            errand.check_wanted()
            connection.connect()
        errand.hold(connection)
        data = body if body is not None or method == "GET" else b""
        try:
            connection.request(method, target, body=data, headers=dict(headers))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise _UnwrittenError(*error.args) from error

    @staticmethod
    def _read(connection: http.client.HTTPConnection) -> tuple[int, bytes, http.client.HTTPMessage, bool]:
        response = connection.getresponse()
        data = response.read(ANSWER_BYTES_MAX + 1)
        if len(data) > ANSWER_BYTES_MAX:
            raise http.client.HTTPException(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
        _check_whole(response, len(data))
        return response.status, data, response.headers, response.will_close

    def _take(self, where: str) -> tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it was used before. Raises ValueError."""
        if self._is_closed:
            raise ValueError("this administration client is closed")
        if self._generation != fork_generation():
            # A parent's: it, or a sister, would read the answer to what is asked here.
            self._generation, self._idle = fork_generation(), {}
        while True:
            try:
                connection = self._idle[where].pop()
            except (KeyError, IndexError):
                return self._new(where), False
            if not _is_over(connection):
                connection.sock.settimeout(self._timeout_s)  # what was left for the answer before
                return connection, True
            connection.close()

    def _new(self, where: str) -> http.client.HTTPConnection:
        scheme, _, address = where.partition("://")
        connection = (
            http.client.HTTPSConnection(address, timeout=self._timeout_s, context=self._tls)
            if scheme == "https"
            else http.client.HTTPConnection(address, timeout=self._timeout_s)
        )
        connection.response_class = self._answers
        return connection

    def _give(self, where: str, connection: http.client.HTTPConnection, *, is_over: bool) -> None:
        """Keep it for the next request, if it can be."""
        if is_over or self._is_closed or sum(map(len, list(self._idle.values()))) >= IDLE_MAX:
            connection.close()
        else:
            self._idle.setdefault(where, deque()).append(connection)


def _scheme_of(url: str) -> str:
    """``http`` or ``https``; empty for what is no address of a web service."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    return parts.scheme if parts.scheme in ("http", "https") and parts.hostname and port != 0 else ""


class _Pace:
    """How long reads of one answer take: see ``limited_answers``.

    The first byte is waited for as long as any; from then on the answer has that time once more, and what it brings at
    :data:`BYTES_PER_S_MIN` beside.
    """

    __slots__ = ("_begun_s", "_now", "_timeout_s")

    def __init__(self, timeout_s: float, now: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._now = now
        #: When the first bytes were there; None before.
        self._begun_s: float | None = None

    def __call__(self, read_bytes: int) -> float:
        if not read_bytes:
            return self._timeout_s
        if read_bytes > READ_BYTES_MAX:
            raise http.client.HTTPException(f"more than {READ_BYTES_MAX} bytes, and no end")
        now_s = self._now()
        if self._begun_s is None:
            self._begun_s = now_s
        taken_s = now_s - self._begun_s
        left_s = self._timeout_s + read_bytes / BYTES_PER_S_MIN - taken_s
        if left_s <= 0:
            raise TimeoutError(f"only {read_bytes} bytes within {taken_s:g} s")
        return min(left_s, self._timeout_s)


def _check_whole(response: http.client.HTTPResponse, size_bytes: int) -> None:
    """``http.client`` takes the end of a connection for the end of headers, and of a body whose length was told."""
    if response.length:
        raise http.client.HTTPException(f"cut off after {size_bytes} of {size_bytes + response.length} bytes")
    told = {"content-length", "transfer-encoding", "connection"}
    if response.will_close and response.version == 11 and not told & {name.lower() for name in response.headers}:
        raise http.client.HTTPException("cut off in its headers, which do not tell where it ends")


def _is_over(connection: http.client.HTTPConnection) -> bool:
    """Whether the broker closed a connection that waits: all that can be read of it is its end."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def query_text(query: Query) -> str:
    """What stands behind the question mark; what is None is left out."""
    return urlencode({key: _text(value) for key, value in (query or {}).items() if value is not None})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def reason_of(data: bytes) -> str:
    """The broker's own words in the body of a refusal."""
    text = data.decode("utf-8", "replace").strip()
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return text[:1000] or "no reason given"
    reason = said.get("reason") if isinstance(said, dict) else None
    return reason if isinstance(reason, str) else text[:1000]
