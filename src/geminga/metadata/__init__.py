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
from geminga.model.late_names import late_names

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

# Loaded where they are used: who has a directory needs none in memory.
__getattr__ = late_names(
    __name__,
    {
        "MemoryMetadata": "geminga.metadata.memory",
        "MemoryMetadataStore": "geminga.metadata.memory",
    },
)
