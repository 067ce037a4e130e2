"""The metadata store's contract: only what ZooKeeper can keep.

A tree of paths (``/a/b``); each node has bytes (at most 1 MiB) and an int version that starts at 0 and grows
by one with each put. No change spans two nodes. Any write may raise ``UnknownOutcomeError``: it may or may
not have happened. A watch is on the value of one node or on the children of one, never on what is below; it
may come late, twice or never: a reader that must know reads. A session may expire at any time; its ephemeral
nodes vanish then. Missing parents are created (as empty persistent nodes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol, Required, TypedDict, Unpack


class Stat(NamedTuple):
    """What is known of a node beside its value."""

    version: int
    created_ms: int
    modified_ms: int
    is_ephemeral: bool
    #: True if this store's own session created the ephemeral node.
    is_own: bool


class Node(NamedTuple):
    """A node's value and stat."""

    value: bytes
    stat: Stat


class PutResult(NamedTuple):
    """The path written (with the counter of a sequential node) and its new stat."""

    path: str
    stat: Stat


class PutOptions(TypedDict, total=False):
    """How :meth:`MetadataStore.put` writes."""

    #: What the node must have: -1: it must not exist; None: whatever it has.
    expected_version: Required[int | None]
    #: A new node ends with the session.
    ephemeral: bool
    #: Append a ten-digit counter of the parent to the path, and create in any case. The counter never goes back, and
    #: may skip numbers (ZooKeeper's counts every child that was made).
    sequential: bool


class ChangeKind(Enum):
    """What happened to a node."""

    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    CHILDREN_CHANGED = "children_changed"


class Notification(NamedTuple):
    """A watch event; ``path`` is the node whose value or children changed."""

    kind: ChangeKind
    path: str


class SessionEvent(Enum):
    """The session's life as told to listeners."""

    CONNECTION_LOST = "connection_lost"
    RECONNECTED = "reconnected"
    EXPIRED = "expired"


#: ``expected_version`` of a put that must create the node.
MUST_NOT_EXIST = -1
#: Counters that are taken with one request.
SEQUENCES_MAX: Final = 128

Unsubscribe = Callable[[], None]


class MetadataStore(Protocol):
    """See the module's contract."""

    async def get(self, path: str) -> Node | None:
        """The node, or None if it does not exist."""
        ...

    async def exists(self, path: str) -> bool:
        """Whether the node exists."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names (not paths) of the direct children, sorted; empty if there are none or no such node."""
        ...

    async def next_sequence(self, path: str) -> int:
        """The counter that the next sequential child of ``path`` gets; 0 if there is no such node.

        Whoever makes one after this call gets this or a greater one, whoever made one before got a lower one.
        """
        ...

    async def sync(self, path: str = "/") -> None:
        """What is read from now on of ``path`` and below is not older than this call (a server may lag behind).

        Raises MetadataError.
        """
        ...

    async def put(self, path: str, value: bytes, **options: Unpack[PutOptions]) -> PutResult:
        """Write ``path``; raises BadVersionError, UnknownOutcomeError, SessionExpiredError."""
        ...

    async def take_sequences(self, path: str, count: int) -> Sequence[int]:
        """Use up counters of the sequential children of ``path``, 1 to :data:`SEQUENCES_MAX`: ascending, nobody else's.

        As if so many children were made and deleted; ``path`` is made if missing. Raises as :meth:`put`; what is taken
        without an answer is lost.
        """
        ...

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """Delete; raises NoSuchNodeError, BadVersionError, NodeNotEmptyError, UnknownOutcomeError."""
        ...

    def watch_node(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """Hear when the node is made, gets a value or goes; several changes may be told as one.

        Who reads it after this call, and again after each notification, misses nothing that was told.
        """
        ...

    def watch_children(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """Hear when direct children of ``path`` come or go (CHILDREN_CHANGED); else as :meth:`watch_node`."""
        ...

    def on_session_event(self, callback: Callable[[SessionEvent], None]) -> Unsubscribe:
        """Hear of the session's life."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes vanish."""
        ...
