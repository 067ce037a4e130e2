"""Auto-recovery: ledgers that lack copies are found by an elected auditor and restored by replication workers."""

from geminga.replication.autorecovery import AutoRecovery
from geminga.replication.config import ReplicationConfig
from geminga.replication.counters import ReplicationCounters
from geminga.replication.registry import (
    BookieRegistry,
    LocalBookieRegistry,
    MetadataBookieRegistry,
    RegisteredBookies,
)

__all__ = [
    "AutoRecovery",
    "BookieRegistry",
    "LocalBookieRegistry",
    "MetadataBookieRegistry",
    "RegisteredBookies",
    "ReplicationConfig",
    "ReplicationCounters",
]
