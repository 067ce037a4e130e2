"""Replicators that stand still: connected, with a backlog, and nothing was copied for a while (apache/pulsar#25097).

Each is looked at every :data:`LOOK_S`. What stands still for :data:`STANDSTILL_S` begins anew with another link, is
named in the log, and is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.runtime import get_logger

if TYPE_CHECKING:
    from geminga.broker.geo.replicator import Replicator
    from geminga.model.position import Position

_log = get_logger(__name__)

#: Between two looks at all replicators.
LOOK_S: Final = 5.0
#: One that is connected and has a backlog copies something in this time.
STANDSTILL_S: Final = 30.0


class StandstillWatch:
    """See the module."""

    __slots__ = ("_seen", "restarts")

    def __init__(self) -> None:
        #: Where each was, and since when (seconds, monotonic).
        self._seen: dict[Replicator, tuple[Position, float]] = {}
        #: How many began anew since the broker's start.
        self.restarts = 0

    def add(self, replicator: Replicator, now_s: float) -> None:
        """Watch it from now on."""
        self._seen[replicator] = replicator.cursor.mark_delete_position, now_s

    def look(self, now_s: float) -> None:
        """Once over all."""
        for replicator, (position, since_s) in [*self._seen.items()]:
            if replicator.is_stopped:
                del self._seen[replicator]
            elif replicator.cursor.mark_delete_position != position or not replicator.should_move:
                self._seen[replicator] = replicator.cursor.mark_delete_position, now_s
            elif now_s - since_s >= STANDSTILL_S:
                self._seen[replicator] = position, now_s
                self.restarts += 1
                _log.warning(
                    "%s: nothing was copied to cluster %s for %g s, with %d entries to copy: it begins anew",
                    replicator.topic_name,
                    replicator.cluster,
                    now_s - since_s,
                    replicator.backlog,
                )
                replicator.restart()
