"""Who a bookie is and where it lies, by its configuration. Pure.

The id is what ledger metadata name for ever: ``bookieId``, or ``HOST:PORT`` of the address that it advertises, as in
BookKeeper. So a bookie with a port of the kernel's choice has another id at each start, unless ``bookieId`` is set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from geminga.model.errors import ConfigurationError

#: As BookKeeper's, without what its pattern lets in by a slip: in it ``:-_`` is a range of characters.
_BOOKIE_ID: Final = re.compile(r"[A-Za-z0-9:_.\-]+")
#: The child of ``/ledgers/available`` that holds the read-only ones.
READ_ONLY_NAME: Final = "readonly"


class DirectoryPair(NamedTuple):
    """Where a part of a bookie lies: its journal, and the ledgers that belong to it."""

    journal: str
    ledgers: str


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


def directory_pairs(journals: Sequence[str], ledgers: Sequence[str]) -> tuple[DirectoryPair, ...]:
    """As many pairs as there are directories of the kind that there are more of; absolute paths, none empty.

    A directory that serves several pairs has one below it for each, named by the pair's number from 1 on: the pairs
    share nothing. Raises ConfigurationError where two would be the same.
    """
    count = max(len(journals), len(ledgers))
    pairs = tuple(
        DirectoryPair(_of_pair(number, journals, count), _of_pair(number, ledgers, count)) for number in range(count)
    )
    places = [*dict.fromkeys(journals), *dict.fromkeys(ledgers)]
    used = [path for pair in pairs for path in pair]
    if len(set(journals)) < len(journals) or len(set(places)) < len(places) or len(set(used)) < len(used):
        raise ConfigurationError(
            f"journalDirectories={','.join(journals)} and ledgerDirectories={','.join(ledgers)}: expected each "
            "directory once, and those of journals apart from those of ledgers"
        )
    return pairs


def _of_pair(number: int, paths: Sequence[str], count: int) -> str:
    path = paths[number % len(paths)]
    return path if len(paths) == count else f"{path}/{number + 1}"
