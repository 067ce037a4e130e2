"""What is published: a batch of SENDs of one producer, and what the managed ledger is given in one turn of the loop.

What one socket read brought of a producer is a :class:`PublishBatch`: made of its frames, passed whole down to the
topic, stored with one append, answered with one write. Parts of the topic that look at it may take it apart
(:meth:`PublishBatch.cut`), never put it together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple, Protocol, TypeVar

from geminga.broker.publishing.stamps import message_count
from geminga.managed_ledger import AppendResult
from geminga.model.crc32c import crc32c
from geminga.model.errors import GemingaError, RemoteError, ServerError, TopicTerminatedError
from geminga.runtime import Clock, Contained, Part
from geminga.wire.pulsar import commands, hot
from geminga.wire.pulsar.frame import Frame
from geminga.wire.pulsar.hot import encode_send_receipts
from geminga.wire.pulsar.metadata import MAGIC_CHECKSUM, peek_metadata
from geminga.wire.pulsar.numbers import is_suspect, send_refusal

#: Codes of SEND_ERROR that clients treat in a way of their own.
SEND_ERROR_CODES: Final = frozenset(
    (ServerError.CHECKSUM_ERROR, ServerError.TOPIC_TERMINATED_ERROR, ServerError.NOT_ALLOWED_ERROR)
)
#: Pairs (sequence id, highest sequence id of the batch).
SequenceIds = list[tuple[int, int]]
#: Most and least significant bits of a transaction's id.
TransactionId = tuple[int, int]
#: Payloads up to this size are copied for the checksum: cheaper than a memoryview.
_CHECKSUM_COPY_BYTES_MAX: Final = 2048
#: How a payload begins that has a checksum: magic number, checksum, size of the metadata.
_PAYLOAD_HEAD: Final = Struct(">HII")
_MAGIC: Final = int.from_bytes(MAGIC_CHECKSUM, "big")
_NO_HEAD: Final = (0, 0, 0)


class Refusal(NamedTuple):
    """Why a batch is not stored."""

    #: None: it is stored already. Its receipt has the id -1:-1.
    error: GemingaError | None
    #: Its producer is sent away once everything before is answered: what was refused is sent again, in order.
    disconnects: bool = False


DUPLICATE: Final = Refusal(None)


class Publishing:
    """Takes the batches of one topic and counts them; kinds of topics store them or do not."""

    __slots__ = ("_clock", "bytes_in", "has_chunks", "last_published_s", "messages_in")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Messages and bytes published since the topic was loaded; read at scrape time.
        self.messages_in = 0
        self.bytes_in = 0
        #: Whether a part of a larger message was.
        self.has_chunks = False
        #: When something last was, on the monotonic clock; None: nothing was.
        self.last_published_s: float | None = None

    @property
    def last_published_ms(self) -> int:
        """The same in ms since the epoch; 0: nothing was."""
        if self.last_published_s is None:
            return 0
        return self._clock.wall_ms() - int((self._clock.monotonic() - self.last_published_s) * 1000)

    def totals(self) -> tuple[int, int]:
        """Messages and bytes."""
        return self.messages_in, self.bytes_in

    def publish(self, batch: PublishBatch) -> None:
        """Take the entries in order and see to the batch's answers; never raises."""
        raise AssertionError(f"{type(self).__name__} takes no messages")

    def published(self, batch: PublishBatch, result: AppendResult) -> None:
        """The next entries of a batch were stored, and answered."""

    def failed(self, batch: PublishBatch, error: GemingaError) -> None:
        """The next entries of a batch could not be stored, or nobody knows; their producer was told."""

    def is_stored(self, batch: PublishBatch) -> bool:
        """Whether deduplication knows that all of it is there already."""
        del batch
        return False

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest stored sequence id of a producer, if deduplication knows; -1 otherwise."""
        del producer_name
        return -1


class BatchProducer(Protocol):
    """The producer of a batch."""

    name: str
    #: Whose replicator it is; None: nobody's.
    copies_from: str | None
    producer_id: int
    is_closed: bool
    is_refusing: bool
    messages_in: int
    bytes_in: int

    @property
    def publishing(self) -> Publishing:
        """What takes its batches."""

    def begin(self, batch: PublishBatch, size_bytes: int) -> None:
        """Put a batch at the end of those that wait for their answers."""

    def refuse(self, batch: PublishBatch, refusal: Refusal) -> None:
        """Answer one that is not stored."""

    def answered(self) -> None:
        """A batch has its answers."""

    def disconnect(self) -> None:
        """Tell the client to connect it again."""

    def disconnect_soon(self) -> None:
        """The same, once everything before is answered."""


class Sender(BatchProducer, Protocol):
    """A producer whose SENDs are put together."""

    #: Metadata of no more bytes have nothing to look at.
    plain_metadata_bytes: int


P = TypeVar("P", bound=Sender)
P_co = TypeVar("P_co", bound=Sender, covariant=True)


class Senders(Protocol[P_co]):
    """Who sends on a connection."""

    @property
    def producers(self) -> Mapping[int, P_co]:
        """By the client's ids."""

    def sending_producer(self, producer_id: int) -> P_co | None:
        """None: its SENDs are dropped. Raises ProtocolError where there never was one."""


