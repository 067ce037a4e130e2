"""Copying a metadata tree into an empty one, its decisions: where to, and what must be equal in the end. Pure.

docs/formats/metadata-zookeeper.md, Copies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from geminga.model.errors import CorruptionError, DataDirectoryError

#: At the target while a copy is unfinished: nothing may be started there.
MARKER_PATH: Final = "/geminga/copying"
#: At a cluster's store while a backup is restored to it: the same value, but bookies go on (docs/formats/backup.md).
RESTORING_PATH: Final = "/geminga/restoring"
#: ZooKeeper's own, where there is no chroot.
_RESERVED: Final = "zookeeper"
#: Of nodes that are named in an error.
NAMED_MAX: Final = 5


class SourceNode(NamedTuple):
    """A persistent node, with what is persistent below it."""

    path: str
    value: bytes
    #: Counter of the next sequential child.
    next_sequence: int
    #: Names, sorted.
    children: tuple[str, ...]


class Marker(NamedTuple):
    """Whose unfinished copy it is."""

    copy_id: str
    #: The source, for people.
    source: str

    def encode(self) -> bytes:
        """The node's value."""
        return json.dumps({"id": self.copy_id, "from": self.source}).encode()


class Summary(NamedTuple):
    """What a tree holds."""

    nodes: int
    value_bytes: int
    #: SHA-256 over all paths and values, hex.
    digest: str


class TreeDigest:
    """Of nodes in the order of their parents' paths and their names."""

    __slots__ = ("_hash", "_nodes", "_value_bytes")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._nodes = 0
        self._value_bytes = 0

    def add(self, path: str, value: bytes) -> None:
        """The next node."""
        name = path.encode()
        for part in (name, value):
            self._hash.update(len(part).to_bytes(8, "big"))
            self._hash.update(part)
        self._nodes += 1
        self._value_bytes += len(value)

    def summary(self) -> Summary:
        """Of what was added."""
        return Summary(self._nodes, self._value_bytes, self._hash.hexdigest())


def decode_marker(value: bytes, place: str, path: str = MARKER_PATH) -> Marker:
    """The inverse of ``Marker.encode``, of the node ``path``. Raises CorruptionError."""
    try:
        document = json.loads(value)
        return Marker(str(document["id"]), str(document["from"]))
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptionError(f"{place}{path} is no marker of a copy: {value[:40]!r}") from error


def begins_anew(names: Sequence[str], marker: Marker | None, copy_id: str, target: str) -> bool:
    """Whether the target is empty; False: it holds what an earlier attempt of the same copy wrote.

    ``names``: what is below its root. Raises DataDirectoryError if it holds anything else.
    """
    if marker is not None:
        if marker.copy_id == copy_id:
            return False
        raise DataDirectoryError(
            f"{target} holds an unfinished copy of {marker.source}, made by another start of it or of another "
            "directory: name an empty or a new path behind the port (zk:HOST:PORT/PATH), or remove what is there"
        )
    found = sorted(set(names) - {_RESERVED})
    if found:
        shown = ", ".join(f"/{name}" for name in found[:NAMED_MAX])
        more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
        raise DataDirectoryError(
            f"{target} is not empty: it holds {shown}{more}. Nothing was changed there; name an empty or a new path "
            "behind the port (zk:HOST:PORT/PATH)"
        )
    return True


def is_of_target(path: str, added: Sequence[str]) -> bool:
    """Whether a node that the source has not may be at the target: ``added``, with all above and below, and its own."""
    return any(
        path == one or path.startswith(f"{one}/") or one.startswith(f"{path}/")
        for one in (MARKER_PATH, f"/{_RESERVED}", *added)
    )


def several(stories: Sequence[str]) -> str:
    """Some of them, and how many more there are."""
    more = f"; and {len(stories) - NAMED_MAX} more" if len(stories) > NAMED_MAX else ""
    return "; ".join(stories[:NAMED_MAX]) + more
