"""The groups of bookies that a ledger keeps to: Pulsar's ``EnsemblePlacementPolicyConfig``, JSON in custom metadata.

::

    {"policyClass": "...IsolatedBookieEnsemblePlacementPolicy",
     "properties": {"isolationBookieGroups": "a,b", "secondaryIsolationBookieGroups": "c"}}

It goes with the ledger, so that whoever finds another bookie for it keeps to the groups too.
docs/formats/ledger-metadata.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.wire.bookkeeper.ledger_metadata import META_PLACEMENT

#: A group that all bookies are in, as Pulsar's broker names it for its own topics.
ALL_BOOKIES: Final = "*"
_POLICY_CLASS: Final = "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"
_PRIMARY: Final = "isolationBookieGroups"
_SECONDARY: Final = "secondaryIsolationBookieGroups"


class IsolationGroups(NamedTuple):
    """Bookies of ``primary`` are taken, of ``secondary`` too if they are too few; no primary: those in no group."""

    primary: tuple[str, ...] = ()
    secondary: tuple[str, ...] = ()


#: Any bookie.
EVERYWHERE: Final = IsolationGroups((ALL_BOOKIES,), (ALL_BOOKIES,))
#: Bookies that are in no group.
IN_NO_GROUP: Final = IsolationGroups()


def group_names(text: str) -> tuple[str, ...]:
    """Names between commas, as they are."""
    return tuple(name for name in text.split(",") if name)


def encode_isolation(groups: IsolationGroups) -> bytes:
    """The value at :data:`META_PLACEMENT`."""
    properties = {_PRIMARY: ",".join(groups.primary), _SECONDARY: ",".join(groups.secondary)}
    return json.dumps({"policyClass": _POLICY_CLASS, "properties": properties}, ensure_ascii=False).encode()


def isolation_in(custom_metadata: Mapping[str, bytes]) -> IsolationGroups | None:
    """What a ledger's custom metadata say; None: nothing, or nothing of this kind, as Pulsar takes it."""
    value = custom_metadata.get(META_PLACEMENT)
    if value is None:
        return None
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("policyClass") != _POLICY_CLASS:
        return None
    properties = document.get("properties")
    if not isinstance(properties, dict):
        return None
    return IsolationGroups(_names(properties.get(_PRIMARY)), _names(properties.get(_SECONDARY)))


def _names(value: object) -> tuple[str, ...]:
    """Pulsar takes a list for its members with commas between them."""
    if isinstance(value, list):
        return tuple(name for item in value for name in group_names(str(item)))
    return group_names(value) if isinstance(value, str) else ()
