"""Which pages of other origins a browser lets read answers, and send more than a form could (CORS).

By the Fetch standard ("CORS protocol"): a browser asks first (a preflight, ``OPTIONS`` with
``Access-Control-Request-Method``) or looks at the answer, and shows it to a page whose origin the answer names. Nothing
of it is on unless origins are listed. A listed origin may also do what :mod:`.pages` refuses foreign pages, with
the listed methods; ``*`` lets every page read, and change nothing, for a page of a stranger is no less one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

ORIGINS_KEY: Final = "gemingaHttpCorsAllowedOrigins"
CREDENTIALS_KEY: Final = "gemingaHttpCorsAllowCredentials"
METHODS_KEY: Final = "gemingaHttpCorsAllowedMethods"
HEADERS_KEY: Final = "gemingaHttpCorsAllowedHeaders"
#: In the list: pages of every origin.
ANY_ORIGIN: Final = "*"
#: Of an answer that a page may read beside those that the standard has.
EXPOSED: Final = "Location, Retry-After, X-Trace-Id"
#: A name of a method or a header (RFC 9110).
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: Schemes of pages.
_SCHEMES: Final = ("http", "https")

Headers = list[tuple[bytes, bytes]]


class CorsError(ValueError):
    """Settings that can not be; the text says which, and what was expected."""


class CorsRules(NamedTuple):
    """What pages of other origins may."""

    #: As browsers write them; empty: only :attr:`is_any` counts.
    origins: frozenset[str]
    is_any: bool
    methods: tuple[str, ...]
    headers: tuple[str, ...]
    has_credentials: bool
    #: Seconds that a browser need not ask again.
    max_age_s: int

    def admits(self, origin: str, method: str) -> bool:
        """Whether a page of this origin may do what other foreign pages may not."""
        return origin in self.origins and ("GET" if method == "HEAD" else method) in self.methods


def cors_rules(
    origins: Sequence[str], methods: Sequence[str], headers: Sequence[str], *, has_credentials: bool, max_age_s: int
) -> CorsRules:
    """From the settings; raises CorsError."""
    is_any = ANY_ORIGIN in origins
    if is_any and has_credentials:
        raise CorsError(
            f"{CREDENTIALS_KEY}=true with {ORIGINS_KEY}=*: every page would have its visitor's credentials; "
            "list the origins that are meant"
        )
    for key, names in ((METHODS_KEY, methods), (HEADERS_KEY, headers)):
        for name in names:
            if name == "*" or _TOKEN.fullmatch(name) is None:
                raise CorsError(f"{key} has {name!r}; expected names, one by one")
    return CorsRules(
        frozenset(_checked(origin) for origin in origins if origin != ANY_ORIGIN),
        is_any,
        tuple(name.upper() for name in methods),
        tuple(headers),
        has_credentials,
        max_age_s,
    )


def _checked(origin: str) -> str:
    """As a browser writes it: without the scheme's own port, in lower case."""
    try:
        parts = urlsplit(origin.lower())
        port, host = parts.port, parts.hostname
    except ValueError:
        parts, port, host = None, None, None
    if parts is None or parts.scheme not in _SCHEMES or not host or parts.netloc.rpartition("@")[1]:
        raise _wrong(origin)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise _wrong(origin)
    shown = f"[{host}]" if ":" in host else host
    is_usual = port is None or port == {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{shown}" if is_usual else f"{parts.scheme}://{shown}:{port}"


def _wrong(origin: str) -> CorsError:
    return CorsError(f"{ORIGINS_KEY} has {origin!r}; expected origins such as https://console.example:8443, or *")


def answer_headers(rules: CorsRules, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """What is added to every answer."""
    origin = _only(headers, b"origin")
    # Caches must not show one origin what was answered to another.
    vary: Headers = [(b"vary", b"Origin")] if rules.origins else []
    if origin in rules.origins:
        found: Headers = [(b"access-control-allow-origin", origin.encode())]
        if rules.has_credentials:
            found.append((b"access-control-allow-credentials", b"true"))
    elif rules.is_any and origin:
        found = [(b"access-control-allow-origin", b"*")]
    else:
        return vary
    return [*found, (b"access-control-expose-headers", EXPOSED.encode()), *vary]


def preflight_headers(rules: CorsRules, method: str, headers: Sequence[tuple[bytes, bytes]]) -> Headers | None:
    """What a preflight is answered beside :func:`answer_headers`; None: the request is none, or of no page that may
    anything."""
    if method != "OPTIONS" or not _only(headers, b"access-control-request-method"):
        return None
    origin = _only(headers, b"origin")
    is_listed = origin in rules.origins
    if not is_listed and not (rules.is_any and origin):
        return None
    found: Headers = [
        (b"access-control-allow-methods", ", ".join(rules.methods).encode()),
        (b"access-control-allow-headers", ", ".join(rules.headers).encode()),
        (b"access-control-max-age", str(rules.max_age_s).encode()),
    ]
    if is_listed and _only(headers, b"access-control-request-private-network") == "true":
        found.append((b"access-control-allow-private-network", b"true"))
    return found


def _only(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    """Of a header that comes once; empty where it does not."""
    values = [value.decode("latin-1").strip() for key, value in headers if key == name]
    return values[0] if len(values) == 1 else ""
