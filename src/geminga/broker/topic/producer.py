"""A producer connected to a topic, and the order of its answers.

What one socket read brought of a producer is a :class:`PublishGroup`: one append, one answer. Groups are answered
in the order they came, also when a later one (a duplicate, a bad checksum) is decided before an earlier one is
stored: clients match receipts against the head of their queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.core.producer_access import AccessMode
from geminga.broker.subscription.rates import Rates
from geminga.managed_ledger import AppendResult
from geminga.model.errors import GemingaError, NotAllowedError, ServerError, TopicClosingError, TopicTerminatedError
from geminga.runtime import Contained
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_send_receipts
from geminga.wire.pulsar.metadata import peek_metadata
from geminga.wire.pulsar.numbers import plain_metadata_bytes

if TYPE_CHECKING:
    from geminga.broker.topic.base import Topic

#: Codes of SEND_ERROR that clients treat in a way of their own.
SEND_ERROR_CODES: Final = frozenset(
    (ServerError.CHECKSUM_ERROR, ServerError.TOPIC_TERMINATED_ERROR, ServerError.NOT_ALLOWED_ERROR)
)
#: Request id of a CLOSE_PRODUCER that answers no request (as Pulsar: -1 as uint64).
UNREQUESTED: Final = (1 << 64) - 1
#: Pairs (sequence id, highest sequence id of the batch).
SequenceIds = list[tuple[int, int]]


class ProducerConnection(Protocol):
    """The client's connection, as its producers use it."""

    peer: str
    client_version: str
    supports_partial_producer: bool

    @property
    def producers(self) -> MutableMapping[int, Producer]:
        """By the client's ids."""

    @property
    def waiting_producers(self) -> MutableMapping[int, Producer]:
        """Those that wait for exclusive access."""

    def check_liveness(self) -> Awaitable[bool]:
        """Whether the client answers; its connection is closed if not."""

    def write_soon(self, data: bytes) -> None:
        """Send with everything else of this turn of the loop."""

    def publish_started(self, count: int, size_bytes: int) -> None:
        """Entries of so many bytes wait for their answers."""

    def publish_finished(self, count: int, size_bytes: int) -> None:
        """They are answered."""

    def producer_closed_by_broker(self, producer_id: int) -> None:
        """The client is told to close a producer: what it still sends for it is dropped."""


class PublishGroup:
    """Entries of one producer that are appended, stored and answered together."""

    __slots__ = (
        "_answered",
        "_answers",
        "count",
        "has_failed",
        "is_recorded",
        "messages",
        "producer",
        "sequence_ids",
        "since_s",
        "size_bytes",
    )

    def __init__(self, producer: Producer, sequence_ids: SequenceIds, messages: int, size_bytes: int) -> None:
        self.producer = producer
        #: Any of its entries could not be stored.
        self.has_failed = False
        #: Deduplication remembers its sequence ids once they are stored (not so for all but the last chunk).
        self.is_recorded = True
        self.sequence_ids = sequence_ids
        #: When it came, on the monotonic clock.
        self.since_s = producer.topic.services.runtime.clock.monotonic()
        self.messages = messages
        self.size_bytes = size_bytes
        self.count = len(sequence_ids)
        #: How many of the entries have their answer.
        self._answered = 0
        self._answers: list[bytes] = []

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
        topic = self.producer.topic
        if result.error is None:
            self.stored(result.ledger_id, result.first_entry_id, result.count)
            topic.published(self, result)
        else:
            self.has_failed = True
            if isinstance(result.error, TopicTerminatedError):
                # As Pulsar: it hears of the end when it connects again. Clients that get SEND_ERROR first drop their
                # producer with all that waits for a receipt, and never hear why.
                self.producer.disconnect()
            self.failed(result.error, result.count)
            topic.publish_failed(self, result.error)

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


