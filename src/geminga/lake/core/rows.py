"""Entries become rows, column by column. Pure; ``docs/formats/lake.md`` says what each column holds.

What all rows of an entry share is kept once for the entry and laid out when the rows are taken, so that a message of a
batch costs what is its own.
"""

from __future__ import annotations

import base64
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from geminga.lake.core.rebuild import rebuild
from geminga.model.errors import CorruptionError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_batch
from geminga.wire.pulsar.compression import DecompressionError, decompress
from geminga.wire.pulsar.metadata import (
    broker_entry_metadata,
    checksum_matches,
    message_offset,
    split_entry,
    text_of,
    texts_of,
)
from geminga.wire.pulsar.schema_info import SCHEMA_VERSION_BYTES
from geminga.wire.pulsar.varint import encode_varint

MESSAGE: Final = "message"
CHUNK: Final = "chunk"
ENCRYPTED: Final = "encrypted"
UNDECODABLE: Final = "undecodable"
MARKER: Final = "marker"
ABORTED: Final = "aborted"
COMPACTED: Final = "compacted"

#: More is not decompressed: the entry is kept as it is.
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
#: A batch of more messages, or with more bytes of their metadata, is not taken apart: a message takes about a kilobyte
#: of memory on its way, whatever little it had in the entry.
ENTRY_ROWS_MAX: Final = 1 << 17
HEADS_BYTES_MAX: Final = 8 * 1024 * 1024
#: Nor is one whose metadata that all of its messages share would take more when each row has them.
SHARED_BYTES_MAX: Final = 64 * 1024 * 1024
#: What a list takes for each of its values, beside the value.
_VALUE_BYTES: Final = 8
#: Of a file, whose schemas are looked up and written beside the rows: clients may write any number there.
SCHEMA_VERSIONS_MAX: Final = 1000
#: A rebuilt entry of more bytes than this and than the stored one would not go through a frame that the stored one did.
REBUILT_BYTES_MAX: Final = 4 * 1024 * 1024
#: The last millisecond of the year 9999: what lies behind it is no time to most readers.
TIME_MS_MAX: Final = 253_402_300_799_999
#: Of a message's metadata in a batch, before them.
_SIZE_BYTES: Final = 4
_LONG_BITS: Final = 64
_LONG_MAX: Final = (1 << 63) - 1
#: The first byte of a number that is not negative.
_SIGN_MAX: Final = 0x7F
_UNSIGNED: Final = (1 << _LONG_BITS) - 1
_NO_PROPERTIES: Final[list[tuple[str, str]]] = []
#: Batch sizes whose ends of message ids are remembered, and up to which size: clients choose it.
_ID_ENDS_CACHED_MAX: Final = 64
_ID_ENDS_SIZE_MAX: Final = 4096

#: Columns of which an entry has one value.
OF_ENTRY: Final = (
    "entry",
    "batch_size",
    "publish_time",
    "broker_time",
    "producer_name",
    "schema_version",
    "replicated_from",
    "replicate_to",
    "txn_most",
    "txn_least",
    "deliver_at",
    "chunk_uuid",
    "chunk_id",
    "chunk_count",
    "chunked_bytes",
    "marker_type",
)
#: Columns of which each message has one.
OF_MESSAGE: Final = (
    "batch_index",
    "kind",
    "index",
    "event_time",
    "key",
    "key_is_base64",
    "key_is_null",
    "ordering_key",
    "value",
    "value_is_null",
    "properties",
    "sequence_id",
    "entry_head",
    "message_head",
    "raw",
    "message_id",
)


class UndividedEntry(NamedTuple):
    """One that is kept as it is stored, in its place among the rows."""

    #: Rows before it that are messages of their own.
    row: int
    entry_id: int
    #: None: no reader gets it.
    entry: bytes | None


class KeyRows(NamedTuple):
    """Of the messages of a row group, in order; what is stored whole stands apart."""

    #: As they were sent. None: without one.
    keys: Sequence[bytes | None]
    #: A byte for each, not 0: its value is empty or null; an earlier compaction left it out.
    is_empty: bytes
    is_gone: bytes
    stored: Sequence[UndividedEntry]
    #: When each was published, by the broker's clock where it noted that; empty: nobody asked.
    times_ms: Sequence[int]


class EntryRun(NamedTuple):
    """An entry of a row group."""

    entry_id: int
    #: Messages that are rows of their own; 0: it is stored whole.
    messages: int


