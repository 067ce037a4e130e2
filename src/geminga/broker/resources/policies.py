"""The policies of a namespace: Pulsar's JSON document.

The document is kept whole, so that fields this version does not know survive a change. Field names are those of
Pulsar's ``Policies`` and are the interface; an absent field means "not set here: the broker's own setting holds". What
a field means is said by ``policies.rows``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from string import hexdigits
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.broker.core.coercion import BodyError
from geminga.broker.policies.core.rows import ROWS
from geminga.broker.resources.documents import Document, Json
from geminga.model.errors import PreconditionFailedError

if TYPE_CHECKING:
    from geminga.wire.bookkeeper.isolation import IsolationGroups

#: Hash range of a namespace: bundles partition [FIRST, LAST].
FIRST_BOUNDARY: Final = "0x00000000"
LAST_BOUNDARY: Final = "0xffffffff"
#: Pulsar's defaultNumberOfNamespaceBundles.
BUNDLES_DEFAULT: Final = 4
#: More bundles than hash values of the top byte make no sense; Pulsar's namespaceBundle limit is 128.
BUNDLES_MAX: Final = 128
_LEVELS: Final = tuple(row.namespace for row in ROWS if row.namespace is not None)


class Policies(NamedTuple):
    """A namespace's policies as stored, with the version of their metadata node."""

    document: Mapping[str, Json]
    version: int = -1
    #: Of the namespace's local policies; None: it keeps to no bookies.
    bookies: IsolationGroups | None = None
    #: When the node was made, ms since the epoch: a later namespace of the same name has another.
    created_ms: int = 0

    @property
    def replication_clusters(self) -> tuple[str, ...]:
        """Clusters this namespace lives in."""
        return _strings(self.document.get("replication_clusters"))

    @property
    def allowed_clusters(self) -> tuple[str, ...]:
        """Clusters it may live in, those that it lives in included; empty: nobody said."""
        return _strings(self.document.get("allowed_clusters"))

    def lives_in(self, cluster: str) -> bool:
        """Whether the namespace has topics in ``cluster``; one that names no cluster is everywhere."""
        clusters = self.replication_clusters
        return not clusters or cluster in clusters or cluster in self.allowed_clusters

    @property
    def bundle_boundaries(self) -> tuple[str, ...]:
        """Hash boundaries as hex words, ascending, first and last included."""
        bundles = self.document.get("bundles")
        found = _strings(bundles.get("boundaries")) if isinstance(bundles, dict) else ()
        return found or (FIRST_BOUNDARY, LAST_BOUNDARY)

    @property
    def is_deleted(self) -> bool:
        """Whether the namespace is being deleted: nothing may be created in it any more."""
        return self.document.get("deleted") is True


def bundle_boundaries(count: int) -> list[str]:
    """``count`` equal bundles: ``count + 1`` boundaries as eight hex digits. Raises outside 1..128."""
    if not 1 <= count <= BUNDLES_MAX:
        raise PreconditionFailedError(f"a namespace has 1 to {BUNDLES_MAX} bundles, not {count}")
    size = (1 << 32) // count
    return [f"0x{index * size:08x}" for index in range(count)] + [LAST_BOUNDARY]


def new_policies(replication_clusters: Sequence[str], bundles: int = BUNDLES_DEFAULT) -> Document:
    """What a namespace created without a body holds."""
    boundaries: list[Json] = list(bundle_boundaries(bundles))
    whole: Document = {level.key: copy.deepcopy(level.new) for level in _LEVELS if level.new is not None}
    return {
        **whole,
        "replication_clusters": list(replication_clusters),
        "bundles": {"boundaries": boundaries, "numBundles": bundles},
    }


def completed(document: Mapping[str, Json], replication_clusters: Sequence[str]) -> Document:
    """A body given at creation, with what it leaves out filled in; raises where a value makes no sense."""
    bundles = document.get("bundles")
    count, given = BUNDLES_DEFAULT, list[int]()
    if isinstance(bundles, dict):
        given = [_boundary_value(text) for text in _strings(bundles.get("boundaries"))]
        if given and (min(given) != int(FIRST_BOUNDARY, 16) or max(given) != int(LAST_BOUNDARY, 16)):
            # No broker of several could say in which bundle a topic lies.
            raise BodyError(
                "Input bundles do not cover the whole hash range. "
                f"first:{_boundary_text(min(given))}, last:{_boundary_text(max(given))}"
            )
        number = _number(bundles.get("numBundles"))
        count = number or (len(given) - 1 if len(given) > 1 else BUNDLES_DEFAULT)
        if given and (len(given) != count + 1 or given != sorted(set(given))):
            raise PreconditionFailedError(
                f"{count} bundles need {count + 1} ascending boundaries, not {bundles['boundaries']}"
            )
    whole = new_policies(replication_clusters, count)
    whole.update({key: value for key, value in document.items() if value is not None and key != "bundles"})
    if given:
        whole["bundles"] = {"boundaries": [_boundary_text(boundary) for boundary in given], "numBundles": count}
    if not whole.get("replication_clusters"):
        whole["replication_clusters"] = list(replication_clusters)
    return whole


def _boundary_value(text: str) -> int:
    digits = text[2:] if text[:2] in ("0x", "0X") else ""
    if not 1 <= len(digits) <= 8 or not all(digit in hexdigits for digit in digits):
        raise PreconditionFailedError(f"bundle boundary {text!r}: expected hex digits such as 0x40000000")
    return int(digits, 16)


def _boundary_text(boundary: int) -> str:
    return f"0x{boundary:08x}"


def _strings(value: Json) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _number(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