class PublishBatch:
    """Entries of one producer that are stored and answered together; no object per entry."""

    __slots__ = (
        "_answered",
        "_answers",
        "chunks",
        "count",
        "entries",
        "has_failed",
        "is_recorded",
        "markers",
        "messages",
        "producer",
        "refusal",
        "sequence_ids",
        "since_s",
        "size_bytes",
        "sources",
        "transaction",
    )

    def __init__(
        self,
        producer: BatchProducer,
        entries: list[bytes],
        sequence_ids: SequenceIds,
        messages: int,
        chunks: int = 0,
        markers: int = 0,
        transaction: TransactionId | None = None,
    ) -> None:
        """``entries`` are as they are stored; ``sequence_ids`` of each, lowest and highest.

        ``messages``: of all entries together, as the commands say.
        """
        self.producer = producer
        self.entries = entries
        self.sequence_ids = sequence_ids
        self.messages = messages
        #: How many of the entries are parts of larger messages.
        self.chunks = chunks
        #: How many are markers: written by brokers and for brokers.
        self.markers = markers
        #: All of it belongs to this transaction; None: to none.
        self.transaction = transaction
        self.count = len(sequence_ids)
        #: Why it is not to be stored; None: it is.
        self.refusal: Refusal | None = None
        #: Deduplication remembers its sequence ids once they are stored (not so for all but the last chunk).
        self.is_recorded = True
        #: Of a replicator's entries, by what deduplication judged each; None: it did not.
        self.sources: list[tuple[str, int] | None] | None = None
        #: Any of its entries could not be stored.
        self.has_failed = False
        #: When it came, on the monotonic clock, and its bytes: set when its producer takes it up (``Producer.begin``).
        self.since_s = 0.0
        self.size_bytes = 0
        #: How many of the entries have their answer.
        self._answered = 0
        self._answers: list[bytes] = []

    def cut(self, start: int, end: int, messages: int) -> PublishBatch:
        """Its entries from ``start`` to before ``end``, which have so many messages, as a batch of their own.

        How many of them are chunks and markers is not counted again: their producer knows (``Producer.publish``).
        """
        part = PublishBatch(
            self.producer,
            self.entries[start:end],
            self.sequence_ids[start:end],
            messages,
            transaction=self.transaction,
        )
        if self.sources is not None:
            part.sources = self.sources[start:end]
        return part

    # ---- answers

    @property
    def is_answered(self) -> bool:
        """Whether every entry has its answer."""
        return self._answered == self.count

    @property
    def answered_count(self) -> int:
        """How many entries, from the first on, have their answer."""
        return self._answered

    @property
    def answers(self) -> bytes:
        """The frames to write."""
        answers = self._answers
        return answers[0] if len(answers) == 1 else b"".join(answers)

    def appended(self, result: AppendResult) -> None:
        """The managed ledger is done with the next ``result.count`` entries; comes once per part, in order."""
        publishing = self.producer.publishing
        if result.error is None:
            self.stored(result.ledger_id, result.first_entry_id, result.count)
            publishing.published(self, result)
        else:
            self.has_failed = True
            if isinstance(result.error, TopicTerminatedError):
                # As Pulsar: it hears of the end when it connects again. Clients that get SEND_ERROR first drop their
                # producer with all that waits for a receipt, and never hear why.
                self.producer.disconnect()
            self.failed(result.error, result.count)
            publishing.failed(self, result.error)

    def stored(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        """Receipts for the next ``count`` entries."""
        first = self._answered
        sequence_ids = self.sequence_ids if count == self.count else self.sequence_ids[first : first + count]
        self._answers.append(
            encode_send_receipts(self.producer.producer_id, ledger_id, first_entry_id, 1, sequence_ids)
        )
        self._answer(count)

    def same_id(self, ledger_id: int, entry_id: int) -> None:
        """One id for all entries: -1:-1 for duplicates, 0:0 for non-persistent topics."""
        producer_id = self.producer.producer_id
        self._answers.append(encode_send_receipts(producer_id, ledger_id, entry_id, 0, self.sequence_ids))
        self._answer(self.count)

    def failed(self, error: GemingaError, count: int) -> None:
        """SEND_ERROR for the next ``count`` entries."""
        # Everything that the client has no special word for is PersistenceError: connect again and resend.
        code = error.server_error if error.server_error in SEND_ERROR_CODES else ServerError.PERSISTENCE_ERROR
        first = self._answered
        for sequence_id, _ in self.sequence_ids[first : first + count]:
            self._answers.append(commands.send_error(self.producer.producer_id, sequence_id, code, error.told))
        self._answer(count)

    def _answer(self, count: int) -> None:
        self._answered += count
        if self._answered == self.count:
            self.producer.answered()


def runs_without(batch: PublishBatch, is_refused: Callable[[bytes], bool], refusal: Refusal) -> Iterator[PublishBatch]:
    """The batch in order, taken apart: runs of entries of which each is refused have ``refusal``, the others not."""
    start = 0
    for is_out, run_of in groupby(map(is_refused, batch.entries)):
        end = start + len(list(run_of))
        entries = batch.entries[start:end]
        if is_out:
            run = batch.cut(start, end, 0)
            run.refusal = refusal
        else:
            run = batch.cut(start, end, sum(map(message_count, entries)))
            # Whoever is asked next must know that there are chunks in it.
            run.chunks = sum(map(is_chunk, entries)) if batch.chunks else 0
        yield run
        start = end


def is_chunk(entry: bytes) -> bool:
    """Whether it is a part of a larger message."""
    metadata = peek_metadata(entry)
    return metadata is not None and metadata.num_chunks_from_msg > 1


class TurnAppend:
    """Batches of several producers that one turn of the loop brought: they go to the managed ledger with one append."""

    __slots__ = ("_batches", "_next", "_part", "entries", "error")

    def __init__(self, batch: PublishBatch, entries: list[bytes], part: Part | None = None) -> None:
        """``part``: whose failure it is if the answers can not be given."""
        self.entries = entries
        self._part = part
        self._batches = [batch]
        #: Index of the first batch that is not done.
        self._next = 0
        #: What was before it could not be stored, so that it is not stored either.
        self.error: GemingaError | None = None

    def add(self, batch: PublishBatch, entries: list[bytes]) -> None:
        """Put a batch at the end."""
        if len(self._batches) == 1:
            # Until now the list was the producer's own.
            self.entries = [*self.entries, *entries]
        else:
            self.entries += entries
        self._batches.append(batch)

    def appended(self, result: AppendResult) -> None:
        """The managed ledger is done with the next entries: tell their batches, in order."""
        ledger_id, entry_id, index, count, error = result
        # Storage tells: what fails here is not its failure.
        with Contained(self._part, "the end of a publish", is_last=True):
            while count:
                batch = self._batches[self._next]
                left = batch.count - batch.answered_count
                part = min(left, count)
                batch.appended(AppendResult(ledger_id, entry_id, index, part, error))
                if part == left:
                    self._next += 1
                entry_id += part
                index += part
                count -= part


def gather_sends(
    frames: Sequence[Frame], senders: Senders[P]
) -> tuple[P | None, PublishBatch | None, tuple[int, RemoteError] | None] | None:
    """The first SENDs, which are of one producer and in one transaction or none; None: the first is no plain SEND.

    Their producer (None: the first is to be dropped), what is to be published, and the sequence id behind it that is
    refused, and why.
    Nothing is made for a SEND but what is passed on: those that are like the one before but for the last bits of
    the sequence id are not even decoded. Raises ProtocolError for one of a producer that never was.
    """
    producer: P | None = None
    producer_id, txn = -1, None
    entries: list[bytes] = []
    sequence_ids: list[tuple[int, int]] = []
    messages = chunks = markers = plain = before = 0
    flags = count = 0
    head, tail, is_copier = b"", None, False
    refusal: RemoteError | None = None
    unpack_head = _PAYLOAD_HEAD.unpack_from
    for command, payload in frames:
        # The eighth byte has the last bits: see hot.send_likeness.
        if command[8:] == tail and command[:7] == head and (low := command[7]) > 127:
            sequence_id = highest = before + low
        else:
            send = hot.decode_send(command)
            if send is None:
                break
            if producer is None:
                producer_id, txn = send[0], send[5]
                producer = senders.producers.get(producer_id) or senders.sending_producer(producer_id)
                if producer is None:
                    return None, None, None
                plain, is_copier = producer.plain_metadata_bytes, producer.copies_from is not None
            elif send[0] != producer_id or send[5] != txn:
                break
            _, sequence_id, highest, count, flags, _ = send
            tail = None
            if highest < sequence_id:
                if entries and not highest and not flags:
                    tail, head, before = hot.send_likeness(command, sequence_id)
                highest = sequence_id
        size = len(payload)
        magic, checksum, metadata_bytes = unpack_head(payload) if size >= 10 else _NO_HEAD
        if (
            magic != _MAGIC
            or checksum != crc32c(payload[6:] if size < _CHECKSUM_COPY_BYTES_MAX else memoryview(payload)[6:])
            or (metadata_bytes > plain and is_suspect(payload, txn is not None, is_copier=is_copier))
        ) and (refusal := send_refusal(payload, txn is not None, is_copier=is_copier)) is not None:
            break
        entries.append(payload)
        sequence_ids.append((sequence_id, highest))
        messages += count
        if flags:
            chunks += flags & hot.SEND_IS_CHUNK != 0
            markers += flags & hot.SEND_IS_MARKER != 0
    if producer is None:
        return None
    batch = PublishBatch(producer, entries, sequence_ids, messages, chunks, markers, txn) if entries else None
    return producer, batch, None if refusal is None else (sequence_id, refusal)
