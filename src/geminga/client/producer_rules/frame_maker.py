"""Messages and batches become SEND frames: metadata, compression, encryption, chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from geminga.client.producer_rules.batcher import Batch
from geminga.client.producer_rules.encoded_batch import EncodedBatch, WholeEntry
from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.producer_rules.send_queue import PendingSend, SendCallback
from geminga.client.rules.transaction import TransactionCore
from geminga.model.limits import FRAME_PADDING_BYTES
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import SEND_MARKER, SendEncoder, metadata_txn_fields, send_txn_fields
from geminga.wire.pulsar.compression import compress
from geminga.wire.pulsar.varint import encode_varint

#: Memory that a pending message takes beside its payload, bytes: a producer of empty messages is limited too.
MESSAGE_OVERHEAD_BYTES: Final = 64

#: What a SEND command and the lengths around it take at most.
_COMMAND_BYTES_MAX: Final = 256

#: Encrypts a payload and notes in the metadata how.
Encrypt = Callable[[pb.MessageMetadata, bytes], bytes]


class TooBig(Exception):
    """What would be sent is larger than the broker takes."""


class FrameMaker:
    """Makes the frames of one producer."""

    __slots__ = (
        "_compression",
        "_encoder",
        "_encrypt",
        "_fields_of_txn",
        "_head",
        "_is_plain",
        "_tail",
        "_txn",
        "chunk_bytes_max",
        "is_chunking",
        "message_bytes_max",
        "producer_name",
        "schema_version",
    )

    def __init__(
        self,
        producer_id: int,
        *,
        compression: int,
        is_chunking: bool,
        chunk_bytes_max: int,
        encrypt: Encrypt | None = None,
    ) -> None:
        self._encoder = SendEncoder(producer_id)
        self._compression = compression
        self._encrypt = encrypt
        self.is_chunking = is_chunking
        #: Largest chunk; 0: as large as the broker takes.
        self.chunk_bytes_max = chunk_bytes_max
        #: Known once connected, as the next two.
        self.message_bytes_max = 0
        self.producer_name = ""
        self.schema_version = b""
        #: Nothing is done to payloads; the metadata of a message that is nothing but bytes is the head, its sequence
        #: id and publish time, and the tail.
        self._is_plain = not (compression or is_chunking or encrypt)
        self._head = self._tail = b""
        #: The transaction of the last frame, and its fields of commands and of metadata.
        self._txn: TransactionCore | None = None
        self._fields_of_txn = (b"", b"")

    def connected(self, producer_name: str, message_bytes_max: int, schema_version: bytes) -> None:
        """What PRODUCER_SUCCESS and CONNECTED said; an empty schema version leaves the one before."""
        self.producer_name, self.message_bytes_max = producer_name, message_bytes_max
        self.schema_version = schema_version or self.schema_version
        head = pb.MessageMetadata(producer_name=producer_name).SerializePartialToString()
        self._head = head + b"\x10"
        self._tail = b""
        if self.schema_version:
            self._tail = pb.MessageMetadata(schema_version=self.schema_version).SerializePartialToString()

    def batch(self, batch: Batch, next_sequence_id: int, publish_time_ms: int) -> PendingSend:
        """One entry of a batch's messages; a single message travels without batch. Raises TooBig."""
        count = len(batch)
        first, last = batch.sequence_ids(next_sequence_id)
        if count == 1:
            callback = batch.callbacks[0][1] if batch.callbacks else None
            return self.message(batch.message(0), first, callback, batch.opened_s, publish_time_ms)[0]
        payload = batch.encode(first)
        if self._is_plain and not batch.specials and len(payload) <= self.message_bytes_max:
            txn_command, txn_metadata = self._txn_fields(batch.txn)
            head = self._head + encode_varint(first) + b"\x18" + encode_varint(publish_time_ms) + b"\x58"
            head += encode_varint(count) + self._tail + txn_metadata + b"\xc0\x01" + encode_varint(last)
            frame = self._encoder.encode(
                head, payload, first, highest_sequence_id=last, messages=count, txn_fields=txn_command
            )
        else:
            metadata = self._metadata(batch.message(0), first, publish_time_ms, is_batch=True)
            metadata.num_messages_in_batch = count
            if last != first:
                metadata.highest_sequence_id = last
            frame = self._frame(metadata, payload, first, last, count)
        size = batch.size_bytes + MESSAGE_OVERHEAD_BYTES * count
        return PendingSend(frame, first, last, count, size, batch.opened_s, batch.callbacks)

    def encoded(
        self, batch: EncodedBatch, callback: SendCallback | None, now_s: float, publish_time_ms: int
    ) -> PendingSend:
        """One entry of messages that are encoded already; also a single one travels as batch. Raises TooBig."""
        first, last, count = batch.first_sequence_id, batch.highest_sequence_id, batch.messages
        keys = EncodedMessage(
            b"",
            partition_key=batch.partition_key,
            is_key_base64=batch.is_key_base64,
            ordering_key=batch.ordering_key,
            txn=batch.txn,
        )
        metadata = self._metadata(keys, first, publish_time_ms, is_batch=True)
        metadata.num_messages_in_batch = count
        if last != first:
            metadata.highest_sequence_id = last
        frame = self._frame(metadata, batch.payload, first, last, count)
        callbacks = [(-1, callback)] if callback is not None else None
        return PendingSend(
            frame, first, last, count, len(batch.payload) + MESSAGE_OVERHEAD_BYTES * count, now_s, callbacks
        )

    def whole(self, entry: WholeEntry, now_s: float) -> PendingSend:
        """An entry as it is, metadata and all. Raises TooBig."""
        head, payload = entry.metadata, entry.payload
        if len(payload) > self.message_bytes_max:
            raise TooBig(f"{len(payload)} bytes, while the broker takes {self.message_bytes_max}")
        self._check_head(len(head), len(payload))
        first, last = entry.sequence_id, entry.highest_sequence_id
        frame = self._encoder.encode(
            head,
            payload,
            first,
            highest_sequence_id=last,
            messages=entry.messages,
            is_chunk=entry.is_chunk,
            txn_fields=SEND_MARKER if entry.is_marker else b"",
        )
        size = len(head) + len(payload) + MESSAGE_OVERHEAD_BYTES
        return PendingSend(frame, first, last, entry.messages, size, now_s, None)

    def plain_message(
        self, payload: bytes, txn: TransactionCore, sequence_id: int, now_s: float, publish_time_ms: int
    ) -> PendingSend | None:
        """A message in a transaction that is nothing but bytes, and that nobody waits for; None: :meth:`message` is to
        make it."""
        if not self._is_plain or len(payload) > self.message_bytes_max:
            return None
        txn_command, txn_metadata = self._fields_of_txn if txn is self._txn else self._txn_fields(txn)
        head = self._head + encode_varint(sequence_id) + b"\x18" + encode_varint(publish_time_ms) + self._tail
        frame = self._encoder.encode(
            head + txn_metadata, payload, sequence_id, highest_sequence_id=sequence_id, txn_fields=txn_command
        )
        return PendingSend(frame, sequence_id, sequence_id, 1, len(payload) + MESSAGE_OVERHEAD_BYTES, now_s, None)

    def message(
        self,
        message: EncodedMessage,
        sequence_id: int,
        callback: SendCallback | None,
        now_s: float,
        publish_time_ms: int,
    ) -> list[PendingSend]:
        """One message alone, in several chunks if it must be and may be. Raises TooBig."""
        callbacks = [(-1, callback)] if callback is not None else None
        if self._is_plain and message.is_plain and len(message.payload) <= self.message_bytes_max:
            head = self._head + encode_varint(sequence_id) + b"\x18" + encode_varint(publish_time_ms) + self._tail
            txn_command = b""
            if message.txn is not None:
                txn_command, txn_metadata = self._txn_fields(message.txn)
                head += txn_metadata
            frame = self._encoder.encode(
                head, message.payload, sequence_id, highest_sequence_id=sequence_id, txn_fields=txn_command
            )
            size = len(message.payload) + MESSAGE_OVERHEAD_BYTES
            return [PendingSend(frame, sequence_id, sequence_id, 1, size, now_s, callbacks)]
        metadata = self._metadata(message, sequence_id, publish_time_ms, is_batch=False)
        payload = self._compress(metadata, message.payload)
        limit = self.chunk_bytes_max or self.message_bytes_max
        if self.is_chunking and len(payload) + metadata.ByteSize() > limit:
            return self._chunks(metadata, payload, sequence_id, callbacks, now_s)
        frame = self._finish(metadata, payload, sequence_id, sequence_id, 1)
        size = len(message.payload) + MESSAGE_OVERHEAD_BYTES
        return [PendingSend(frame, sequence_id, sequence_id, 1, size, now_s, callbacks)]

    def _chunks(
        self,
        metadata: pb.MessageMetadata,
        payload: bytes,
        sequence_id: int,
        callbacks: list[tuple[int, SendCallback]] | None,
        now_s: float,
    ) -> list[PendingSend]:
        metadata.uuid = f"{self.producer_name}-{sequence_id}"
        metadata.total_chunk_msg_size = len(payload)
        metadata.num_chunks_from_msg = metadata.chunk_id = len(payload)  # as long as they will get
        limit = min(self.chunk_bytes_max or self.message_bytes_max, self.message_bytes_max)
        room = limit - metadata.ByteSize()
        if self._encrypt is not None:
            encrypted = pb.MessageMetadata()
            encrypted.CopyFrom(metadata)
            room = limit - (len(self._encrypt(encrypted, b"")) + encrypted.ByteSize())
        if room <= 0:
            raise TooBig(f"the metadata alone has more bytes than a chunk may have ({limit})")
        count = -(-len(payload) // room)
        metadata.num_chunks_from_msg = count
        shared: list[tuple[int, int]] = []
        chunks = []
        for index in range(count):
            metadata.chunk_id = index
            part = payload[index * room : (index + 1) * room]
            is_last = index == count - 1
            frame = self._finish(metadata, part, sequence_id, sequence_id, 1, is_chunk=True)
            size = len(part) + MESSAGE_OVERHEAD_BYTES
            pending = PendingSend(
                frame, sequence_id, sequence_id, int(is_last), size, now_s, callbacks if is_last else None
            )
            pending.chunk_index, pending.chunks, pending.first_chunk_id = index, count, shared
            chunks.append(pending)
        return chunks

    def _txn_fields(self, txn: TransactionCore | None) -> tuple[bytes, bytes]:
        """Of the command, and of the metadata; remembered, for the next message is the same transaction's as a rule."""
        if txn is not self._txn:
            self._txn = txn
            self._fields_of_txn = (b"", b"")
            if txn is not None:
                self._fields_of_txn = (send_txn_fields(*txn.txn_id), metadata_txn_fields(*txn.txn_id))
        return self._fields_of_txn

    def _metadata(
        self, message: EncodedMessage, sequence_id: int, publish_time_ms: int, *, is_batch: bool
    ) -> pb.MessageMetadata:
        metadata = pb.MessageMetadata(
            producer_name=self.producer_name, sequence_id=sequence_id, publish_time=publish_time_ms
        )
        if self.schema_version:
            metadata.schema_version = self.schema_version
        # Of a batch: the first message's keys, as all clients do, so that Key_Shared has something to go by.
        if message.partition_key is not None:
            metadata.partition_key = message.partition_key
            if message.is_key_base64:
                metadata.partition_key_b64_encoded = True
        if message.ordering_key is not None:
            metadata.ordering_key = message.ordering_key
        if message.txn is not None:
            metadata.txnid_most_bits, metadata.txnid_least_bits = message.txn.txn_id
        if is_batch:
            return metadata
        if message.properties:
            for name, value in message.properties.items():
                metadata.properties.add(key=name, value=value)
        if message.event_time_ms is not None:
            metadata.event_time = message.event_time_ms
        if message.deliver_at_ms is not None:
            metadata.deliver_at_time = message.deliver_at_ms
        if message.replicate_to is not None:
            metadata.replicate_to.extend(message.replicate_to)
        if message.is_null:
            metadata.null_value = True
        return metadata

    def _frame(self, metadata: pb.MessageMetadata, payload: bytes, first: int, last: int, count: int) -> bytes:
        return self._finish(metadata, self._compress(metadata, payload), first, last, count)

    def _compress(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        if not self._compression or not payload:  # the C++ client can not inflate nothing
            return payload
        metadata.compression = cast("pb.CompressionType", self._compression)
        metadata.uncompressed_size = len(payload)
        return compress(self._compression, payload)

    def _finish(
        self,
        metadata: pb.MessageMetadata,
        payload: bytes,
        first: int,
        last: int,
        count: int,
        *,
        is_chunk: bool = False,
    ) -> bytes:
        if self._encrypt is not None:
            payload = self._encrypt(metadata, payload)
        if len(payload) > self.message_bytes_max:
            raise TooBig(f"{len(payload)} bytes, while the broker takes {self.message_bytes_max}")
        head = metadata.SerializeToString()
        txn_fields = b""
        if metadata.HasField("txnid_most_bits"):
            txn_fields = send_txn_fields(metadata.txnid_most_bits, metadata.txnid_least_bits)
        self._check_head(len(head), len(payload))
        return self._encoder.encode(
            head, payload, first, highest_sequence_id=last, messages=count, is_chunk=is_chunk, txn_fields=txn_fields
        )

    def _check_head(self, metadata_bytes: int, payload_bytes: int) -> None:
        if metadata_bytes + payload_bytes > self.message_bytes_max + FRAME_PADDING_BYTES - _COMMAND_BYTES_MAX:
            raise TooBig(f"{metadata_bytes} bytes of properties and keys are more than the broker takes")
