"""Metadata: a versioned tree of small values with compare-and-set, watches, sessions (what ZooKeeper can keep)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.metadata.core.faults import MetadataFaults, WriteFault
from geminga.metadata.ports import (
    MUST_NOT_EXIST,
    ChangeKind,
    MetadataStore,
    Node,
    Notification,
    PutResult,
    SessionEvent,
    Stat,
)
from geminga.metadata.sqlite import SqliteMetadataStore

if TYPE_CHECKING:
    from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore

__all__ = [
    "MUST_NOT_EXIST",
    "ChangeKind",
    "MemoryMetadata",
    "MemoryMetadataStore",
    "MetadataFaults",
    "MetadataStore",
    "Node",
    "Notification",
    "PutResult",
    "SessionEvent",
    "SqliteMetadataStore",
    "Stat",
    "WriteFault",
]


def __getattr__(name: str) -> object:
    # Loaded where it is used: who has a directory needs none in memory.
    if name in ("MemoryMetadata", "MemoryMetadataStore"):
        from geminga.metadata import memory

        found: object = getattr(memory, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
