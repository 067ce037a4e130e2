"""Nodes that were read and have not changed since, of a store that hears of every change before anybody is told. Pure.

A client's first question is what is stored of its topic, and mostly nothing is: a way to the thread that reads and
back costs more than all the rest of the question.

Rules: what was read is kept only if nothing changed while it was read; what a change names is forgotten before the
change is answered. Ephemeral nodes are not kept: whose they are differs by session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from geminga.metadata.ports import Node, Notification

#: Nodes kept; who was read first goes first.
KNOWN_NODES_MAX: Final = 1024
#: Longer paths, and nodes with larger values, are read each time: 4.5 MiB are kept at most.
KNOWN_PATH_CHARACTERS_MAX: Final = 512
KNOWN_VALUE_BYTES_MAX: Final = 4096


class KnownNode(NamedTuple):
    """What is known: a node, or that there is none."""

    node: Node | None


class KnownNodes:
    """See the module."""

    __slots__ = ("_limit", "_nodes", "changes")

    def __init__(self, limit: int = KNOWN_NODES_MAX) -> None:
        self._limit = limit
        self._nodes: dict[str, KnownNode] = {}
        #: Counts up with everything that changed: take it before a read, and hand it to :meth:`keep`.
        self.changes = 0

    def find(self, path: str) -> KnownNode | None:
        """None: it has to be read."""
        return self._nodes.get(path)

    def keep(self, path: str, node: Node | None, changes: int) -> None:
        """``node`` was read at ``path``; ``changes``: what they were before that."""
        if changes != self.changes or len(path) > KNOWN_PATH_CHARACTERS_MAX:
            return
        if node is not None and (node.stat.is_ephemeral or len(node.value) > KNOWN_VALUE_BYTES_MAX):
            return
        if path not in self._nodes and len(self._nodes) >= self._limit:
            del self._nodes[next(iter(self._nodes))]
        self._nodes[path] = KnownNode(node)

    def forget(self, notifications: Iterable[Notification]) -> None:
        """What these say has changed."""
        self.changes += 1
        for notification in notifications:
            self._nodes.pop(notification.path, None)

    def forget_all(self) -> None:
        """What has changed is not known."""
        self.changes += 1
        self._nodes.clear()
