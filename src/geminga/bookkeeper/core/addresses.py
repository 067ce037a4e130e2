"""Where a bookie is, by its id or by a list. Pure.

An id is ``HOST:PORT`` unless its bookie was given a name (``bookieId``); then only its registration tells where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.model.errors import ConfigurationError
from geminga.wire.bookkeeper.bookie_registration import LOCAL_PREFIX

_PORT_MAX: Final = 65535


class BookieAddress(NamedTuple):
    """Host and port of a bookie; or ``unix:/path`` and no port, of one on this machine."""

    host: str
    port: int

    @property
    def local_path(self) -> str | None:
        """Of the Unix socket that it is; None: it is a host's."""
        return self.host.removeprefix(LOCAL_PREFIX) if self.host.startswith(LOCAL_PREFIX) else None

    def __str__(self) -> str:
        """As people are told."""
        return self.host if self.local_path is not None else f"{self.host}:{self.port}"


def address_of_id(bookie_id: str) -> BookieAddress | None:
    """The address that an id is; None if it is a name."""
    host, _, port = bookie_id.rpartition(":")
    if not host or ":" in host or not (port.isascii() and port.isdigit()) or not 0 < int(port[:9]) <= _PORT_MAX:
        return None
    return BookieAddress(host, int(port))


def parse_bookie_list(text: str) -> Mapping[str, BookieAddress]:
    """``ID`` or ``ID=HOST:PORT`` each, comma separated, by id; raises ConfigurationError.

    An id that is an address needs no other one.
    """
    found: dict[str, BookieAddress] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        bookie_id, separator, place = item.partition("=")
        address = address_of_id(place if separator else bookie_id)
        if not bookie_id or address is None:
            raise ConfigurationError(f"bookie {item}: expected host:port, or id=host:port")
        if found.setdefault(bookie_id, address) != address:
            raise ConfigurationError(f"bookie {item}: {bookie_id} has two addresses")
    return found