class Producer:
    """A producer as the broker sees it."""

    __slots__ = (
        "_drained",
        "_groups",
        "access_mode",
        "bytes_in",
        "chunks_in",
        "connected_since_ms",
        "connection",
        "epoch",
        "is_closed",
        "is_encrypted",
        "is_user_provided_name",
        "messages_in",
        "metadata",
        "name",
        "plain_metadata_bytes",
        "producer_id",
        "rates",
        "ready",
        "schema_version",
        "topic",
        "topic_epoch",
    )

    def __init__(
        self,
        topic: Topic,
        connection: ProducerConnection,
        *,
        producer_id: int,
        name: str,
        epoch: int,
        is_user_provided_name: bool,
        access_mode: AccessMode,
        topic_epoch: int | None,
        is_encrypted: bool,
        metadata: Mapping[str, str],
        connected_since_ms: int,
    ) -> None:
        self.topic = topic
        self.connection = connection
        #: The client's id, unique on its connection.
        self.producer_id = producer_id
        self.name = name
        #: Metadata of no more bytes have nothing to look at.
        self.plain_metadata_bytes = plain_metadata_bytes(name)
        #: Grows each time the client connects this producer again.
        self.epoch = epoch
        self.is_user_provided_name = is_user_provided_name
        self.access_mode = access_mode
        #: Epoch of its exclusive access, as the client brought it, then as it was granted.
        self.topic_epoch = topic_epoch
        self.is_encrypted = is_encrypted
        self.metadata = metadata
        self.connected_since_ms = connected_since_ms
        self.schema_version = b""
        #: Set while it waits for exclusive access: called with None once it has it, or with the error.
        self.ready: Callable[[GemingaError | None], None] | None = None
        self.is_closed = False
        #: Messages and bytes stored; read at scrape time.
        self.messages_in = 0
        self.bytes_in = 0
        #: Entries that were parts of larger messages.
        self.chunks_in = 0
        #: Rates between scrapes, kept by the statistics.
        self.rates: Rates | None = None
        #: Not answered yet, oldest first; bounded by the connection's pending publishes.
        self._groups: deque[PublishGroup] = deque()
        self._drained: Callable[[], None] | None = None

    @property
    def pending_groups(self) -> int:
        """Groups without an answer."""
        return len(self._groups)

    def publish(self, entries: list[bytes], sequence_ids: SequenceIds, messages: int, *, chunks: int) -> None:
        """Publish entries that came with one socket read, in order; ``chunks`` of them are parts of larger messages."""
        if self.is_closed:
            return
        if self.topic.is_encryption_required and not _are_encrypted(entries):
            error = NotAllowedError("Messages must be encrypted")
            for sequence_id, _ in sequence_ids:
                self.reject(sequence_id, error)
            return
        if chunks:
            self.chunks_in += chunks
            self.topic.has_chunks = True
        with Contained(self.topic, "a publish", is_last=True):
            self.topic.publish(self, entries, sequence_ids, messages, chunks > 0)

    def group(self, sequence_ids: SequenceIds, messages: int, size_bytes: int) -> PublishGroup:
        """A new group at the end of the queue; the caller sees to its answer."""
        group = PublishGroup(self, sequence_ids, messages, size_bytes)
        self._groups.append(group)
        self.connection.publish_started(group.count, size_bytes)
        return group

    def reject(self, sequence_id: int, error: GemingaError) -> None:
        """Answer SEND_ERROR for one message, behind the answers of those before it."""
        self.group([(sequence_id, sequence_id)], 0, 0).failed(error, 1)

    def answered(self) -> None:
        """A group has its answers: write those at the head of the queue."""
        groups = self._groups
        connection = self.connection
        while groups and groups[0].is_answered:
            group = groups.popleft()
            if not self.is_closed:
                connection.write_soon(group.answers)
            connection.publish_finished(group.count, group.size_bytes)
        if not groups and self._drained is not None:
            drained, self._drained = self._drained, None
            drained()

    def close(self, drained: Callable[[], None] | None = None) -> None:
        """Leave the topic; answers under way are still written. ``drained`` is called when there are none left."""
        self.topic.remove_producer(self)
        if drained is None:
            return
        if self._groups:
            self._drained = drained
        else:
            drained()

    def disconnect(self) -> None:
        """Tell the client to look the topic up again; answers still under way are dropped, the client resends."""
        if self.is_closed:
            return
        if self.ready is not None:
            self.fence(TopicClosingError(f"Topic {self.topic.name} is being unloaded or deleted"))
            return
        self.is_closed = True
        self.topic.remove_producer(self)
        connection = self.connection
        if connection.producers.get(self.producer_id) is self:
            connection.producer_closed_by_broker(self.producer_id)
            connection.write_soon(commands.close_producer(self.producer_id, UNREQUESTED))

    def disconnect_soon(self) -> None:
        """Like :meth:`disconnect`, once everything before is answered: what was refused is sent again, in order."""
        if not self._groups:
            self.disconnect()
        elif not self.is_closed and self._drained is None:
            self._drained = self.disconnect

    def fence(self, error: GemingaError) -> None:
        """It lost, or can not get, exclusive access: a waiting one is told so, a connected one is disconnected."""
        if self.ready is not None:
            refused, self.ready = self.ready, None
            self.is_closed = True
            self.connection.waiting_producers.pop(self.producer_id, None)
            self.topic.remove_producer(self)
            refused(error)
        else:
            self.disconnect()

    def granted(self) -> None:
        """It waited for exclusive access and has it now."""
        if self.ready is not None:
            ready, self.ready = self.ready, None
            ready(None)

    def connection_lost(self) -> None:
        """The connection is gone; entries under way are stored all the same."""
        self.is_closed = True
        self.topic.remove_producer(self)


def is_terminal(error: GemingaError) -> bool:
    """Whether the client knows by the error itself what to do, without being disconnected."""
    return isinstance(error, (TopicTerminatedError, NotAllowedError))


def _are_encrypted(entries: list[bytes]) -> bool:
    for entry in entries:
        metadata = peek_metadata(entry)
        if metadata is None or not metadata.encryption_keys:
            return False
    return True
