"""Where BookKeeper keeps a ledger's metadata: HierarchicalLedgerManager's paths.

Ids below 2^31 - 1 take ten digits split 2-4-4 (``/ledgers/00/0000/L0001``), larger ones nineteen digits split
3-4-4-4-4 (``/ledgers/000/0000/0214/7483/L0000``). So no node has more than 10,000 children.
"""

from __future__ import annotations

import re
from typing import Final

#: BookKeeper's ``zkLedgersRootPath``.
LEDGERS_ROOT: Final = "/ledgers"
#: BookKeeper notes there how the ledgers' nodes are laid out.
LAYOUT_PATH: Final = f"{LEDGERS_ROOT}/LAYOUT"
#: These ones: format of the note, class and version of BookKeeper's that knows the layout.
HIERARCHICAL_LAYOUT: Final = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
#: Whose ledgers lie at :func:`ledger_path`: class names without package, and the type of a note of format 1.
_KNOWN_LAYOUTS: Final = frozenset(
    (
        b"HierarchicalLedgerManagerFactory",
        b"LegacyHierarchicalLedgerManagerFactory",
        b"PulsarLedgerManagerFactory",
        b"hierarchical",
    )
)
#: BookKeeper keeps short paths below this id (Java's Integer.MAX_VALUE).
SHORT_ID_LIMIT: Final = (1 << 31) - 1

#: Levels between the root and the leaf: a two-digit first level has one more below it, a three-digit one three.
_TOP_LEVEL: Final = re.compile(r"^\d{2,3}$")
_LEAF: Final = re.compile(r"^L\d{4}$")
_SHORT: Final = re.compile(r"^(\d{2})/(\d{4})/L(\d{4})$")
_LONG: Final = re.compile(r"^(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})$")


def ledger_path(ledger_id: int, root: str = LEDGERS_ROOT) -> str:
    """The metadata path of a ledger; the id is in [0, 2^63). Raises ValueError."""
    if not 0 <= ledger_id < 1 << 63:
        raise ValueError(f"ledger id {ledger_id} is not in [0, 2^63)")
    if ledger_id < SHORT_ID_LIMIT:
        digits = f"{ledger_id:010d}"
        return f"{root}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"{root}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def is_known_layout(note: bytes) -> bool:
    """Whether a cluster with this note at :data:`LAYOUT_PATH` keeps its ledgers at :func:`ledger_path`."""
    _, _, layout = note.strip().partition(b"\n")
    return layout.partition(b":")[0].rpartition(b".")[2] in _KNOWN_LAYOUTS


def ledger_id_of_path(path: str, root: str = LEDGERS_ROOT) -> int | None:
    """The id a metadata path belongs to, or None if it is not a ledger's path."""
    if not path.startswith(root + "/"):
        return None
    relative = path[len(root) + 1 :]
    match = _SHORT.match(relative) or _LONG.match(relative)
    return None if match is None else int("".join(match.groups()))


def depth_below(top_level: str) -> int | None:
    """How many levels lie below a first-level node (2 or 4), or None if it is no ledgers' parent (``idgen``, ...)."""
    if _TOP_LEVEL.match(top_level) is None:
        return None
    return 2 if len(top_level) == 2 else 4


def is_ledger_leaf(name: str) -> bool:
    """Whether a last-level name is a ledger's (``L0001``)."""
    return _LEAF.match(name) is not None
