"""Key-based batching: one open batch per key, so that each batch goes to one consumer of a Key_Shared subscription.

The limits count over all keys together. Sequence ids are given when the batches are taken, batch after batch: those of
a batch are consecutive and batches ascend, so that deduplication takes none for an old one. For the same reason ids of
the user's own that would lie between those of another key's batch begin anew.
"""

from __future__ import annotations

from geminga.client.producer_rules.batcher import Batch
from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.producer_rules.send_queue import SendCallback
from geminga.client.rules.transaction import TransactionCore


class KeyBatcher:
    """Open batches by key, in the order of their first messages."""

    __slots__ = ("_batches", "_is_custom", "_newest", "is_awaited", "messages", "opened_s", "size_bytes", "txn")

    def __init__(self) -> None:
        self._batches: dict[bytes, Batch] = {}
        self._is_custom = False
        #: Which the last message joined.
        self._newest: Batch | None = None
        #: Monotonic seconds of the first message of all.
        self.opened_s = 0.0
        self.messages = 0
        self.size_bytes = 0
        #: The transaction of all messages.
        self.txn: TransactionCore | None = None
        #: Somebody awaits a receipt.
        self.is_awaited = False

    def add(self, message: EncodedMessage, callback: SendCallback | None, now_s: float) -> None:
        """Append to its key's batch; the caller looks at the limits."""
        if not self.messages:
            self.opened_s = now_s
            self._is_custom = message.sequence_id is not None
            self.txn = message.txn
        key = message.key or b""
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = Batch(now_s, is_custom=self._is_custom, txn=self.txn)
        batch.add(message, callback)
        self._newest = batch
        self.messages += 1
        self.size_bytes += len(message.payload)

    def fits(self, message: EncodedMessage, size_bytes_max: int, stored_sequence_id: int = -1) -> bool:
        """Whether ``message`` may join, as :meth:`Batch.fits`."""
        batch = self._batches.get(message.key or b"")
        if message.sequence_id is not None and self._newest is not None:
            newest = self._newest.last_own_sequence_id
            if batch not in (None, self._newest) or (newest is not None and message.sequence_id <= newest):
                return False
        if batch is not None and not batch.fits(message, size_bytes_max, stored_sequence_id):
            return False
        if self.size_bytes + len(message.payload) > size_bytes_max:
            return False
        if not self.messages:
            return True
        return self._is_custom == (message.sequence_id is not None) and self.txn is message.txn

    def take(self) -> list[Batch]:
        """All batches, oldest first; none is open afterwards."""
        batches = list(self._batches.values())
        self._batches.clear()
        self.messages = self.size_bytes = 0
        self._newest = None
        self.txn = None
        self.is_awaited = False
        return batches