class TakenRows(NamedTuple):
    """Rows of whole entries."""

    rows: int
    #: Of each entry, by column, and how many rows each entry has.
    of_entry: dict[str, list[Any]]
    counts: list[int]
    #: Of each row, by column.
    of_message: dict[str, list[Any]]


class RowBuffer:
    """Rows of entries as they come, until they are taken."""

    __slots__ = (
        "_counts",
        "_id_begin",
        "_id_partition",
        "_of_entry",
        "_of_message",
        "held_bytes",
        "payload_bytes",
        "row_count",
        "schema_versions",
    )

    def __init__(self, ledger_id: int, partition: int) -> None:
        """``partition``: -1 for a topic without."""
        self._id_begin = b"\x08" + encode_varint(ledger_id & _UNSIGNED) + b"\x10"
        self._id_partition = b"" if partition < 0 else b"\x18" + encode_varint(partition)
        #: The first schema versions that entries so far name, :data:`SCHEMA_VERSIONS_MAX` at most.
        self.schema_versions: set[bytes] = set()
        self._clear()

    def _clear(self) -> None:
        self.row_count = 0
        #: Of values and raw entries.
        self.payload_bytes = 0
        #: Of everything, about: what is not payload is there as it was stored and in columns.
        self.held_bytes = 0
        self._counts: list[int] = []
        self._of_entry: dict[str, list[Any]] = {name: [] for name in OF_ENTRY}
        self._of_message: dict[str, list[Any]] = {name: [] for name in OF_MESSAGE}

    def take(self) -> TakenRows:
        """What there is; the next entry begins anew."""
        taken = TakenRows(self.row_count, self._of_entry, self._counts, self._of_message)
        self._clear()
        return taken

    def add(self, entry_id: int, entry: bytes, *, is_aborted: bool = False) -> None:
        """The next entry. ``is_aborted``: it belongs to a transaction that was aborted."""
        metadata, offset = split_entry(entry)
        if metadata is None or not checksum_matches(entry[message_offset(entry) :]):
            self._add_raw(entry_id, entry, pb.MessageMetadata(), UNDECODABLE)
            return
        kind = _kind(metadata, is_aborted=is_aborted)
        if kind != MESSAGE:
            self._add_raw(entry_id, entry, metadata, kind)
            return
        try:
            size = metadata.uncompressed_size if metadata.compression else len(entry) - offset
            if size > DECOMPRESSED_BYTES_MAX:
                raise DecompressionError(f"{size} bytes")
            is_batch = metadata.HasField("num_messages_in_batch")
            if is_batch and not _fits(metadata, metadata.num_messages_in_batch):
                raise ValueError(f"a batch of {metadata.num_messages_in_batch} messages")
            payload = decompress(metadata.compression, entry[offset:], size)
            if is_batch:
                messages = decode_batch(payload, metadata.num_messages_in_batch, heads_bytes_max=HEADS_BYTES_MAX)
            else:
                messages = None
        except (DecompressionError, ValueError):
            self._add_raw(entry_id, entry, metadata, UNDECODABLE)
            return
        if messages is None:
            self._add_single(entry_id, entry, offset, metadata, payload)
        elif messages:
            self._add_batch(entry_id, entry, offset, metadata, payload, messages)
        else:
            self._add_raw(entry_id, entry, metadata, UNDECODABLE)

    def _id(self, entry_id: int) -> bytes:
        """The serialized message id of an entry that is one message, and how those of a batch begin."""
        return self._id_begin + encode_varint(entry_id & _UNSIGNED) + self._id_partition

    # ---- one entry

    def _share(
        self, entry_id: int, entry: bytes, metadata: pb.MessageMetadata, batch_size: int, rows: int
    ) -> int | None:
        """Columns of the entry; its index, if the broker gave it one."""
        columns = self._of_entry
        broker = broker_entry_metadata(entry)
        has_txn = metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits")
        is_chunk = metadata.num_chunks_from_msg > 1
        is_known = metadata.HasField("producer_name")
        schema_version = metadata.schema_version if metadata.HasField("schema_version") else None
        if (
            schema_version
            and len(schema_version) == SCHEMA_VERSION_BYTES  # what the registry gives: no other names any
            and schema_version[0] <= _SIGN_MAX
            and len(self.schema_versions) < SCHEMA_VERSIONS_MAX
        ):
            self.schema_versions.add(schema_version)
        columns["entry"].append(entry_id)
        columns["batch_size"].append(batch_size)
        columns["publish_time"].append(_time(metadata.publish_time) if is_known else None)
        columns["broker_time"].append(
            _time(broker.broker_timestamp) if broker is not None and broker.HasField("broker_timestamp") else None
        )
        columns["producer_name"].append(text_of(metadata.producer_name) if is_known else None)
        columns["schema_version"].append(schema_version)
        columns["replicated_from"].append(
            text_of(metadata.replicated_from) if metadata.HasField("replicated_from") else None
        )
        columns["replicate_to"].append([text_of(cluster) for cluster in metadata.replicate_to])
        columns["txn_most"].append(_signed(metadata.txnid_most_bits) if has_txn else None)
        columns["txn_least"].append(_signed(metadata.txnid_least_bits) if has_txn else None)
        columns["deliver_at"].append(_time(metadata.deliver_at_time) if metadata.HasField("deliver_at_time") else None)
        columns["chunk_uuid"].append(text_of(metadata.uuid) if is_chunk else None)
        columns["chunk_id"].append(metadata.chunk_id if is_chunk else None)
        columns["chunk_count"].append(metadata.num_chunks_from_msg if is_chunk else None)
        columns["chunked_bytes"].append(metadata.total_chunk_msg_size if is_chunk else None)
        columns["marker_type"].append(metadata.marker_type if metadata.HasField("marker_type") else None)
        self._counts.append(rows)
        self.row_count += rows
        index = _signed(broker.index) if broker is not None and broker.HasField("index") else -1
        # What a client wrote there may be any number.
        return index if index >= rows - 1 else None

    def _add_raw(self, entry_id: int, entry: bytes, metadata: pb.MessageMetadata, kind: str) -> None:
        is_batch = kind != UNDECODABLE and metadata.HasField("num_messages_in_batch")
        index = self._share(entry_id, entry, metadata, metadata.num_messages_in_batch if is_batch else 0, 1)
        self._add_message(metadata, kind, None)
        columns = self._of_message
        columns["batch_index"].append(-1)
        columns["index"].append(index)
        columns["entry_head"].append(None)
        columns["message_head"].append(None)
        columns["raw"].append(entry)
        columns["message_id"].append(None)
        self.payload_bytes += len(entry)
        self.held_bytes += 2 * len(entry)

    def _add_single(
        self, entry_id: int, entry: bytes, offset: int, metadata: pb.MessageMetadata, payload: bytes
    ) -> None:
        index = self._share(entry_id, entry, metadata, 0, 1)
        self._add_message(metadata, MESSAGE, payload)
        is_lossy = metadata.null_value and payload != b""
        columns = self._of_message
        columns["batch_index"].append(-1)
        columns["index"].append(index)
        columns["entry_head"].append(entry[:offset])
        columns["message_head"].append(None)
        columns["raw"].append(entry if is_lossy or _grows(entry, offset, metadata, payload) else None)
        columns["message_id"].append(self._id(entry_id))
        self.payload_bytes += len(payload)
        self.held_bytes += len(payload) + 2 * offset

    def _add_batch(
        self,
        entry_id: int,
        entry: bytes,
        offset: int,
        metadata: pb.MessageMetadata,
        payload: bytes,
        messages: list[tuple[pb.SingleMessageMetadata, bytes]],
    ) -> None:
        count = len(messages)
        index = self._share(entry_id, entry, metadata, count, count)
        columns = self._of_message
        heads: list[bytes] = []
        position = 0
        is_lossy = False
        begin = self._id(entry_id)
        ends = _id_ends(count) if count <= _ID_ENDS_SIZE_MAX else _id_ends.__wrapped__(count)
        ids = columns["message_id"]
        for (single, value), id_end in zip(messages, ends, strict=True):
            ids.append(None if single.compacted_out else begin + id_end)
            end = position + 4 + int.from_bytes(payload[position : position + 4], "big")
            heads.append(payload[position:end])
            position = end + len(value)
            is_lossy = is_lossy or (single.null_value and value != b"")
            self._add_message(single, COMPACTED if single.compacted_out else MESSAGE, value)
        is_lossy = is_lossy or position != len(payload)
        columns["batch_index"] += range(count)
        columns["index"] += [None] * count if index is None else range(index - count + 1, index + 1)
        columns["entry_head"] += [entry[:offset], *[None] * (count - 1)]
        columns["message_head"] += heads
        raw = entry if is_lossy or _grows(entry, offset, metadata, payload) else None
        columns["raw"] += [raw, *[None] * (count - 1)]
        self.payload_bytes += len(payload)
        self.held_bytes += len(payload) + sum(map(len, heads)) + 2 * offset + count * _shared_bytes(metadata)

    def _add_message(
        self, metadata: pb.MessageMetadata | pb.SingleMessageMetadata, kind: str, value: bytes | None
    ) -> None:
        """What a message has of its own, wherever it is written."""
        columns = self._of_message
        is_null = metadata.null_value
        columns["kind"].append(kind)
        columns["value"].append(None if is_null else value)
        columns["value_is_null"].append(is_null)
        columns["event_time"].append(_time(metadata.event_time) or None)
        is_base64 = metadata.partition_key_b64_encoded
        columns["key"].append(_key(metadata.partition_key, is_base64) if metadata.HasField("partition_key") else None)
        columns["key_is_base64"].append(is_base64)
        columns["key_is_null"].append(metadata.null_partition_key)
        columns["ordering_key"].append(metadata.ordering_key if metadata.HasField("ordering_key") else None)
        columns["properties"].append(
            list(texts_of(metadata.properties).items()) if metadata.properties else _NO_PROPERTIES
        )
        columns["sequence_id"].append(_signed(metadata.sequence_id) if metadata.HasField("sequence_id") else None)


