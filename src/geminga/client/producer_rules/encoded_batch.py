"""What is encoded already: what a producer sends as one entry without looking into it.

:class:`EncodedBatch` is for those who make many messages at once (a column of values, say): the payload is laid out as
:mod:`geminga.wire.pulsar.batch` says, with sequence ids of the caller's own. :class:`WholeEntry` has its metadata, too:
it was stored elsewhere.
"""

from __future__ import annotations

from geminga.client.producer_rules.send_queue import OnEnd
from geminga.client.rules.transaction import TransactionCore


class EncodedBatch:
    """One entry's messages; at least one."""

    __slots__ = (
        "first_sequence_id",
        "highest_sequence_id",
        "is_key_base64",
        "messages",
        "ordering_key",
        "partition_key",
        "payload",
        "txn",
    )

    def __init__(
        self,
        payload: bytes,
        messages: int,
        first_sequence_id: int,
        *,
        partition_key: str | None = None,
        is_key_base64: bool = False,
        ordering_key: bytes | None = None,
    ) -> None:
        """``payload`` is not compressed; the keys are those of the first message, which Key_Shared goes by."""
        self.payload = payload
        self.messages = messages
        self.first_sequence_id = first_sequence_id
        #: Sequence ids of a batch are consecutive.
        self.highest_sequence_id = first_sequence_id + messages - 1
        self.partition_key = partition_key
        self.is_key_base64 = is_key_base64
        self.ordering_key = ordering_key
        #: The transaction it is sent in; the producer says.
        self.txn: TransactionCore | None = None


class WholeEntry:
    """An entry with metadata of its own, which are sent as they are: whoever replicates has rewritten them."""

    __slots__ = (
        "highest_sequence_id",
        "is_chunk",
        "is_marker",
        "messages",
        "metadata",
        "on_end",
        "payload",
        "sequence_id",
    )

    def __init__(
        self,
        metadata: bytes,
        payload: bytes,
        messages: int,
        sequence_id: int,
        highest_sequence_id: int,
        on_end: OnEnd,
        *,
        is_chunk: bool = False,
        is_marker: bool = False,
    ) -> None:
        """``metadata``: an encoded ``MessageMetadata``. ``sequence_id`` and ``highest_sequence_id`` are those of the
        command; the first must not descend from one entry to the next: receipts are told apart by it. ``on_end`` hears
        of it once, with both."""
        self.metadata = metadata
        self.payload = payload
        self.messages = messages
        self.sequence_id = sequence_id
        self.highest_sequence_id = highest_sequence_id
        self.on_end = on_end
        self.is_chunk = is_chunk
        #: Written by a broker and for brokers: it counts as no message.
        self.is_marker = is_marker
