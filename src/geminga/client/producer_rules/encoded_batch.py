"""What is encoded already: what a producer sends as one entry without looking into it.

:class:`EncodedBatch` is for those who make many messages at once (a column of values, say): the payload is laid out as
:mod:`geminga.wire.pulsar.batch` says, with sequence ids of the caller's own. :class:`WholeEntry` has its metadata, too:
it was stored elsewhere.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

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


@dataclass(slots=True, eq=False)
class WholeEntry:
    """An entry with metadata of its own, which are sent as they are: whoever replicates has rewritten them."""

    #: An encoded ``MessageMetadata``.
    metadata: bytes
    payload: bytes
    messages: int
    #: The ids of the command; the first must not descend from one entry to the next: receipts are told apart by it.
    sequence_id: int
    highest_sequence_id: int
    _: KW_ONLY
    is_chunk: bool = False
    #: Written by a broker and for brokers: it counts as no message.
    is_marker: bool = False
    #: None: it is in none.
    txn: TransactionCore | None = None
