"""Who a bookie is and where it lies, by its configuration. Pure.

The id is what ledger metadata name for ever: ``bookieId``, or ``HOST:PORT`` of the address that it advertises, as in
BookKeeper. So a bookie with a port of the kernel's choice has another id at each start, unless ``bookieId`` is set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from geminga.model.errors import ConfigurationError

#: As BookKeeper's, without what its pattern lets in by a slip: in it ``:-_`` is a range of characters.
_BOOKIE_ID: Final = re.compile(r"[A-Za-z0-9:_.\-]+")
#: The child of ``/ledgers/available`` that holds the read-only ones.
READ_ONLY_NAME: Final = "readonly"


def check_bookie_id(key: str, text: str) -> str:
    """``text`` if it can be a bookie's id; raises ConfigurationError that names ``key``."""
    if not _BOOKIE_ID.fullmatch(text) or text.lower() == READ_ONLY_NAME:
        raise ConfigurationError(
            f"{key}={text}: expected letters, digits and :._- (host:port, or a name that stays the same), not readonly"
        )
    return text


def advertised_host(advertised_address: str, bind_address: str, host_name: str, *, is_wildcard: bool) -> str:
    """The host that clients are told: as configured, or where it listens, or this machine's name for a wildcard."""
    return advertised_address or (host_name if is_wildcard else bind_address)


def bookie_id(configured: str, host: str, port: int) -> str:
    """Its id. Raises ConfigurationError where neither ``bookieId`` nor the address can be one."""
    if configured:
        return check_bookie_id("bookieId", configured)
    if ":" in host:
        raise ConfigurationError(f"advertisedAddress={host}: an IPv6 address makes no bookie id; set bookieId")
    return check_bookie_id("advertisedAddress", f"{host}:{port}")


def one_directory(key: str, paths: Sequence[str], instead: str) -> str:
    """The only one of ``paths``, ``instead`` if there is none; raises ConfigurationError for several."""
    if len(paths) > 1:
        raise ConfigurationError(
            f"{key}={','.join(paths)}: several directories of a kind are not built, expected one path"
        )
    return paths[0] if paths else instead
