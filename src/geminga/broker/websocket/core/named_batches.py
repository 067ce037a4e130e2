"""Large batches that a socket names by ids that are not known: each has a bit a message until it is done. Pure."""

from __future__ import annotations

from typing import Final

#: Messages of a socket's batches that it names by ids it was not told, or that are not known any more.
BATCH_MESSAGES_MAX: Final = 1 << 20
#: Those of smaller batches, as clients make them, do not count.
SMALL_BATCH: Final = 1024


class NamedBatches:
    """Of one socket."""

    __slots__ = ("_left", "messages")

    def __init__(self) -> None:
        #: By partition, ledger and entry: how often it is named until it is done, and its messages.
        self._left: dict[tuple[int, int, int], tuple[int, int]] = {}
        #: Of all that are not done.
        self.messages = 0

    def named(self, batch: tuple[int, int, int], size: int) -> bool:
        """One of its messages was named; False: there is no room for the batch. ``size``: messages, as the id says."""
        if size <= SMALL_BATCH:
            return True
        # Of what size it is the first id says: another size would be no batch of this one's.
        left, size = self._left.pop(batch, (size, size))
        if left == size:
            self.messages += size
            if self.messages > BATCH_MESSAGES_MAX:
                return False
        if left > 1:
            self._left[batch] = left - 1, size
        else:
            self.messages -= size
        return True
