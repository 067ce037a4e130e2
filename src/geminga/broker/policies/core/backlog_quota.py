"""When a backlog quota is used up, and how far an eviction goes. Pure.

Pulsar looks every ``backlogQuotaCheckIntervalInSeconds`` and takes the age of a message from the time its ledger was
closed, so that a quota of a minute may hold after hours (apache/pulsar#19210, #19717). Here the room that is left
is known at each publish, and the age is that of the oldest message itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.model.position import Position

#: An eviction goes down to this part of the limit, as in Pulsar, so that it does not run at each message.
EVICTION_TARGET: Final = 0.9


def eviction_target(limit: int) -> int:
    """Bytes, or milliseconds, that an eviction leaves."""
    return int(limit * EVICTION_TARGET)


def position_leaving(infos: Sequence[LedgerInfo], target_bytes: int) -> Position | None:
    """The last entry to acknowledge so that at most ``target_bytes`` lie behind it; None: all of them fit.

    Within a ledger each entry counts as its mean one, rounded up.
    """
    left = target_bytes
    for info in reversed(infos):
        if not info.entries:
            continue
        if info.size_bytes <= left:
            left -= info.size_bytes
            continue
        kept = left * info.entries // info.size_bytes
        return Position(info.ledger_id, info.entries - kept - 1)
    return None


class RoomLeft:
    """How much may be published before the backlog must be measured again.

    A backlog grows by what is published only, so a measured one plus what came since is an upper bound; what
    consumers acknowledge meanwhile is found when it is measured again.
    """

    __slots__ = ("_left", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: Measure at the first publish.
        self._left = 0

    def measured(self, backlog_bytes: int) -> bool:
        """Note a measured backlog; whether the quota is used up."""
        self._left = self.limit_bytes - backlog_bytes
        return self._left <= 0

    def published(self, size_bytes: int) -> bool:
        """Note a publish; whether the backlog must be measured now."""
        self._left -= size_bytes
        return self._left <= 0
