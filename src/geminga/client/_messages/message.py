"""``Message``: one received message, a view of its :class:`~geminga.client.EntryBatch`.

Two references and nothing else: what it says is read from the entry when asked. Names are the official client's.

Texts that another client sent and that are no UTF-8 are read as Java reads them, with U+FFFD for what can not be;
``key_bytes`` and ``ordering_key_bytes`` give what was sent.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Final, Generic, Never, TypeVar, cast

from geminga.client._api.message_id import MessageId
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batches.batch_layout import HAS_KEY, IS_NULL_VALUE, KEY_IS_BASE64
from geminga.wire.pulsar.metadata import text_of, texts_of

if TYPE_CHECKING:
    from geminga.client._messages.entry_batch import EntryBatch


T = TypeVar("T")

#: Looked up once: an id a message is made.
_make_id: Final = tuple.__new__


class EncryptionContext:
    """How a message was encrypted: for those that are handed out undecrypted."""

    __slots__ = ("algorithm", "batch_size", "compression_type", "keys", "param", "uncompressed_message_size")

    def __init__(self, metadata: pb.MessageMetadata) -> None:
        #: Name of each key -> (the encrypted data key, its metadata).
        self.keys: dict[str, tuple[bytes, dict[str, str]]] = {
            text_of(key.key): (key.value, texts_of(key.metadata)) for key in metadata.encryption_keys
        }
        #: Initialization vector of the cipher.
        self.param: bytes = metadata.encryption_param
        #: Empty for Pulsar's AES-GCM.
        self.algorithm: str = text_of(metadata.encryption_algo)
        #: Number of ``CompressionType`` that was used before encryption.
        self.compression_type: int = metadata.compression
        #: Bytes after decryption and decompression.
        self.uncompressed_message_size: int = metadata.uncompressed_size
        #: Messages of the batch, -1 if it is none.
        self.batch_size: int = metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else -1


class Message(Generic[T]):
    """One message. Cheap to make, and as cheap to keep as its whole entry, which it holds."""

    __slots__ = ("_entry", "_index")

    def __init__(self, entry: EntryBatch, index: int) -> None:
        self._entry = entry
        self._index = index

    def __copy__(self) -> Message[T]:
        return Message(self._entry, self._index)

    def __reduce__(self) -> Never:
        raise TypeError("a message stays in its process: hand on its data(), value(), properties() or message_id()")

    # ---- content

    def data(self) -> bytes:
        """The payload."""
        entry = self._entry
        index = self._index
        return entry.data[entry._payload_starts[index] : entry._payload_ends[index]]

    def value(self) -> T | None:
        """The payload decoded by the consumer's schema; the payload itself without one; None for a null value.

        Raises ``SchemaSerializationError`` if it does not fit the schema.
        """
        entry = self._entry
        decoder = None if entry.source is None else entry.source.decoder
        if entry.flags[self._index] & IS_NULL_VALUE:
            return None
        if decoder is None:
            return cast("T", self.data())
        value = decoder.decode(
            self.data(),
            schema_version=entry.metadata.schema_version,
            key=self.key_bytes() if self.has_key() else None,
        )
        return cast("T", value)

    def has_null_value(self) -> bool:
        """Whether it is a tombstone: a message without a value, that removes its key from a compacted topic."""
        return bool(self._entry.flags[self._index] & IS_NULL_VALUE)

    def properties(self) -> dict[str, str]:
        """The application's properties."""
        entry = self._entry
        return texts_of(entry.message_metadata(self._index).properties if entry.is_batch else entry.metadata.properties)

    def partition_key(self) -> str:
        """The key as it travels (bytes keys are base64), empty if it has none."""
        entry = self._entry
        index = self._index
        starts, ends = entry._key_starts, entry._key_ends
        if starts is None or ends is None:
            return entry.partition_key(index)
        key = entry.data[starts[index] : ends[index]]
        try:
            return key.decode()
        except UnicodeDecodeError:
            return key.decode("utf-8", "replace")

    def has_key(self) -> bool:
        """Whether it has a key."""
        return bool(self._entry.flags[self._index] & HAS_KEY)

    def has_base64_key(self) -> bool:
        """Whether the key is bytes, and travels as base64."""
        return bool(self._entry.flags[self._index] & KEY_IS_BASE64)

    def key_bytes(self) -> bytes:
        """The key as bytes: decoded if it travelled as base64, else as it is on the wire, also if it is no UTF-8."""
        entry = self._entry
        key = entry.key_as_sent(self._index)
        if entry.flags[self._index] & KEY_IS_BASE64:
            try:
                return b64decode(key, validate=True)
            except Base64Error:
                return key
        return key

    def ordering_key(self) -> str:
        """What Key_Shared orders by instead of the key, empty if it has none."""
        return self.ordering_key_bytes().decode("utf-8", "replace")

    def ordering_key_bytes(self) -> bytes:
        """The ordering key as it is on the wire."""
        entry = self._entry
        key: bytes = entry.message_metadata(self._index).ordering_key if entry.is_batch else entry.metadata.ordering_key
        return key

    # ---- origin

    def message_id(self) -> MessageId:
        """Where it lies."""
        entry = self._entry
        return _make_id(MessageId, (self._index if entry.is_batch else -1, entry._id_base or entry.id_base()))

    def topic_name(self) -> str:
        """The topic it came from, a partition by its own name."""
        return self._entry.topic_name

    def producer_name(self) -> str:
        """Who sent it."""
        return text_of(self._entry.metadata.producer_name)

    def publish_timestamp(self) -> int:
        """When the producer sent it, milliseconds since the epoch."""
        timestamp: int = self._entry.metadata.publish_time
        return timestamp

    def event_timestamp(self) -> int:
        """The application's own time of it, milliseconds since the epoch; 0 if not given."""
        entry = self._entry
        timestamp: int = entry.message_metadata(self._index).event_time if entry.is_batch else entry.metadata.event_time
        return timestamp

    def sequence_id(self) -> int:
        """The producer's sequence id."""
        entry = self._entry
        sequence_id: int = entry.metadata.sequence_id
        if entry.is_batch:
            own = entry.message_metadata(self._index)
            sequence_id = own.sequence_id if own.HasField("sequence_id") else sequence_id + self._index
        return sequence_id

    def redelivery_count(self) -> int:
        """How often the broker delivered it before, as far as the broker remembers."""
        return self._entry.redelivery_count

    def schema_version(self) -> bytes:
        """Version of the schema it was written with, empty if there is none."""
        version: bytes = self._entry.metadata.schema_version
        return version

    def replicated_from(self) -> str:
        """The cluster it was first published in; empty if it is this one."""
        return text_of(self._entry.metadata.replicated_from)

    def index(self) -> int | None:
        """Its index in the topic, if the broker notes that; None otherwise."""
        noted = self._entry.broker_entry_metadata
        if noted is None or not noted.HasField("index"):
            return None
        # The broker notes the index of the entry's last message.
        return int(noted.index) - max(0, self._entry.batch_size - 1 - self._index)

    def broker_publish_timestamp(self) -> int | None:
        """When the broker took it, milliseconds since the epoch, if the broker notes that; None otherwise."""
        noted = self._entry.broker_entry_metadata
        if noted is None or not noted.HasField("broker_timestamp"):
            return None
        return int(noted.broker_timestamp)

    def encryption_context(self) -> EncryptionContext | None:
        """How it was encrypted; None if it was not."""
        metadata = self._entry.metadata
        return EncryptionContext(metadata) if metadata.encryption_keys else None

    def __repr__(self) -> str:
        return f"<Message {self.message_id()} of {self.topic_name()}, {len(self.data())} bytes>"


#: A message without its two references, for those who set them at once: a third less than the call of the class.
make_message: Final = Message.__new__
