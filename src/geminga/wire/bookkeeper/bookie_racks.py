"""Racks and groups of bookies: Pulsar's ``BookiesRackConfiguration``, JSON in one metadata node.

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


class BookieRack(NamedTuple):
    """The rack and the groups of one bookie."""

    #: Such as ``/rack`` or ``/region/rack``; empty: none is given.
    rack: str = ""
    groups: frozenset[str] = frozenset()


#: ``{group: {bookie id: its document}}``
Racks = Mapping[str, Mapping[str, object]]


def decode_racks(value: bytes, place: str = RACKS_PATH) -> Racks:
    """The document as it is; raises CorruptionError that names ``place``."""
    try:
        document = json.loads(value) if value.strip() else {}
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"{place} is no JSON: {error}") from error
    groups = _object(document, place)
    return {group: _object(bookies, f"{place}, group {group}") for group, bookies in groups.items()}


def encode_racks(racks: Racks) -> bytes:
    """As Pulsar writes it: groups, and bookies of a group, in order."""
    ordered = {group: dict(sorted(bookies.items())) for group, bookies in sorted(racks.items())}
    return json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()


def document_of(racks: Racks, bookie_id: str) -> object | None:
    """A bookie's document in the first group that has it; None: no group has it."""
    return next((racks[group][bookie_id] for group in sorted(racks) if racks[group].get(bookie_id) is not None), None)


def without_bookie(racks: Racks, bookie_id: str) -> Racks | None:
    """Without it in the first group that has it, which goes with its last bookie; None: no group has it."""
    group = next((name for name in sorted(racks) if racks[name].get(bookie_id) is not None), None)
    if group is None:
        return None
    left = {name: document for name, document in racks[group].items() if name != bookie_id}
    return {name: left if name == group else document for name, document in racks.items() if name != group or left}


def with_bookie(racks: Racks, group: str, bookie_id: str, document: Mapping[str, object]) -> Racks:
    """With it in ``group``, and not in the first one that had it any more, as in Pulsar."""
    others = without_bookie(racks, bookie_id)
    if others is None:
        others = racks
    return {**others, group: {**others.get(group, {}), bookie_id: document}}


def decode_bookie_racks(value: bytes, place: str = RACKS_PATH) -> Mapping[str, BookieRack]:
    """Racks by bookie id; raises CorruptionError that names ``place``."""
    found: dict[str, BookieRack] = {}
    for group, bookies in sorted(decode_racks(value, place).items()):
        for bookie_id, document in bookies.items():
            rack = _rack(_object(document, f"{place}, bookie {bookie_id}").get("rack"), f"{place}, bookie {bookie_id}")
            known = found.get(bookie_id, BookieRack())
            found[bookie_id] = BookieRack(known.rack or rack, known.groups | {group})
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
