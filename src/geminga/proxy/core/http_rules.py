"""Which requests of HTTP go on to brokers, and what is said there of who asks. Pure.

As Apache Pulsar's proxy: ``/admin`` and ``/lookup`` go on. Where the proxy asks who it is, the proxy shows credentials
of its own and says for whom it asks (``X-Original-Principal``); else what the client says of itself passes. What a
client says of whom *it* asks for never does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urljoin, urlsplit

from geminga.model.errors import UnavailableError

Headers: TypeAlias = list[tuple[bytes, bytes]]

#: Beginnings of paths.
PREFIXES: Final = ("/admin/", "/lookup/")
#: Redirections of one request that are followed: brokers name the one that has the topic.
REDIRECTS_MAX: Final = 10
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
ORIGINAL: Final = b"x-original-principal"
#: Of one connection (RFC 9110, 7.6.1), or said anew by the proxy.
_OF_A_HOP: Final = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"host", b"content-length", b"expect", b"x-forwarded-for"),
        ORIGINAL,
    )
)
_TRACE: Final = b"x-trace-id"
#: What a client says of itself.
_OF_CLIENT: Final = frozenset({b"authorization", b"x-pulsar-auth-method-name"})
_PORTS: Final = {"http": 80, "https": 443}


class Destination(NamedTuple):
    """Where a request goes."""

    scheme: str
    host: str
    port: int
    #: Path and query, as they go into the request.
    path: bytes

    @property
    def netloc(self) -> str:
        """As the header Host has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def refusal_of(path: str) -> tuple[int, str] | None:
    """Status and reason, where it does not go on."""
    if not path.startswith(PREFIXES):
        return 404, f"expected a path below {' or '.join(PREFIXES)}, or one of the proxy's own"
    if any(part in ("..", ".") for part in path.split("/")):
        return 400, "expected a path without . and .. in it"
    return None


def place_of(url: str, path: bytes) -> Destination:
    """Where ``path`` of the web service ``url`` is; raises UnavailableError for what is no URL of one."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        parts, port = urlsplit(""), 0
    if not parts.hostname:
        raise UnavailableError(f"{url[:80]!r} is no URL of a web service; expected http://host:port")
    return Destination(parts.scheme, parts.hostname, port, path)


def redirected(place: Destination, location: str) -> Destination:
    """Where a broker sends the request on; raises UnavailableError for what is no place of that kind.

    From TLS to plain is none: credentials would be shown to everybody on the way.
    """
    try:
        target = urlsplit(urljoin(f"{place.scheme}://{place.netloc}{place.path.decode('latin-1')}", location))
    except ValueError as error:
        raise UnavailableError(f"a broker sends the request on to no place: {error}") from error
    if place.scheme == "https" and target.scheme != "https":
        raise UnavailableError("a broker sends the request on to a place without TLS")
    path = (target.path or "/") + (f"?{target.query}" if target.query else "")
    return place_of(f"{target.scheme}://{target.netloc}", path.encode("latin-1", "replace"))


def request_headers(
    came: Iterable[tuple[bytes, bytes]],
    *,
    is_authenticated: bool,
    role: str,
    own: Iterable[tuple[str, str]],
    host: str,
    trace: str = "",
) -> Headers:
    """What a broker is told: ``role`` of the client, ``own`` credentials of the proxy, ``host`` of the client.

    ``trace``: by which lines of the proxy's log are found, so that those of the broker are found by it, too.
    """
    came = list(came)
    dropped = set(_OF_A_HOP)
    for name, value in came:
        if name == b"connection":
            dropped.update(part.strip().lower() for part in value.split(b","))
    said = {name for name, _ in came}
    shows_own = is_authenticated or b"authorization" not in said
    if shows_own:
        dropped |= _OF_CLIENT
    headers = [(name, value) for name, value in came if name not in dropped]
    if shows_own:
        headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in own]
    if role:
        headers.append((ORIGINAL, role.encode()))
    if host:
        headers.append((b"x-forwarded-for", host.encode()))
    if trace and b"traceparent" not in said:
        headers.append((b"traceparent", f"00-{trace}-{trace[:16]}-01".encode()))
    return headers


def answer_headers(came: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What the client is told of a broker's answer; its trace is told by the proxy."""
    dropped = (_OF_A_HOP | {_TRACE}) - {b"content-length"}
    return [(name, value) for name, value in came if name not in dropped]
