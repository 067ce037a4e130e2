"""Whom a balancer says that a request came from: ``X-Forwarded-For``, read where it is trusted.

Of several addresses, each of them added by who passed it on, the first is the client's, as Pulsar's web server takes
it. A balancer that adds its own behind what the client wrote lets clients choose: it must replace the header.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

PORT_MAX: Final = 65_535


def forwarded_for(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, int] | None:
    """Address and port (0: it has none) of the first one; None: the header is not there, or names none.

    ``headers`` in the order in which they came, names in lower case.
    """
    for name, value in headers:
        if name == b"x-forwarded-for":
            return _address_of(value.decode("latin-1").partition(",")[0].strip().strip('"'))
    return None


def _address_of(text: str) -> tuple[str, int] | None:
    """Of ``1.2.3.4``, ``1.2.3.4:5``, ``::1``, ``[::1]`` or ``[::1]:5``."""
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
        if rest and not rest.startswith(":"):
            return None
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    try:
        address = str(ipaddress.ip_address(host))
    except ValueError:
        return None
    if not port:
        return address, 0
    return (address, int(port)) if port.isascii() and port.isdecimal() and int(port[:6]) <= PORT_MAX else None
