"""Metadata: a versioned tree of small values with compare-and-set, watches, sessions (what ZooKeeper can keep)."""

from geminga.metadata.core.faults import MetadataFaults, WriteFault
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
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
