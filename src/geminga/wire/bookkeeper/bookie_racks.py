"""Where bookies stand: Pulsar's ``BookiesRackConfiguration``, JSON in one metadata node.

::

    {"GROUP": {"BOOKIE ID": {"rack": "/region/rack", "hostname": "..."}}}

docs/formats/bookie-racks.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.model.errors import CorruptionError

RACKS_PATH: Final = "/bookies"


class BookiePlace(NamedTuple):
    """What is told of one bookie."""

    #: Such as ``/rack`` or ``/region/rack``; empty: none is told.
    rack: str = ""
    groups: frozenset[str] = frozenset()


def decode_bookie_racks(value: bytes, place: str = RACKS_PATH) -> Mapping[str, BookiePlace]:
    """Places by bookie id; raises CorruptionError that names ``place``."""
    try:
        document = json.loads(value) if value.strip() else {}
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"{place} is no JSON: {error}") from error
    found: dict[str, BookiePlace] = {}
    for group, bookies in sorted(_object(document, place).items()):
        for bookie_id, told in _object(bookies, f"{place}, group {group}").items():
            rack = _rack(_object(told, f"{place}, bookie {bookie_id}").get("rack"), f"{place}, bookie {bookie_id}")
            known = found.get(bookie_id, BookiePlace())
            found[bookie_id] = BookiePlace(known.rack or rack, known.groups | {group})
    return found


def _object(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise CorruptionError(f"{place}: expected a JSON object, found {str(value)[:40]!r}")
    return value


def _rack(value: object, place: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise CorruptionError(f"{place}: expected a rack as text, found {str(value)[:40]!r}")
    parts = [part for part in value.strip().split("/") if part]
    return "".join(f"/{part}" for part in parts)
