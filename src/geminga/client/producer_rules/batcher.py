"""Messages gather into a batch until one of its limits is reached.

The producer's fast path appends to :attr:`Batch.payloads` itself: a message that is nothing but bytes costs one
append and one addition. Everything else about the messages is in ``specials``, by index.
"""

from __future__ import annotations

from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.producer_rules.send_queue import SendCallback
from geminga.client.rules.transaction import TransactionCore
from geminga.wire.pulsar.batch import encode_batch, single_message_head


class Batch:
    """Messages that will be one entry."""

    __slots__ = ("callbacks", "is_awaited", "is_custom", "opened_s", "payloads", "size_bytes", "specials", "txn")

    def __init__(self, opened_s: float, *, is_custom: bool = False, txn: TransactionCore | None = None) -> None:
        #: Monotonic seconds of its first message.
        self.opened_s = opened_s
        self.payloads: list[bytes] = []
        self.size_bytes = 0
        #: Index -> message, of those that have more than a payload; None: there are none.
        self.specials: dict[int, EncodedMessage] | None = None
        #: (index, who wants to hear); None: nobody.
        self.callbacks: list[tuple[int, SendCallback]] | None = None
        #: Its messages have sequence ids of the user's own.
        self.is_custom = is_custom
        #: The transaction of all of its messages.
        self.txn = txn
        #: Somebody awaits a receipt: it leaves as soon as nothing else is in flight.
        self.is_awaited = False

    def __len__(self) -> int:
        return len(self.payloads)

    def add(self, message: EncodedMessage, callback: SendCallback | None) -> None:
        """Append a message; the caller looks at the limits."""
        if callback is not None:
            self.add_callback(callback)
        index = len(self.payloads)
        self.payloads.append(message.payload)
        self.size_bytes += len(message.payload)
        if (
            message.partition_key is not None
            or message.properties
            or message.ordering_key is not None
            or message.sequence_id is not None
            or message.event_time_ms is not None
            or message.is_null
        ):
            if self.specials is None:
                self.specials = {}
            self.specials[index] = message

    def add_callback(self, callback: SendCallback) -> None:
        """``callback`` hears of the message that is appended next."""
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((len(self.payloads), callback))

    def fits(self, message: EncodedMessage, size_bytes_max: int, stored_sequence_id: int = -1) -> bool:
        """Whether ``message`` may join: within the size, of the same transaction and kind of sequence id.

        With ids of the user's own a batch ends at ``stored_sequence_id``, the last one that the broker has: a batch
        of stored and new messages would be no duplicate as a whole, and is not taken by deduplication. Nor does an id
        join that is no higher than those before it: within a batch nobody would see that it is a duplicate.
        """
        if self.is_custom != (message.sequence_id is not None) or self.txn is not message.txn:
            return False
        if message.sequence_id is not None:
            last = self.last_own_sequence_id
            if last is not None and (message.sequence_id <= last or last <= stored_sequence_id < message.sequence_id):
                return False
        return self.size_bytes + len(message.payload) <= size_bytes_max

    @property
    def last_own_sequence_id(self) -> int | None:
        """The id of its last message, if that is of the user's own."""
        return self.specials[len(self.payloads) - 1].sequence_id if self.is_custom and self.specials else None

    def message(self, index: int) -> EncodedMessage:
        """One of its messages."""
        special = self.specials.get(index) if self.specials else None
        return special if special is not None else EncodedMessage(self.payloads[index], txn=self.txn)

    def singles(self) -> list[Batch]:
        """The same messages as batches of one each: what is left if together they are larger than the broker takes."""
        callbacks = dict(self.callbacks or ())
        singles = []
        for index in range(len(self.payloads)):
            single = Batch(self.opened_s, is_custom=self.is_custom, txn=self.txn)
            single.add(self.message(index), callbacks.get(index))
            singles.append(single)
        return singles

    def sequence_ids(self, next_sequence_id: int) -> tuple[int, int]:
        """The first and the last message's sequence ids, if the producer counts on from ``next_sequence_id``."""
        if self.is_custom and self.specials is not None:
            first, last = self.specials[0].sequence_id, self.specials[len(self.payloads) - 1].sequence_id
            assert first is not None
            assert last is not None
            return first, last
        return next_sequence_id, next_sequence_id + len(self.payloads) - 1

    def encode(self, first_sequence_id: int) -> bytes:
        """The batch's payload."""
        specials = self.specials
        if not specials:
            return encode_batch(self.payloads, first_sequence_id)
        heads = {
            index: single_message_head(
                len(message.payload),
                first_sequence_id + index if message.sequence_id is None else message.sequence_id,
                properties=message.properties,
                partition_key=message.partition_key,
                is_key_base64=message.is_key_base64,
                ordering_key=message.ordering_key,
                event_time_ms=message.event_time_ms,
                is_null=message.is_null,
            )
            for index, message in specials.items()
        }
        return encode_batch(self.payloads, first_sequence_id, heads)
