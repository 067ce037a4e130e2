"""MESSAGE frames in, :class:`EntryBatch` out: checksum, decryption, decompression, chunks put together.

What can not be read is told to the consumer as :class:`Discard`, never handed out: damaged bytes and broken batches are
acknowledged with the reason, what can not be decrypted goes by the consumer's ``crypto_failure_action``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from google.protobuf.message import DecodeError

from geminga.client._api.crypto import KeyMissing
from geminga.client._api.errors import CryptoError
from geminga.client._api.message_id import MessageId
from geminga.client._messages.consumer_options import ConsumerCryptoFailureAction
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.single_entry import single_entry
from geminga.client.consumer_rules.chunk_assembly import Chunk, ChunkAssembly
from geminga.client.consumer_rules.discards import Discard
from geminga.client.consumer_rules.prefetch import permits_of
from geminga.model.crc32c import crc32c
from geminga.runtime import get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batches.batch_layout import BatchFormatError
from geminga.wire.pulsar.compression import DecompressionError, decompress
from geminga.wire.pulsar.consumer_codec import MessageHead, MessageHeadDecoder
from geminga.wire.pulsar.frame import Frame
from geminga.wire.pulsar.metadata import (
    MAGIC_BROKER_ENTRY_METADATA,
    MAGIC_CHECKSUM,
    broker_entry_metadata,
    split_entry,
)

_log = get_logger(__name__)

EntryKey = tuple[int, int]


class Decryptor(Protocol):
    """Decrypts payloads; keys are those of the consumer's key reader."""

    def decrypt(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """The payload in the clear; raises CryptoError, or KeyMissing if a key must be asked for first."""
        ...

    async def fetch(self, keys: Sequence[pb.EncryptionKeys]) -> None:
        """Ask for what was missing; afterwards the same payload raises no KeyMissing."""
        ...

    def forget_failures(self) -> None:
        """Ask again for keys that could not be had."""
        ...


#: Hears of an entry that is not handed out: the entry, why, and how many permits it took.
OnDiscard = Callable[[EntryKey, Discard, int], None]


class ChunkRead(NamedTuple):
    """A chunk, and what came of it."""

    key: EntryKey
    #: All entries of a message that is whole.
    whole: Sequence[EntryKey]
    #: Entries of what never becomes whole.
    discarded: Sequence[EntryKey]
    #: Entries that gave way to others.
    evicted: Sequence[EntryKey]
    #: Entries that were stored twice.
    repeated: Sequence[EntryKey]
    publish_time_ms: int


OnChunk = Callable[[ChunkRead], None]


def _tell_nobody(*_: object) -> None:
    pass


class EntryReader:
    """Reads the frames of one consumer of one topic."""

    __slots__ = (
        "_crypto_failure_action",
        "_decryptor",
        "_heads",
        "_is_laid_out",
        "_now_ms",
        "_on_chunk",
        "_on_discard",
        "_topic_name",
        "_unread",
        "chunks",
        "epoch",
        "message_bytes_max",
        "missing_keys",
    )

    def __init__(
        self,
        topic_name: str,
        chunks: ChunkAssembly,
        *,
        decryptor: Decryptor | None,
        crypto_failure_action: ConsumerCryptoFailureAction,
        now_ms: Callable[[], float],
        on_discard: OnDiscard,
        on_chunk: OnChunk,
        is_laid_out: bool = True,
    ) -> None:
        """``is_laid_out`` False: where the messages of a batch lie is not looked for."""
        self._topic_name = topic_name
        self._heads = MessageHeadDecoder()
        self._decryptor = decryptor
        self._crypto_failure_action = crypto_failure_action
        self._now_ms = now_ms
        self._on_discard = on_discard
        self._on_chunk = on_chunk
        self._is_laid_out = is_laid_out
        self.chunks = chunks
        #: From the first frame on whose key is missing, and that key.
        self._unread: list[Frame] = []
        self.missing_keys: Sequence[pb.EncryptionKeys] = ()
        #: Entries of a lower epoch are dropped; -1: the subscription type has none.
        self.epoch = -1
        #: Largest message before chunking, bytes.
        self.message_bytes_max = 0

    def read(self, frames: Sequence[Frame]) -> list[EntryBatch]:
        """Entries to hand out; raises ProtocolError for a broken command.

        Ends early at a frame whose key is missing: :meth:`take_unread` has it and what is behind it. What is behind a
        command may be a memoryview (of a connection that lends), and then an entry's data is one, too.
        """
        entries: list[EntryBatch] = []
        heads, topic_name = self._heads, self._topic_name
        left = iter(frames)
        for frame in left:
            command, data = frame
            entry_id = heads.entry_id(command)
            if entry_id >= 0:
                # As the one decoded last but for the entry, which has no ack set.
                ledger_id, _, partition, redelivery_count, _, epoch = heads.template
                if epoch is None or epoch >= self.epoch:
                    single = single_entry(data, (ledger_id, entry_id), partition, topic_name, redelivery_count)
                    if single is not None:
                        entries.append(single)
                        continue
            head = heads.decode(command)
            try:
                entry = self._entry(head, data)
            except KeyMissing as missing:
                self._unread, self.missing_keys = [frame, *left], missing.keys
                break
            if entry is not None:
                entry.ack_set = head.ack_set
                entries.append(entry)
        return entries

    def take_unread(self) -> list[Frame]:
        """What the last :meth:`read` left, to be read again once ``missing_keys`` were asked for."""
        unread, self._unread = self._unread, []
        return unread

    def close(self) -> None:
        """Nothing is read any more, and nobody told."""
        self._on_discard = self._on_chunk = _tell_nobody
        self._now_ms = float  # no time passes

    def _entry(self, head: MessageHead, data: bytes) -> EntryBatch | None:
        key = (head.ledger_id, head.entry_id)
        noted = None
        start = 0
        magic = data[:2]
        if magic == MAGIC_BROKER_ENTRY_METADATA:
            noted = broker_entry_metadata(data)
            start = 6 + int.from_bytes(data[2:6], "big")
            magic = data[start : start + 2]
        is_damaged = False
        # Without a checksum nothing says where it broke: on the way, perhaps.
        unreadable = Discard.CHECKSUM
        if magic == MAGIC_CHECKSUM:
            unreadable = Discard.BROKEN
            stored = int.from_bytes(data[start + 2 : start + 6], "big")
            start += 6
            is_damaged = crc32c(memoryview(data)[start:]) != stored
        payload_start = start + 4 + int.from_bytes(data[start : start + 4], "big")
        if is_damaged or payload_start > len(data):
            # Its broker looks at no checksum, and counted what the metadata say.
            claimed, _ = split_entry(data)
            count = 1 if claimed is None else permits_of(claimed.num_messages_in_batch, head.ack_set)
            self._on_discard(key, Discard.CHECKSUM if is_damaged else unreadable, count)
            return None
        try:
            metadata = pb.MessageMetadata.FromString(bytes(data[start + 4 : payload_start]))
        except DecodeError:
            self._on_discard(key, unreadable, 1)
            return None
        count = permits_of(metadata.num_messages_in_batch, head.ack_set)
        if head.consumer_epoch is not None and head.consumer_epoch < self.epoch:
            self._on_discard(key, Discard.OLD_EPOCH, count)
            return None
        if metadata.compression or metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
            entry = self._opened(head, metadata, data, payload_start, count)
        else:
            entry = self._laid_out(head, metadata, data, payload_start)
        if entry is not None:
            entry.broker_entry_metadata = noted
        return entry

    def _laid_out(
        self,
        head: MessageHead,
        metadata: pb.MessageMetadata,
        data: bytes,
        start: int,
        *,
        is_undecrypted: bool = False,
    ) -> EntryBatch | None:
        try:
            return EntryBatch(
                data,
                start,
                metadata,
                head[0],
                head[1],
                partition=head[2],
                topic_name=self._topic_name,
                redelivery_count=head[3],
                is_undecrypted=is_undecrypted,
                is_laid_out=self._is_laid_out,
            )
        except BatchFormatError:
            count = permits_of(metadata.num_messages_in_batch, head.ack_set)
            self._on_discard((head[0], head[1]), Discard.BROKEN, count)
            return None

    def _opened(
        self, head: MessageHead, metadata: pb.MessageMetadata, data: bytes, start: int, count: int
    ) -> EntryBatch | None:
        key = (head.ledger_id, head.entry_id)
        first_chunk: MessageId | None = None
        is_undecrypted = False
        if metadata.encryption_keys:
            clear = self._decrypted(metadata, bytes(data[start:]))
            if clear is not None:
                data, start = clear, 0
            elif self._crypto_failure_action is ConsumerCryptoFailureAction.CONSUME:
                is_undecrypted = True
            else:
                self._on_discard(key, Discard.DECRYPTION, count)
                return None
        if metadata.num_chunks_from_msg > 1 and not is_undecrypted:
            whole = self._assembled(key, metadata, bytes(data[start:]))
            if whole is None:
                return None
            data, first = whole
            start = 0
            first_chunk = MessageId(head.partition, *first, topic_name=self._topic_name)
        try:
            if metadata.compression and not is_undecrypted:
                size = metadata.uncompressed_size
                if first_chunk is None and self.message_bytes_max and size > self.message_bytes_max:
                    raise DecompressionError(f"{size} bytes behind compression, at most {self.message_bytes_max}")
                data, start = decompress(metadata.compression, memoryview(data)[start:], size), 0
        except DecompressionError:
            self._on_discard(key, Discard.DECOMPRESSION, count)
            return None
        entry = self._laid_out(head, metadata, data, start, is_undecrypted=is_undecrypted)
        if entry is not None:
            entry.first_chunk = first_chunk
        return entry

    def _decrypted(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes | None:
        if self._decryptor is None:
            return None
        try:
            return self._decryptor.decrypt(metadata, payload)
        except CryptoError as error:
            _log.warning("%s: %s", self._topic_name, error)
            return None

    def _assembled(self, key: EntryKey, metadata: pb.MessageMetadata, payload: bytes) -> tuple[bytes, EntryKey] | None:
        # Told by each piece, and the last one's is what is gone by: none is believed for another.
        if not self.chunks.bounds.has_room(metadata.total_chunk_msg_size, metadata.uncompressed_size):
            self._on_discard(key, Discard.TOO_LARGE, 1)
            return None
        chunk = Chunk(
            metadata.uuid,
            metadata.chunk_id,
            metadata.num_chunks_from_msg,
            metadata.total_chunk_msg_size,
            payload,
            key,
        )
        result = self.chunks.add(chunk, self._now_ms())
        discarded = [*result.discarded, key] if result.is_stray else result.discarded
        self._on_chunk(
            ChunkRead(key, result.entries, discarded, result.evicted, result.repeated, metadata.publish_time)
        )
        if result.payload is None:
            self._on_discard(key, Discard.CHUNK, 1)
            return None
        return result.payload, result.entries[0]
