"""Ledgers that belong to a log and are not in its list: what was compacted of it. Pure.

Their ids are a text property of the managed ledger, so that one write says of a ledger that it is somebody's, before
anything else names it: what no list names is deleted as left behind by a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from geminga.model.errors import CorruptionError

#: Property of a managed ledger: ids in decimal, ascending, with commas between them; no property: none.
ATTACHED_PROPERTY: Final = "geminga.attached-ledgers"
#: Property of a managed ledger: the attached ledger that is served, and up to where the log was compacted into it.
COMPACTED_PROPERTY: Final = "geminga.compacted"


def attached_ids(properties: Mapping[str, str]) -> tuple[int, ...]:
    """The ids that a managed ledger's properties name. Raises CorruptionError for a text that is no list of ids."""
    text = properties.get(ATTACHED_PROPERTY, "")
    if not text:
        return ()
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise CorruptionError(f"{ATTACHED_PROPERTY} is {text!r}: ledger ids with commas between them were expected")
    return tuple(int(part) for part in parts)


def attached_text(ledger_ids: Iterable[int]) -> str:
    """The property's value; empty: none."""
    return ",".join(str(ledger_id) for ledger_id in sorted(set(ledger_ids)))