def sent_keys(heads: Iterable[bytes | None], message_heads: Iterable[bytes | None]) -> Iterator[bytes | None]:
    """Of rows that are messages, their keys as they were sent, by the heads of their entries and in a batch their own.
    Raises CorruptionError."""
    for head, message_head in zip(heads, message_heads, strict=True):
        metadata: pb.MessageMetadata | pb.SingleMessageMetadata | None
        if message_head is not None:
            try:
                metadata = pb.SingleMessageMetadata.FromString(message_head[_SIZE_BYTES:])
            except DecodeError as error:
                raise CorruptionError(f"the head of a message can not be read: {error}") from error
        else:
            metadata = None if head is None else split_entry(head)[0]
        if metadata is None:
            raise CorruptionError("a message has no head")
        yield _sent(metadata.partition_key) if metadata.HasField("partition_key") else None


@lru_cache(maxsize=_ID_ENDS_CACHED_MAX)
def _id_ends(count: int) -> list[bytes]:
    """What the ids of a batch end with: index and size, fields 4 and 6 of ``MessageIdData``."""
    size = b"\x30" + encode_varint(count)
    return [b"\x20" + encode_varint(index) + size for index in range(count)]


def _fits(metadata: pb.MessageMetadata, count: int) -> bool:
    """Whether a batch is taken apart, as far as its size goes."""
    return count <= ENTRY_ROWS_MAX and count * _shared_bytes(metadata) <= SHARED_BYTES_MAX


