"""The broker's own limit of unacknowledged messages, over all Shared and Key_Shared subscriptions.

Pulsar's ``maxUnackedMessagesPerBroker``: when so many are outstanding, the broker is *short* until fewer than half are.
While it is short, subscriptions with more than their share (``maxUnackedMessagesPerSubscriptionOnBrokerBlocked``, a
part of the limit) stand still until half of the share is left. Small ones go on: a stuck one does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable

from geminga.model import invariant


class UnackedBudget:
    """One for a broker; each dispatcher tells it what it sends and gets back."""

    __slots__ = ("_limit", "_waiting", "is_short", "share", "total")

    def __init__(self, limit: int, share_ratio: float) -> None:
        """``limit``: messages, at least 1; ``share_ratio``: part of it that a subscription may have while the broker is
        short, 0 to 1."""
        self._limit = limit
        #: Messages a subscription may have outstanding while the broker is short.
        self.share = int(limit * share_ratio)
        #: Messages outstanding.
        self.total = 0
        #: Whether subscriptions with more than their share stand still.
        self.is_short = False
        #: Whom to tell when it is not short any more; by identity.
        self._waiting: dict[object, Callable[[], None]] = {}

    def change(self, message_count: int) -> None:
        """So many messages more are outstanding, or fewer if it is negative."""
        self.total += message_count
        invariant(self.total >= 0, f"{self.total} messages unacknowledged at the broker")
        if message_count > 0:
            if self.total >= self._limit:
                self.is_short = True
        elif self.is_short and self.total < self._limit / 2:
            self._end_shortage()

    def recount(self, total: int) -> None:
        """So many messages are outstanding, whatever was counted before."""
        self.total = total
        if self.is_short and total < self._limit / 2:
            self._end_shortage()

    def _end_shortage(self) -> None:
        self.is_short = False
        waiting, self._waiting = self._waiting, {}
        for freed in waiting.values():
            freed()

    def wait(self, who: object, freed: Callable[[], None]) -> None:
        """Call ``freed`` once when the broker is not short any more."""
        self._waiting[who] = freed

    def stop_waiting(self, who: object) -> None:
        """``who`` needs not be told any more."""
        self._waiting.pop(who, None)
