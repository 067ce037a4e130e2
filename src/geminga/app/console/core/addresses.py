"""Addresses below ``/console``: made for links, taken apart for pages.

Names of topics, namespaces and subscriptions stand in the query, never in the path: browsers and proxies rewrite paths
(``..``, ``%2F``), and a query they leave as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

#: Where the console is mounted.
ROOT: Final = "/console"
#: Bytes and fields of a query or a form; what has more is refused.
FORM_BYTES_MAX: Final = 1 << 20
FIELDS_MAX: Final = 200


class TooMuchError(ValueError):
    """A query or a form is larger than any that the console makes."""


def address(path: str, **query: object) -> str:
    """``/console`` + ``path`` with a query; what is None or empty is left out."""
    asked = urlencode({name: str(value) for name, value in query.items() if value not in (None, "")})
    return f"{ROOT}{path}{'?' + asked if asked else ''}"


def fields_of(text: bytes) -> dict[str, str]:
    """Fields of a query or a form, the first of each name; what is no UTF-8 has replacement characters.

    Raises TooMuchError.
    """
    if len(text) > FORM_BYTES_MAX:
        raise TooMuchError(f"a form or an address has at most {FORM_BYTES_MAX:,} bytes; this one has {len(text):,}")
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise TooMuchError(f"a form or an address has at most {FIELDS_MAX} fields") from None
    for name, value in pairs:
        found.setdefault(name, value.replace("\r\n", "\n"))
    return found


def matched(template: str, path: str) -> dict[str, str] | None:
    """Parameters of ``path`` (percent-encoded, below :data:`ROOT`) by ``/topics/{topic}``; None: another path."""
    expected, given = template.split("/"), path.split("/")
    if len(expected) != len(given):
        return None
    found = {}
    for want, have in zip(expected, given, strict=True):
        if want.startswith("{"):
            if not have:
                return None
            found[want[1:-1]] = unquote(have)
        elif want != have:
            return None
    return found


def is_inside(target: str) -> bool:
    """Whether a visitor may be sent on to ``target``: a page of the console, and nowhere else."""
    return (
        (target == ROOT or target.startswith((f"{ROOT}/", f"{ROOT}?"))) and target.isprintable() and "\\" not in target
    )


def with_fields(target: str, fields: Mapping[str, str]) -> str:
    """``target`` with more in its query."""
    path, _, query = target.partition("?")
    return f"{path}?{'&'.join(filter(None, (query, urlencode(fields, quote_via=quote))))}"