def _shared_bytes(metadata: pb.MessageMetadata) -> int:
    """What each row of an entry has of its metadata that has no size of its own."""
    texts = (metadata.producer_name, metadata.schema_version, metadata.replicated_from)
    listed = sum(map(len, metadata.replicate_to)) + _VALUE_BYTES * len(metadata.replicate_to)
    return sum(map(len, texts)) + listed


def _kind(metadata: pb.MessageMetadata, *, is_aborted: bool) -> str:
    if metadata.HasField("marker_type"):
        return MARKER
    if is_aborted:
        return ABORTED
    if metadata.encryption_keys:
        return ENCRYPTED
    return CHUNK if metadata.num_chunks_from_msg > 1 else MESSAGE


def _grows(entry: bytes, offset: int, metadata: pb.MessageMetadata, payload: bytes) -> bool:
    """Whether the rebuilt entry might be too large for who could read the stored one."""
    if not metadata.compression or len(payload) <= REBUILT_BYTES_MAX:
        return False
    rebuilt = len(rebuild(entry[:offset], payload))
    return rebuilt > REBUILT_BYTES_MAX and rebuilt > len(entry)


def _sent(key: str | bytes) -> bytes:
    return key if isinstance(key, bytes) else key.encode()


def _key(key: str | bytes, is_base64: bool) -> bytes:
    data = _sent(key)
    if is_base64:
        try:
            return base64.b64decode(data, validate=True)
        except Base64Error:
            return data
    return data


def _signed(number: int) -> int:
    return number if number <= _LONG_MAX else number - (1 << _LONG_BITS)


def _time(time_ms: int) -> int:
    if time_ms > _LONG_MAX:  # negative, as it was meant
        return 0
    return min(max(time_ms, 0), TIME_MS_MAX)
