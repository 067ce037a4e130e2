"""Permits of a reader that counts bytes: how many more messages to ask the broker for.

The protocol counts messages, memory is counted in bytes. The window keeps what waits and what is on its way near
``bytes_max`` by the average size of the messages seen, and asks for more when half of it is used up.
"""

from __future__ import annotations

from typing import Final

#: Messages asked for before any was seen: enough for a good start of small ones, little of large ones.
FIRST_PERMITS: Final = 16
#: Most messages asked for at once (what brokers dispatch in one go is far less).
PERMITS_MAX: Final = 100_000
#: Weight of what arrived last in the average, as a fraction: one of so many.
_AVERAGE_OF: Final = 8


class EntryWindow:
    """Permits of one reader of one topic. ``permits_max`` limits them in messages, too; 0: it never asks for any."""

    __slots__ = ("_average_bytes", "_average_messages", "bytes_max", "expected", "permits_max", "waiting")

    def __init__(self, bytes_max: int, permits_max: int = PERMITS_MAX) -> None:
        self.bytes_max = bytes_max
        self.permits_max = permits_max
        #: Messages asked for and not arrived. Below 0 when the broker sent more (it never cuts a batch, and looks at
        #: permits once for many entries): it waits until that is made up for.
        self.expected = 0
        #: Messages arrived and not taken.
        self.waiting = 0
        self._average_bytes = 0.0
        #: Of an entry.
        self._average_messages = 0.0

    @property
    def capacity(self) -> int:
        """Messages that may wait or be on their way."""
        if not self._average_bytes or not self.permits_max:
            return min(FIRST_PERMITS, self.permits_max)
        return max(1, min(int(self.bytes_max / self._average_bytes), self.permits_max))

    def arrived(self, messages: int, size_bytes: int) -> None:
        """An entry came."""
        self.expected -= messages
        self.waiting += messages
        if size_bytes:
            entry_messages = self._average_messages
            self._average_messages = (
                entry_messages + (messages - entry_messages) / _AVERAGE_OF if entry_messages else float(messages)
            )
            average = max(1.0, size_bytes / messages)
            known = self._average_bytes
            self._average_bytes = known + (average - known) / _AVERAGE_OF if known else average

    def taken(self, messages: int, size_bytes: int) -> None:
        """An entry was taken, or dropped."""
        self.waiting = max(0, self.waiting - messages)

    def grant(self, entries_left: int | None = None) -> int:
        """Permits to give now; 0 as long as more than half of the window is in use.

        ``entries_left``: not yet arrived of what is wanted; messages of others need not be asked for.
        """
        capacity = self.capacity
        if entries_left is not None:
            capacity = min(capacity, self.waiting + max(1, int(entries_left * (self._average_messages or 1.0)) + 1))
        used = self.expected + self.waiting
        if used > capacity // 2:
            return 0
        permits = capacity - used
        self.expected += permits
        return permits

    def restart(self) -> None:
        """A new subscription: nothing is asked for, nothing waits."""
        self.expected = 0
        self.waiting = 0
