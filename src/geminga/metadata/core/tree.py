"""The metadata tree: versioned nodes, children, sequential counters, ephemeral nodes, sessions. Pure.

What ZooKeeper promises and no more (see ``metadata.ports``). Each change returns the notifications it causes;
time is passed in. The tree is the whole state of the memory store and the oracle of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from geminga.metadata.ports import SEQUENCES_MAX, ChangeKind, Node, Notification, PutResult, Stat
from geminga.model.errors import (
    BadVersionError,
    MetadataError,
    NodeNotEmptyError,
    NoSuchNodeError,
    RefusedPathError,
    SessionExpiredError,
    invariant,
)
from geminga.model.limits import METADATA_VALUE_BYTES_MAX

#: Session id of persistent nodes.
NO_SESSION: Final = 0
#: Digits of a sequential node's counter, as ZooKeeper.
SEQUENCE_DIGITS: Final = 10


#: Shared by all leaves: most nodes are leaves, and an empty set of its own is larger than the rest of a node.
_NO_CHILDREN: Final[frozenset[str]] = frozenset()


class _TreeNode:
    """A node; ``children`` and ``next_sequence`` are those below it."""

    __slots__ = ("children", "created_ms", "modified_ms", "next_sequence", "session", "value", "version")

    def __init__(self, value: bytes, session: int, now_ms: int) -> None:
        self.value = value
        self.version = 0
        self.created_ms = now_ms
        self.modified_ms = now_ms
        #: The session whose end removes the node, NO_SESSION for a persistent one.
        self.session = session
        self.children: set[str] | frozenset[str] = _NO_CHILDREN
        self.next_sequence = 0


class PutOutcome(NamedTuple):
    """What a put did, and who must hear of it."""

    result: PutResult
    notifications: list[Notification]


def check_path(path: str) -> None:
    """Raise MetadataError unless ``path`` is ``/`` or ``/a/b`` without empty elements, and can be written as UTF-8."""
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        raise MetadataError(f"not a metadata path: {path!r}; expected '/a/b'")
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError:
            raise RefusedPathError(f"not a metadata path: {path[:80]!r} is no text of Unicode") from None


def check_value(path: str, value: bytes) -> None:
    """Raise MetadataError if the value is larger than any backend can keep."""
    if len(value) > METADATA_VALUE_BYTES_MAX:
        raise MetadataError(f"{path}: value of {len(value)} bytes, at most {METADATA_VALUE_BYTES_MAX} are kept")


def check_count(path: str, count: int) -> None:
    """Raise MetadataError for a number of counters that no request takes."""
    if not 1 <= count <= SEQUENCES_MAX:
        raise MetadataError(f"{path}: {count} counters asked for, 1 to {SEQUENCES_MAX} are taken at once")


def split_path(path: str) -> tuple[str, str]:
    """(path of the parent, name); the root is its own parent without a name."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def sequential_path(path: str, sequence: int) -> str:
    """The path of a sequential node, as ZooKeeper: the counter in ten digits behind the given path."""
    return f"{path}{sequence:0{SEQUENCE_DIGITS}d}"


def check_expected_version(path: str, expected_version: int | None, version: int | None) -> None:
    """Raise BadVersionError unless a node of ``version`` (None: no node) is what the put expects."""
    found = -1 if version is None else version
    if expected_version is not None and expected_version != found:
        has = "does not exist" if version is None else f"has version {version}"
        wanted = "must not exist" if expected_version < 0 else f"expected version {expected_version}"
        raise BadVersionError(f"{path} {has}, {wanted}")


