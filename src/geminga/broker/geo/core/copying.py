"""What of a topic goes to another cluster, and what becomes of its metadata. Pure.

An entry is copied as it is: batched, compressed, encrypted and in parts alike, for nothing but its metadata is written
anew. They say where it comes from (``replicated_from``), so that it is never sent back or on, and where it was stored
there, so that a repetition is known (:mod:`geminga.broker.core.dedup_source`). A transaction's id goes: what is copied
is committed, and the other cluster knows nothing of the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from geminga.model.errors import StorageError
from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import SOURCE_POSITION, metadata_bytes, split_entry
from geminga.wire.pulsar.subscription_markers import TRAVELLING
from geminga.wire.pulsar.varint import encode_varint

_TXN_FIELDS: Final = ("txnid_most_bits", "txnid_least_bits")
_SOURCE: Final = SOURCE_POSITION.encode()
#: Of ``MessageMetadata``, and of ``KeyValue`` up to the size of the value.
_FROM_TAG: Final = b"\x2a"
_PROPERTY_TAG: Final = b"\x22"
_PAIR_HEAD: Final = b"\x0a" + encode_varint(len(_SOURCE)) + _SOURCE + b"\x12"

Hides = Callable[[Position, pb.MessageMetadata], bool]
Hears = Callable[[Position, pb.MessageMetadata, bytes], None]


class Copy(NamedTuple):
    """An entry for another cluster."""

    #: Encoded ``MessageMetadata``.
    metadata: bytes
    payload: bytes
    #: How many messages it is, as its metadata say; a marker is none.
    messages: int
    #: When it was published, ms since the epoch.
    published_ms: int
    #: Of this cluster; empty: it has none.
    schema_version: bytes
    #: Whether it is a part of a larger message.
    is_chunk: bool
    is_marker: bool

    def with_schema_version(self, version: bytes) -> Copy:
        """The same, under the number that its schema has over there."""
        if version == self.schema_version:
            return self
        metadata = pb.MessageMetadata.FromString(self.metadata)
        metadata.schema_version = version
        return self._replace(metadata=metadata.SerializePartialToString(), schema_version=version)


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
    marker = metadata.marker_type
    if hear is not None and marker:
        hear(position, metadata, entry[offset:])
    if metadata.replicated_from:
        return None
    if metadata.HasField("marker_type") and marker not in TRAVELLING:
        return None
    if metadata.replicate_to and remote not in metadata.replicate_to:
        return None
    for hide in hides:
        if hide(position, metadata):
            return None
    return Copy(
        _as_sent(entry, metadata) + _came_from(local, position),
        entry[offset:],
        0 if marker else max(1, metadata.num_messages_in_batch),
        metadata.publish_time,
        metadata.schema_version,
        metadata.num_chunks_from_msg > 1,
        marker != 0,
    )


def _as_sent(entry: bytes, metadata: pb.MessageMetadata) -> bytes:
    """The metadata without what is of this cluster alone: nearly always as they are stored."""
    encoded = metadata_bytes(entry)
    if _SOURCE not in encoded and not metadata.HasField(_TXN_FIELDS[0]) and not metadata.HasField(_TXN_FIELDS[1]):
        return encoded
    for field in _TXN_FIELDS:
        metadata.ClearField(field)
    properties = metadata.properties
    for index in range(len(properties) - 1, -1, -1):
        if properties[index].key == SOURCE_POSITION:
            del properties[index]
    # A client may have sent them without a field that they need; they are copied as they are.
    return metadata.SerializePartialToString()


def _came_from(local: str, position: Position) -> bytes:
    """``replicated_from`` and the property of the source position: fields are in any order, so they stand last."""
    place = b"%d:%d" % position
    pair = _PAIR_HEAD + bytes((len(place),)) + place
    cluster = local.encode()
    return b"".join((_FROM_TAG, encode_varint(len(cluster)), cluster, _PROPERTY_TAG, encode_varint(len(pair)), pair))
