"""Auto-recovery: ledgers that lack copies are found by an elected auditor and restored by replication workers."""

from geminga.replication.autorecovery import AutoRecovery
from geminga.replication.config import ReplicationConfig
from geminga.replication.counters import ReplicationCounters
from geminga.replication.registry import (
    BookieRegistry,
    LiveBookies,
    LocalBookieRegistry,
    MetadataBookieRegistry,
)

__all__ = [
    "AutoRecovery",
    "BookieRegistry",
    "LiveBookies",
    "LocalBookieRegistry",
    "MetadataBookieRegistry",
    "ReplicationConfig",
    "ReplicationCounters",
]