class MetadataTree:
    """All nodes by path, and the sessions that are alive."""

    __slots__ = ("_next_session", "_nodes", "_sessions")

    def __init__(self) -> None:
        self._nodes: dict[str, _TreeNode] = {"/": _TreeNode(b"", NO_SESSION, 0)}
        self._sessions: set[int] = set()
        self._next_session = 1

    # ---- sessions

    def open_session(self) -> int:
        """A new session's id."""
        session = self._next_session
        self._next_session += 1
        self._sessions.add(session)
        return session

    def end_session(self, session: int, now_ms: int) -> list[Notification]:
        """Close or expire a session: its ephemeral nodes vanish."""
        self._sessions.discard(session)
        gone = sorted(path for path, node in self._nodes.items() if node.session == session)
        notifications: list[Notification] = []
        for path in gone:
            notifications += self._remove(path)
        return notifications

    def is_alive(self, session: int) -> bool:
        """Whether the session may still read and write."""
        return session in self._sessions

    # ---- reads

    def get(self, path: str, *, session: int = NO_SESSION) -> Node | None:
        """The node as ``session`` sees it, or None."""
        node = self._nodes.get(path)
        return None if node is None else Node(node.value, _stat(node, session))

    def exists(self, path: str) -> bool:
        """Whether the node exists."""
        return path in self._nodes

    def children(self, path: str) -> list[str]:
        """Names of the direct children, sorted."""
        node = self._nodes.get(path)
        return [] if node is None else sorted(node.children)

    def next_sequence(self, path: str) -> int:
        """The counter of the next sequential child; 0 if there is no such node."""
        node = self._nodes.get(path)
        return 0 if node is None else node.next_sequence

    # ---- writes

    def put(
        self,
        path: str,
        value: bytes,
        *,
        expected_version: int | None,
        session: int,
        now_ms: int,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> PutOutcome:
        """See ``MetadataStore.put``; missing parents are created."""
        check_path(path)
        check_value(path, value)
        self._check_session(session)
        notifications: list[Notification] = []
        if sequential:
            parent = self._make_parents(path, now_ms, notifications)
            path = sequential_path(path, parent.next_sequence)
            parent.next_sequence += 1
            if path in self._nodes:
                raise BadVersionError(f"{path} exists already")
        node = self._nodes.get(path)
        if not sequential:
            check_expected_version(path, expected_version, None if node is None else node.version)
        if node is None:
            parent = self._make_parents(path, now_ms, notifications)
            node = _TreeNode(value, session if ephemeral else NO_SESSION, now_ms)
            self._add(path, node, parent, notifications)
        else:
            node.value = value
            node.version += 1
            node.modified_ms = now_ms
            notifications.append(Notification(ChangeKind.MODIFIED, path))
        return PutOutcome(PutResult(path, _stat(node, session)), notifications)

    def take_sequences(
        self, path: str, count: int, *, session: int, now_ms: int
    ) -> tuple[Sequence[int], list[Notification]]:
        """See ``MetadataStore.take_sequences``."""
        check_path(path)
        check_count(path, count)
        self._check_session(session)
        notifications: list[Notification] = []
        parent = self._make_parents(f"{path}/", now_ms, notifications)
        first = parent.next_sequence
        parent.next_sequence += count
        return range(first, first + count), notifications

    def delete(self, path: str, *, expected_version: int | None, session: int) -> list[Notification]:
        """See ``MetadataStore.delete``."""
        check_path(path)
        self._check_session(session)
        node = self._nodes.get(path)
        if node is None or path == "/":
            raise NoSuchNodeError(f"{path} does not exist")
        check_expected_version(path, expected_version, node.version)
        if node.children:
            raise NodeNotEmptyError(f"{path} has {len(node.children)} children")
        return self._remove(path)

    # ---- inside

    def _check_session(self, session: int) -> None:
        if session not in self._sessions:
            raise SessionExpiredError(f"metadata session {session} is over")

    def _make_parents(self, path: str, now_ms: int, notifications: list[Notification]) -> _TreeNode:
        """The parent of ``path``, created with its own parents if missing; raises if one is ephemeral."""
        missing: list[str] = []
        parent_path, _ = split_path(path)
        while parent_path not in self._nodes:
            missing.append(parent_path)
            parent_path, _ = split_path(parent_path)
        parent = self._nodes[parent_path]
        if parent.session != NO_SESSION:
            raise MetadataError(f"{parent_path} is ephemeral: it can not have children")
        for missing_path in reversed(missing):
            node = _TreeNode(b"", NO_SESSION, now_ms)
            self._add(missing_path, node, parent, notifications)
            parent = node
        return parent

    def _add(self, path: str, node: _TreeNode, parent: _TreeNode, notifications: list[Notification]) -> None:
        parent_path, name = split_path(path)
        invariant(name not in parent.children, f"{path}: in its parent's children but not in the tree")
        self._nodes[path] = node
        if isinstance(parent.children, set):
            parent.children.add(name)
        else:
            parent.children = {name}
        notifications.append(Notification(ChangeKind.CREATED, path))
        notifications.append(Notification(ChangeKind.CHILDREN_CHANGED, parent_path))

    def _remove(self, path: str) -> list[Notification]:
        parent_path, name = split_path(path)
        node = self._nodes.pop(path)
        invariant(not node.children, f"{path}: removed with children {sorted(node.children)[:3]}")
        siblings = self._nodes[parent_path].children
        invariant(isinstance(siblings, set) and name in siblings, f"{path}: unknown to its parent")
        if isinstance(siblings, set):
            siblings.discard(name)
        return [Notification(ChangeKind.DELETED, path), Notification(ChangeKind.CHILDREN_CHANGED, parent_path)]

    def check_invariants(self) -> None:
        """Every node hangs in its parent, every child exists, ephemeral nodes have a live session and no child."""
        for path, node in self._nodes.items():
            if path != "/":
                parent_path, name = split_path(path)
                invariant(parent_path in self._nodes, f"{path}: no parent")
                invariant(name in self._nodes[parent_path].children, f"{path}: unknown to its parent")
            for name in node.children:
                child = f"/{name}" if path == "/" else f"{path}/{name}"
                invariant(child in self._nodes, f"{child}: only in its parent's list")
            if node.session != NO_SESSION:
                invariant(node.session in self._sessions, f"{path}: outlived session {node.session}")
                invariant(not node.children, f"{path}: ephemeral with children")


def _stat(node: _TreeNode, session: int) -> Stat:
    is_ephemeral = node.session != NO_SESSION
    return Stat(node.version, node.created_ms, node.modified_ms, is_ephemeral, is_ephemeral and node.session == session)
