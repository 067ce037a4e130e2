"""What a cluster remembers of a path that it keeps alike with others: one JSON document. Pure.

See docs/formats/configuration-sync.md.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Document, Json
from geminga.broker.synchronization.core.stamps import Stamp, stamp_of

#: The digest of what is not there.
NOTHING: Final = ""


class Before(NamedTuple):
    """A node as it was read, before another cluster's change is made on it."""

    digest: str
    #: -1: there was no node.
    version: int
    created_ms: int


class PathRecord(NamedTuple):
    """See the module."""

    #: Of the change that holds in all clusters, as far as this one knows.
    stamp: Stamp
    #: Of the value that it gave the path; :data:`NOTHING`: it is deleted.
    digest: str
    #: The change before it, which may still come once more.
    replaced: Stamp | None = None
    #: Another cluster's change is being made: what the node was. None: it is made.
    before: Before | None = None
    #: Of the value that the path has here instead, on purpose; None: it has none.
    held: str | None = None
    #: This cluster's own change is being told: its stamp is never that of another value.
    is_untold: bool = False
    #: It was there before the cluster was kept alike with others: it is for where there is nothing.
    is_first: bool = False
    #: A cluster that had another value before both were kept alike; empty: none is known. What is said next ends it.
    differs: str = ""
    #: Who made the change had not seen :attr:`replaced`, which nobody may take for agreed.
    is_unseen: bool = False

    @property
    def seen(self) -> Stamp | None:
        """The change that others are told it replaces; None: none that they could know."""
        return None if self.is_unseen else self.replaced

    def settled(self) -> PathRecord:
        """When the node is as the change says, and others are told."""
        return self._replace(before=None, held=None, is_untold=False)


def encode(record: PathRecord) -> bytes:
    """As it is stored."""
    document: Document = {"stamp": str(record.stamp), "digest": record.digest}
    if record.replaced is not None:
        document["replaced"] = str(record.replaced)
    if record.before is not None:
        document["before"] = list(record.before)
    if record.held is not None:
        document["held"] = record.held
    if record.is_untold:
        document["untold"] = True
    if record.is_first:
        document["first"] = True
    if record.differs:
        document["differs"] = record.differs
    if record.is_unseen:
        document["unseen"] = True
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def decode(value: bytes) -> PathRecord | None:
    """The inverse of :func:`encode`; None for what is no record."""
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    stamp, replaced = _stamp(document.get("stamp")), _stamp(document.get("replaced"))
    digest, held, differs = document.get("digest"), document.get("held"), document.get("differs")
    if stamp is None or not isinstance(digest, str) or not (held is None or isinstance(held, str)):
        return None
    return PathRecord(
        stamp,
        digest,
        replaced,
        _before(document.get("before")),
        held,
        is_untold=document.get("untold") is True,
        is_first=document.get("first") is True,
        differs=differs if isinstance(differs, str) else "",
        is_unseen=document.get("unseen") is True,
    )


def _stamp(text: Json) -> Stamp | None:
    return stamp_of(text) if isinstance(text, str) else None


def _before(found: Json) -> Before | None:
    match found:
        case [str(digest), int(version), int(created_ms)]:
            return Before(digest, version, created_ms)
    return None
