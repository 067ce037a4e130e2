"""What a consumer with an order hands out after a transaction was aborted in which it had acknowledged.

Everything that is not acknowledged is asked for again, to keep the order: what the transaction gave back comes before
what was prefetched. With it comes what the application has in its hands and may yet acknowledge: of what it received
before, only what was given back is handed out once more. Kept until everything comes again for another reason.

Of one topic on Exclusive and Failover, where messages come in order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

EntryKey = tuple[int, int]
#: An entry, and the index of a message in it; -1: it is no batch.
Place = tuple[EntryKey, int]

_NOWHERE: Place = ((-1, -1), -1)


class Returned:
    """See the module."""

    __slots__ = ("_cumulative", "_cumulative_from", "_entries", "_received")

    def __init__(self, received: Place) -> None:
        """``received``: the last message that the application received."""
        self._received = received
        #: What was given back and not received since: entry -> indexes; None: all of it.
        self._entries: dict[EntryKey, set[int] | None] = {}
        #: Everything up to here was given back, and what of it was received since.
        self._cumulative = _NOWHERE
        self._cumulative_from: EntryKey = (-1, -1)

    def received_up_to(self, received: Place) -> None:
        """The last one that was received; further back than before after something was given back."""
        self._received = max(self._received, received)

    def add(self, key: EntryKey, indexes: Collection[int]) -> None:
        """Messages of an entry are given back; none: all of it."""
        before = self._entries.get(key, ())
        self._entries[key] = None if before is None or not indexes else {*before, *indexes}

    def add_up_to(self, key: EntryKey, index: int) -> None:
        """Everything up to a message is given back; ``index`` -1: up to the end of the entry."""
        self._cumulative = (key, index)
        self._cumulative_from = (-1, -1)

    def wanted(self, key: EntryKey, order: Sequence[int], *, is_batch: bool) -> Sequence[int]:
        """Which of the messages ``order`` of an entry that came are to be handed out."""
        last, last_index = self._received
        if key > last:
            return order
        given = self._entries.get(key, ())
        if given is None:
            return order
        if not is_batch:
            return order if self._is_cumulative(key, -1) else ()
        is_last = key == last
        return [
            index
            for index in order
            if index in given or (is_last and index > last_index) or self._is_cumulative(key, index)
        ]

    def _is_cumulative(self, key: EntryKey, index: int) -> bool:
        until, until_index = self._cumulative
        if not self._cumulative_from < key <= until:
            return False
        return key < until or until_index < 0 or index <= until_index

    def received(self, key: EntryKey) -> None:
        """The application received the first message of an entry: it is not to come once more."""
        self._entries.pop(key, None)
        if self._cumulative_from < key <= self._cumulative[0]:
            self._cumulative_from = key

    def cut_off(self, key: EntryKey, rest: Collection[int]) -> None:
        """Of an entry that was received in part, the ``rest`` was dropped, and comes again."""
        if rest and key <= self._received[0]:
            self.add(key, rest)
