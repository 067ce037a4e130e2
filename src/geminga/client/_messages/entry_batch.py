"""``EntryBatch``: one entry of a topic, parsed once, without an object per message.

An entry holds one message or a batch of them. Offsets of payloads and keys lie in flat arrays over :attr:`data`, the
ids follow from the entry's id and the index: a reader that moves bytes (Spark, Arrow) slices :attr:`data` and never
touches a message object. ``receive`` and its relatives hand out :class:`~geminga.client.Message` views of it.

===================== ============================================================================================
message ``i``         where
===================== ============================================================================================
payload               ``data[payload_starts[i]:payload_ends[i]]``
key (as it was sent)  ``key_data[key_starts[i]:key_ends[i]]``, none if both are 0; base64 if ``flags[i] & 1``
id                    ``(ledger_id, entry_id, i)``, ``i`` is -1 on the wire if the entry is not a batch
is to be delivered    ``i in order``: left out are those compacted away or acknowledged before
===================== ============================================================================================
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from geminga.client._api.message_id import MessageId
from geminga.client.consumer_rules.batch_acker import BatchAcker
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batches import batch_layout as layouts
from geminga.wire.pulsar.metadata import text_of

if TYPE_CHECKING:
    from geminga.client._api.message_id import IdBase
    from geminga.client._messages.ports import EntrySource

_ONLY: Final = range(1)
#: Of the smallest message of a batch: the size of its metadata, and the size of its payload in them.
MESSAGE_BYTES_MIN: Final = 6
_NO_KEY: Final = (0,)
#: The message at an index of an entry that is no batch has no metadata of its own.
_NO_METADATA: Final = pb.SingleMessageMetadata(payload_size=0)


class EntryBatch:
    """See the module. Made by consumers and entry streams."""

    __slots__ = (
        "_id_base",
        "_key_ends",
        "_key_starts",
        "_metadata",
        "_metadata_at",
        "_metadata_ends",
        "_metadata_starts",
        "_payload_ends",
        "_payload_starts",
        "ack_set",
        "acker",
        "batch_size",
        "broker_entry_metadata",
        "data",
        "first_chunk",
        "flags",
        "is_batch",
        "is_undecrypted",
        "key",
        "order",
        "partition",
        "payload_start",
        "redelivery_count",
        "size_bytes",
        "source",
        "topic_name",
    )

    def __init__(
        self,
        data: bytes,
        payload_start: int,
        metadata: pb.MessageMetadata,
        ledger_id: int,
        entry_id: int,
        *,
        partition: int = -1,
        topic_name: str = "",
        redelivery_count: int = 0,
        is_undecrypted: bool = False,
        is_laid_out: bool = True,
    ) -> None:
        """``data`` from ``payload_start`` is the payload, decrypted and decompressed; borrowed, it is a memoryview.

        ``is_undecrypted``: it could not be decrypted, and is one message as it came, a batch too.
        ``is_laid_out`` False: where the messages of a batch lie is left to :meth:`lay_out`; until then there are no
        offsets and flags, and :attr:`order` has those that compaction removed, too.
        Raises BatchFormatError if it should be a batch and is none, as far as that was looked at.
        """
        self.data = data
        #: Where the payload begins in ``data``.
        self.payload_start = payload_start
        self._metadata: pb.MessageMetadata | None = metadata
        #: Where it lies in ``data``, while nobody asked for it.
        self._metadata_at = (0, 0)
        #: (ledger id, entry id).
        self.key = (ledger_id, entry_id)
        self.partition = partition
        #: The topic, a partition by its own name.
        self.topic_name = topic_name
        #: How often the entry was redelivered to the subscription.
        self.redelivery_count = redelivery_count
        #: Bytes of the payload, decompressed, metadata of batched messages included.
        self.size_bytes = len(data) - payload_start
        #: The broker's word of what is unacknowledged of a batch; empty: all of it.
        self.ack_set: Sequence[int] = ()
        #: What is unacknowledged of a batch; None for a single message.
        self.acker: BatchAcker | None = None
        #: The consumer of the topic it came from; None outside of consumers.
        self.source: EntrySource | None = None
        #: Of a chunked message, the id of its first chunk.
        self.first_chunk: MessageId | None = None
        #: Made with the first id; nothing of it changes once the entry is handed out.
        self._id_base: IdBase | None = None
        #: What the broker noted beside the entry: its time and the index in the topic.
        self.broker_entry_metadata: pb.BrokerEntryMetadata | None = None
        #: The payload could not be decrypted and is handed out as it came (CryptoFailureAction CONSUME).
        self.is_undecrypted = is_undecrypted
        #: Whether the entry is a batch, be it of one message.
        self.is_batch = metadata.HasField("num_messages_in_batch") and not is_undecrypted
        if not self.is_batch:
            self._be_single(data, payload_start, metadata)
            return
        self.batch_size: int = metadata.num_messages_in_batch
        #: Indexes of the messages to deliver, ascending.
        self.order: Sequence[int] = range(self.batch_size)
        if not 0 <= self.batch_size <= self.size_bytes // MESSAGE_BYTES_MIN:
            raise layouts.BatchFormatError(f"{self.batch_size} messages in {self.size_bytes} bytes")
        if is_laid_out:
            self.lay_out()

    def lay_out(self) -> None:
        """Find where the messages of a batch lie; raises BatchFormatError. Harmless twice."""
        self._own_data()
        layout = layouts.batch_layout(self.data, self.payload_start, self.batch_size)
        self._metadata_starts: Sequence[int] = layout.metadata_starts
        self._metadata_ends: Sequence[int] = layout.metadata_ends
        self._payload_starts: Sequence[int] = layout.payload_starts
        self._payload_ends: Sequence[int] = layout.payload_ends
        self._key_starts: Sequence[int] | None = layout.key_starts
        self._key_ends: Sequence[int] | None = layout.key_ends
        #: One byte a message: 1 base64 key, 2 null value, 4 removed by compaction, 8 has a key.
        self.flags = layout.flags
        if layout.has_compacted_out:
            flags = layout.flags
            self.order = [i for i in self.order if not flags[i] & layouts.IS_COMPACTED_OUT]

    def _own_data(self) -> None:
        """What is borrowed (an entry stream that borrows) is copied for what looks at single bytes."""
        if self.data.__class__ is not bytes:
            self.data = bytes(self.data)

    def _be_single(self, data: bytes, payload_start: int, metadata: pb.MessageMetadata) -> None:
        self.batch_size = 0
        self._metadata_starts = self._metadata_ends = ()
        self._payload_starts = (payload_start,)
        self._payload_ends = (len(data),)
        self._key_starts = self._key_ends = None
        flags = 0
        if metadata.HasField("partition_key"):
            flags = layouts.HAS_KEY
            if metadata.partition_key_b64_encoded:
                flags |= layouts.KEY_IS_BASE64
        if metadata.null_value:
            flags |= layouts.IS_NULL_VALUE
        self.flags = bytes((flags,))
        self.order = _ONLY

    def keep_unacknowledged(self, ack_set: Sequence[int], acker: BatchAcker | None) -> None:
        """Give the batch its acker, and deliver only what the broker's ``ack_set`` and the acker have left. One of no
        messages has none."""
        if not self.is_batch or not self.batch_size:
            return
        acker = acker or BatchAcker(self.batch_size)
        self.acker = acker
        if ack_set:
            acker.withhold(ack_set)
        elif acker.withheld:
            acker.withhold_nothing()
        if acker.remaining < self.batch_size:
            self.order = [index for index in self.order if not acker.is_acknowledged(index)]
        if len(self.order) < self.batch_size:
            # What is never delivered (compacted away) must not hold the batch back.
            wanted = set(self.order)
            for index in acker.unacknowledged():
                if index not in wanted:
                    acker.acknowledge(index)

    def expect_messages(self) -> None:
        """Messages will be made of it: lists are looked up faster than what is smallest to keep."""
        if self.is_batch:
            self.order = list(self.order)
            self._payload_starts = list(self._payload_starts)
            self._payload_ends = list(self._payload_ends)
            if self._key_starts is not None and self._key_ends is not None:
                self._key_starts = list(self._key_starts)
                self._key_ends = list(self._key_ends)

    def __len__(self) -> int:
        return len(self.order)

    @property
    def metadata(self) -> pb.MessageMetadata:
        """The entry's, taken apart when it is first asked for."""
        metadata = self._metadata
        if metadata is None:
            start, end = self._metadata_at
            metadata = self._metadata = pb.MessageMetadata.FromString(bytes(self.data[start:end]))
        return metadata

    @property
    def ledger_id(self) -> int:
        """The ledger it lies in."""
        return self.key[0]

    @property
    def entry_id(self) -> int:
        """Its number there."""
        return self.key[1]

    # ---- flat arrays

    @property
    def message_count(self) -> int:
        """Messages in the entry, also those not in :attr:`order`."""
        return self.batch_size if self.is_batch else 1

    @property
    def payload_starts(self) -> array[int]:
        """Where each payload begins in :attr:`data`."""
        return _flat(self._payload_starts)

    @property
    def payload_ends(self) -> array[int]:
        """Where each payload ends."""
        return _flat(self._payload_ends)

    @property
    def payload_bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        """Starts and ends of all payloads as they were found: ``range`` or ``array``, a list or tuple of a few."""
        return self._payload_starts, self._payload_ends

    @property
    def key_bounds(self) -> tuple[Sequence[int], Sequence[int]] | None:
        """The same of the keys in :attr:`data`; None if no message of a batch has one, and for a single message."""
        if not self.is_batch or self._key_starts is None or self._key_ends is None:
            return None
        return self._key_starts, self._key_ends

    @property
    def metadata_bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        """The same of each ``SingleMessageMetadata``; empty for a single message."""
        return self._metadata_starts, self._metadata_ends

    @property
    def key_data(self) -> bytes:
        """What the key offsets point into."""
        if self.is_batch:
            return self.data
        return self.key_as_sent(0)

    @property
    def key_starts(self) -> array[int]:
        """Where each key begins in :attr:`key_data`; start and end 0: no key, or (a single message) an empty one."""
        return _flat((self.is_batch and self._key_starts) or _NO_KEY * self.message_count)

    @property
    def key_ends(self) -> array[int]:
        """Where each key ends."""
        if not self.is_batch:
            return array("I", (len(self.key_data),))
        return _flat(self._key_ends or _NO_KEY * self.message_count)

    @property
    def batch_indexes(self) -> array[int]:
        """The indexes of :attr:`order`; -1 for a single message."""
        return array("i", self.order if self.is_batch else (-1,))

    # ---- one message

    def payload(self, index: int) -> bytes:
        """The payload of the message at ``index``."""
        return self.data[self._payload_starts[index] : self._payload_ends[index]]

    def payload_size(self, index: int) -> int:
        """Bytes of the payload of the message at ``index``."""
        return self._payload_ends[index] - self._payload_starts[index]

    def partition_key(self, index: int) -> str:
        """Its key as it travels (base64 if ``flags[index] & 1``), empty if it has none."""
        if not self.is_batch and self._key_starts is None:
            return text_of(self.metadata.partition_key)
        starts, ends = self._key_starts, self._key_ends
        if starts is None or ends is None:
            return ""
        return bytes(self.data[starts[index] : ends[index]]).decode("utf-8", "replace")

    def key_as_sent(self, index: int) -> bytes:
        """The same as bytes, also if they are no UTF-8."""
        if not self.is_batch and self._key_starts is None:
            key: str | bytes = self.metadata.partition_key
            return key if isinstance(key, bytes) else key.encode()
        starts, ends = self._key_starts, self._key_ends
        return b"" if starts is None or ends is None else bytes(self.data[starts[index] : ends[index]])

    def message_metadata(self, index: int) -> pb.SingleMessageMetadata:
        """The metadata a batched message has of its own, none if they can not be read; parsed at each call."""
        if not self.is_batch:
            return _NO_METADATA
        encoded = self.data[self._metadata_starts[index] : self._metadata_ends[index]]
        try:
            return pb.SingleMessageMetadata.FromString(encoded)
        except DecodeError:  # where payload and key lie was found all the same
            return _NO_METADATA

    def message_id(self, index: int) -> MessageId:
        """Its id."""
        return tuple.__new__(MessageId, (index if self.is_batch else -1, self.id_base()))

    def id_base(self) -> IdBase:
        """What the ids of all its messages share."""
        base = self._id_base
        if base is None:
            base = self._id_base = (
                *self.key,
                self.partition,
                self.batch_size,
                self.topic_name,
                self.first_chunk,
            )
        return base


def _flat(offsets: Sequence[int]) -> array[int]:
    return offsets if isinstance(offsets, array) else array("I", offsets)
