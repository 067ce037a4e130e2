"""What dispatch knows of one consumer: permits, priority, what it holds unacknowledged.

The dispatchers of this folder work on this class; the shell's consumer extends it by its connection. Permits
are counted in messages and may go below zero, because an entry (a batch) is never cut: as in Pulsar, the
client asked for n messages and may get the rest of the last batch on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from geminga.broker.core.dispatch.pending_acks import PendingAcks

if TYPE_CHECKING:
    from collections import deque

    from geminga.broker.core.dispatch.shared import Receivers

#: Weight of the past in the running average of messages per entry (Pulsar's ``Consumer.avgPercent``).
_AVERAGE_WEIGHT = 0.9
#: Batches that one consumer is sent together if it has a permit for each, without ``preciseDispatcherFlowControl``.
#: Going by the messages in them, each would wait until the client has read most of the last: two thirds of the rate.
BATCHES_AT_ONCE: Final = 32


class ConsumerState:
    """One consumer of a subscription, as its dispatcher sees it."""

    __slots__ = (
        "_permits",
        "batches_most",
        "draining_cleared",
        "line",
        "messages_per_entry",
        "name",
        "pending",
        "priority_level",
        "receivers",
        "unacked_count",
        "unacked_max",
        "was_blocked",
    )

    def __init__(self, name: str, *, priority_level: int = 0, unacked_max: int = 0) -> None:
        """``unacked_max`` holds from the start; :meth:`limit_unacked` changes it."""
        #: Its name, unique per subscription as a rule but not by force.
        self.name = name
        #: 0 is served first (``CommandSubscribe.priority_level``).
        self.priority_level = priority_level
        #: Key hashes that moved to another consumer and of which it has acknowledged or given back everything since.
        self.draining_cleared = 0
        self._permits = 0
        #: Where those of a Shared or Key_Shared subscription stand in line that may be sent something; and its line
        #: while it does: it is put there when that may have come about, and leaves when it is found that it is not so.
        self.receivers: Receivers[Any] | None = None
        self.line: deque[Any] | None = None
        #: Batches that it may be sent together whatever their size; 0: none, its permits are messages.
        self.batches_most = BATCHES_AT_ONCE
        #: Running average of messages per entry sent to it; 0: nothing was sent yet.
        self.messages_per_entry = 0.0
        #: Messages sent and not acknowledged; kept for Shared and Key_Shared only.
        self.unacked_count = 0
        #: At this many unacknowledged messages it gets no more until half of them are acknowledged; 0: no limit.
        self.unacked_max = unacked_max
        #: Whether it stands still since it reached ``unacked_max``.
        self.was_blocked = False
        #: Entries sent and not acknowledged; for Shared and Key_Shared only.
        self.pending = PendingAcks()

    @property
    def permits(self) -> int:
        """Messages it may still be sent; below zero after a batch larger than what was left."""
        return self._permits

    @permits.setter
    def permits(self, permits: int) -> None:
        self._permits = permits
        self.may_receive()

    def may_receive(self) -> None:
        """What it is sent something for may have come about: permits, room for what is not acknowledged, or for it on
        its way to the client."""
        if self.receivers is not None and self.line is None and self._permits > 0 and not self.was_blocked:
            self.receivers.put(self)

    def can_receive(self) -> bool:
        """Whether an entry may be sent to it now."""
        return self._permits > 0 and not self.was_blocked

    def entries_wanted(self, entries_max: int, batches_least: int = 0) -> int:
        """How many entries its permits are worth, by the average size of its batches; at least 1.

        ``batches_least``: how many it may have whatever their size, but no more than its permits (Pulsar's permits
        count entries where ``preciseDispatcherFlowControl`` is off).
        """
        average = self.messages_per_entry
        wanted = self._permits
        if average > 1.0:
            wanted = max(int(wanted / average), min(wanted, batches_least, self.batches_most))
        return max(1, min(wanted, entries_max))

    def note_sent(self, message_count: int, entry_count: int) -> None:
        """Take the permits of what was sent and follow the size of batches."""
        self._permits -= message_count
        before = self.messages_per_entry
        if message_count != entry_count or before != 1.0:
            average = max(1.0, message_count / entry_count)
            self.messages_per_entry = before * _AVERAGE_WEIGHT + average * (1 - _AVERAGE_WEIGHT) if before else average

    def limit_unacked(self, unacked_max: int) -> bool:
        """Obey another limit (0: none) from now on; True if that set it free. What it holds is judged anew, so that
        it goes on at once wherever the limit is not reached."""
        before = self.was_blocked
        self.unacked_max = unacked_max
        self.was_blocked = 0 < unacked_max <= self.unacked_count
        if not before or self.was_blocked:
            return False
        self.may_receive()
        return True

    def add_unacked(self, message_count: int) -> bool:
        """Change the count of unacknowledged messages by ``message_count``; True if that set it free again."""
        self.unacked_count += message_count
        limit = self.unacked_max
        if limit <= 0:
            return False
        if message_count > 0:
            if self.unacked_count >= limit:
                self.was_blocked = True
        elif self.was_blocked and self.unacked_count <= limit // 2:
            self.was_blocked = False
            self.may_receive()
            return True
        return False
