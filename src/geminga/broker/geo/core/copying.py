"""What of a topic goes to another cluster, and what becomes of its metadata. Pure.

An entry is copied as it is: batched, compressed, encrypted and in parts alike, for nothing but its metadata is written
anew. They say where it comes from (``replicated_from``), so that it is never sent back or on, and where it was stored
there, so that a repetition is known (:mod:`geminga.broker.core.dedup_source`). A transaction's id goes: what is copied
is committed, and the other cluster knows nothing of the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from geminga.model.errors import StorageError
from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import SOURCE_POSITION, split_entry
from geminga.wire.pulsar.subscription_markers import TRAVELLING

Hides = Callable[[Position, pb.MessageMetadata], bool]
Hears = Callable[[Position, pb.MessageMetadata, bytes], None]


class Copy(NamedTuple):
    """An entry for another cluster."""

    metadata: pb.MessageMetadata
    payload: bytes

    @property
    def messages(self) -> int:
        """How many messages it is, as its metadata say; a marker is none."""
        return 0 if self.metadata.marker_type else max(1, self.metadata.num_messages_in_batch)

    @property
    def is_chunk(self) -> bool:
        """Whether it is a part of a larger message."""
        return self.metadata.num_chunks_from_msg > 1


class UnreadableError(StorageError):
    """An entry can not be parsed: it is not passed over, for then nobody would hear of it."""


def copy_of(
    entry: bytes, position: Position, local: str, remote: str, hides: Sequence[Hides] = (), hear: Hears | None = None
) -> Copy | None:
    """What is sent to the cluster ``remote`` of an entry of the cluster ``local``; None: nothing.

    ``hear`` is told of markers, whatever becomes of them. ``hides``: who may say that an entry is for no reader (an
    aborted transaction's). Raises UnreadableError.
    """
    metadata, offset = split_entry(entry)
    if metadata is None:
        raise UnreadableError(f"the entry at {position} can not be parsed")
    if hear is not None and metadata.marker_type:
        hear(position, metadata, entry[offset:])
    if metadata.replicated_from:
        return None
    if metadata.HasField("marker_type") and metadata.marker_type not in TRAVELLING:
        return None
    if metadata.replicate_to and remote not in metadata.replicate_to:
        return None
    for hide in hides:
        if hide(position, metadata):
            return None
    metadata.replicated_from = local
    for field in ("txnid_most_bits", "txnid_least_bits"):
        metadata.ClearField(field)
    properties = metadata.properties
    for index in range(len(properties) - 1, -1, -1):
        if properties[index].key == SOURCE_POSITION:
            del properties[index]
    properties.add(key=SOURCE_POSITION, value=f"{position.ledger_id}:{position.entry_id}")
    return Copy(metadata, entry[offset:])
