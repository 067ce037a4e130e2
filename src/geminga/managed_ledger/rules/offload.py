"""Which ledgers are offloaded, and which of those leave the bookies. Pure.

By size as in Pulsar: counted from the newest ledger backwards, what lies behind the threshold goes, whatever of it was
offloaded already. By age: since the ledger was closed. Only closed ledgers go that readers may read to their end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.wire.managed_ledger.offload_context import OffloadRecord, decode_offload_context

#: Without a limit, or never.
OFF: Final = -1


class OffloadPolicy(NamedTuple):
    """What holds for one topic. ``driver`` empty: nothing is offloaded, what was is kept."""

    driver: str = ""
    #: Where the root is.
    properties: Mapping[str, str] = {}
    #: Bytes that stay on the bookies at least; -1: no offload by size.
    threshold_bytes: int = OFF
    #: Since a ledger was closed; -1: no offload by age.
    threshold_ms: int = OFF
    #: From a complete offload to the deletion on the bookies; -1: never.
    deletion_lag_ms: int = 4 * 3600 * 1000
    #: Read from the bookies as long as they have it.
    is_bookkeeper_first: bool = False


def record_of(info: LedgerInfo) -> OffloadRecord | None:
    """What is registered of a ledger. Raises CorruptionError."""
    return decode_offload_context(info.offload_context) if info.offload_context else None


def can_offload(info: LedgerInfo, readable: LedgerList) -> bool:
    """Whether a ledger may go: closed, with entries, read to its end by whoever may read, and not gone before."""
    if not info.closed_ms or not info.entries:
        return False
    record = record_of(info)
    if record is not None and (record.is_complete or not record.is_ours):
        return False
    found = readable.find(info.ledger_id)
    return found is not None and found.entries == info.entries


def due(infos: Sequence[LedgerInfo], readable: LedgerList, policy: OffloadPolicy, now_ms: int) -> list[int]:
    """Ids of the ledgers that a policy sends away now, oldest first."""
    if not policy.driver:
        return []
    found: list[int] = []
    total = 0
    for info in reversed(infos):
        total += info.size_bytes
        is_over_size = policy.threshold_bytes >= 0 and total > policy.threshold_bytes
        is_over_age = policy.threshold_ms >= 0 and info.closed_ms > 0 and now_ms - info.closed_ms >= policy.threshold_ms
        if (is_over_size or is_over_age) and can_offload(info, readable):
            found.append(info.ledger_id)
    return found[::-1]


def before(infos: Sequence[LedgerInfo], readable: LedgerList, ledger_id: int) -> list[int]:
    """Ids of the ledgers before one that can be offloaded, oldest first."""
    return [info.ledger_id for info in infos if info.ledger_id < ledger_id and can_offload(info, readable)]


def leaves_bookies(record: OffloadRecord, policy: OffloadPolicy, now_ms: int) -> bool:
    """Whether the bookies' copy has been kept for long enough."""
    is_due = policy.deletion_lag_ms >= 0 and now_ms - record.completed_ms >= policy.deletion_lag_ms
    return is_due and record.is_ours and record.is_complete and not record.is_bookkeeper_deleted
