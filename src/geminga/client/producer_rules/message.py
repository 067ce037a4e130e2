"""A message on its way into a frame: everything encoded except the frame itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from geminga.client.rules.transaction import TransactionCore


@dataclass(slots=True, eq=False)
class EncodedMessage:
    """What a producer sends as one message; ``payload`` is empty for a null value."""

    payload: bytes
    _: KW_ONLY
    properties: Mapping[str, str] | None = None
    partition_key: str | None = None
    #: The key is base64 of bytes.
    is_key_base64: bool = False
    ordering_key: bytes | None = None
    #: The user's own; None: the producer counts.
    sequence_id: int | None = None
    event_time_ms: int | None = None
    deliver_at_ms: int | None = None
    #: Clusters it goes to; None: as the namespace says.
    replicate_to: Sequence[str] | None = None
    is_null: bool = False
    #: The transaction it is sent in.
    txn: TransactionCore | None = None

    @property
    def is_batchable(self) -> bool:
        """Delayed messages travel alone, as those with their own list of clusters: a batch has one such field."""
        return self.deliver_at_ms is None and self.replicate_to is None

    @property
    def is_plain(self) -> bool:
        """Nothing but a payload, and perhaps a sequence id and a transaction."""
        return (
            self.partition_key is None
            and not self.properties
            and self.ordering_key is None
            and self.event_time_ms is None
            and self.deliver_at_ms is None
            and self.replicate_to is None
            and not self.is_null
        )

    @property
    def key(self) -> bytes | None:
        """What Key_Shared and key-based batches go by: the ordering key before the partition key."""
        if self.ordering_key is not None:
            return self.ordering_key
        return None if self.partition_key is None else self.partition_key.encode()
