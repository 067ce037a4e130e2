"""Which ledgers can go. Pure.

A ledger goes when every durable cursor has its mark-delete position at or behind the ledger's last entry and
retention no longer holds it. The open ledger never goes. Retention as Pulsar's namespace policy:
-1 keeps without limit; a closed ledger is held until its age passes ``retention_ms`` or the ledgers that stay
already reach ``retention_bytes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from geminga.model.position import Position

if TYPE_CHECKING:
    from geminga.managed_ledger.rules.positions import LedgerInfo


def is_consumed(info: LedgerInfo, slowest: Position | None) -> bool:
    """Whether every durable cursor is past the ledger; ``slowest``: smallest mark-delete, None without cursors."""
    return slowest is None or slowest >= (info.ledger_id, info.entries - 1)


class StoredLedger(Protocol):
    """A ledger of a stored list."""

    @property
    def ledger_id(self) -> int:
        """Its id."""

    @property
    def entries(self) -> int:
        """How many it has, once it is closed."""

    @property
    def is_closed(self) -> bool:
        """Whether the list says where it ends."""


def has_unread(ledgers: Sequence[StoredLedger], mark_delete: Position | None) -> bool:
    """Whether a cursor may have entries in front of it, by what is stored of list and cursor and without any ledger.

    ``mark_delete``: where the cursor stands; None: that is not known here. After an orderly close both are exact.
    """
    if any(not ledger.is_closed for ledger in ledgers):
        return True
    ends = [Position(ledger.ledger_id, ledger.entries - 1) for ledger in ledgers if ledger.entries]
    return bool(ends) and (mark_delete is None or mark_delete < ends[-1])


def ledgers_to_trim(
    ledgers: Sequence[LedgerInfo],
    slowest: Position | None,
    *,
    retention_ms: int,
    retention_bytes: int,
    now_ms: int,
) -> list[int]:
    """Ids of the ledgers that can go, a prefix of the list."""
    total = sum(info.size_bytes for info in ledgers)
    going: list[int] = []
    going_bytes = 0
    for info in ledgers:
        if not info.closed_ms or not is_consumed(info, slowest):
            break
        expired = retention_ms >= 0 and now_ms - info.closed_ms >= retention_ms
        over_size = retention_bytes >= 0 and total - going_bytes - info.size_bytes >= retention_bytes
        if not (expired or over_size):
            break
        going.append(info.ledger_id)
        going_bytes += info.size_bytes
    return going
