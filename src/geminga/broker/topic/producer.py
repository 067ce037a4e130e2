"""A producer connected to a topic, and the order of its answers.

Batches (:mod:`.publish`) are answered in the order they came, also when a later one (a duplicate, a bad checksum) is
decided before an earlier one is stored: clients match receipts against the head of their queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from geminga.broker.core.dedup_source import cluster_of
from geminga.broker.core.producer_access import AccessMode
from geminga.broker.publishing.publish_throttle import RatedPublishes
from geminga.broker.subscription.rates import Rates
from geminga.broker.topic.publish import PublishBatch, Refusal, runs_without
from geminga.model.errors import GemingaError, NotAllowedError, TopicTerminatedError
from geminga.runtime import Contained
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.metadata import peek_metadata
from geminga.wire.pulsar.numbers import plain_metadata_bytes

if TYPE_CHECKING:
    from geminga.broker.topic.base import Topic


#: In Pulsar's words.
NOT_ENCRYPTED: Final = Refusal(NotAllowedError("Messages must be encrypted"))


class ProducerOutput(Protocol):
    """What is written to its client."""

    def write_soon(self, data: bytes) -> None:
        """Send with everything else of this turn of the loop."""


class ProducerPublishes(RatedPublishes, Protocol):
    """What is published on its connection and not answered."""

    def publish_started(self, count: int, size_bytes: int) -> None:
        """Entries of so many bytes wait for their answers."""

    def publish_finished(self, count: int, size_bytes: int) -> None:
        """They are answered."""


class ProducerMembers(Protocol):
    """Producers of its connection."""

    @property
    def producers(self) -> MutableMapping[int, Producer]:
        """By the client's ids."""

    @property
    def waiting_producers(self) -> MutableMapping[int, Producer]:
        """Those that wait for exclusive access."""

    def producer_closed_by_broker(self, producer_id: int) -> None:
        """The client is told to close a producer: what it still sends for it is dropped."""


class ProducerConnection(Protocol):
    """The client's connection, as its producers use it."""

    peer: str
    client_version: str
    supports_partial_producer: bool
    listener: str

    @property
    def output(self) -> ProducerOutput:
        """What is written to it."""

    @property
    def publishes(self) -> ProducerPublishes:
        """What is published on it."""

    @property
    def members(self) -> ProducerMembers:
        """Who publishes on it."""

    def check_liveness(self) -> Awaitable[bool]:
        """Whether the client answers; its connection is closed if not."""


class Producer:
    """A producer as the broker sees it."""

    __slots__ = (
        "_batches",
        "_drained",
        "_output",
        "_parting",
        "_publishes",
        "access_mode",
        "bytes_in",
        "chunks_in",
        "connected_since_ms",
        "connection",
        "copies_from",
        "epoch",
        "is_closed",
        "is_encrypted",
        "is_name_new",
        "is_refusing",
        "is_user_provided_name",
        "messages_in",
        "metadata",
        "name",
        "plain_metadata_bytes",
        "producer_id",
        "publishing",
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
        is_name_new: bool = False,
        access_mode: AccessMode,
        topic_epoch: int | None,
        is_encrypted: bool,
        metadata: Mapping[str, str],
        connected_since_ms: int,
    ) -> None:
        self.topic = topic
        self.publishing = topic.publishing
        self.connection = connection
        self._output = connection.output
        self._publishes = connection.publishes
        #: The client's id, unique on its connection.
        self.producer_id = producer_id
        self.name = name
        #: The broker made the name for it now: no producer had it before.
        self.is_name_new = is_name_new
        #: Metadata of no more bytes have nothing to look at.
        self.plain_metadata_bytes = plain_metadata_bytes(name)
        #: The cluster whose replicator it says it is; None: none's.
        self.copies_from = cluster_of(name)
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
        #: Something of it was refused that must not be overtaken: nothing else is taken until it connects again.
        self.is_refusing = False
        #: Messages and bytes stored; read at scrape time.
        self.messages_in = 0
        self.bytes_in = 0
        #: Entries that were parts of larger messages.
        self.chunks_in = 0
        #: Rates between scrapes, kept by the statistics.
        self.rates: Rates | None = None
        #: Not answered yet, oldest first; bounded by the connection's pending publishes.
        self._batches: deque[PublishBatch] = deque()
        self._drained: Callable[[], None] | None = None
        #: What its client is told before it is sent away.
        self._parting = b""

    @property
    def may_be_encrypted(self) -> bool:
        """Whether it said that it encrypts; a replicator sends what others encrypted, and says nothing."""
        return self.is_encrypted or self.copies_from is not None

    @property
    def pending_batches(self) -> int:
        """Batches without an answer."""
        return len(self._batches)

    def publish(self, batch: PublishBatch) -> None:
        """Publish what came with one socket read, in order; never raises."""
        if self.is_closed or self.is_refusing:
            return
        topic = self.topic
        if topic.is_encryption_required and not all(map(_is_encrypted, batch.entries)):
            for run in runs_without(batch, lambda entry: not _is_encrypted(entry), NOT_ENCRYPTED):
                if run.refusal is not None:
                    self.refuse(run, run.refusal)
                elif not self.is_refusing:
                    self._take(run)
            return
        self._take(batch)

    def _take(self, batch: PublishBatch) -> None:
        topic = self.topic
        throttles = topic.throttles.publish
        if throttles:
            size_bytes = sum(map(len, batch.entries))
            for throttle in throttles:
                throttle.published(self._publishes, len(batch.entries), batch.messages, size_bytes)
        if batch.chunks:
            self.chunks_in += batch.chunks
            self.publishing.has_chunks = True
        with Contained(topic, "a publish", is_last=True):
            self.publishing.publish(batch)

    def begin(self, batch: PublishBatch, size_bytes: int) -> None:
        """A batch at the end of the queue; the caller sees to its answer. ``size_bytes``: what waits to be stored."""
        batch.since_s = self.topic.services.runtime.clock.monotonic()
        batch.size_bytes = size_bytes
        self._batches.append(batch)
        self._publishes.publish_started(batch.count, size_bytes)

    def refuse(self, batch: PublishBatch, refusal: Refusal) -> None:
        """Answer a batch that is not to be stored, behind the answers of those before it."""
        self.begin(batch, 0)
        if refusal.error is None:
            batch.same_id(-1, -1)
        else:
            batch.failed(refusal.error, batch.count)
            # Stored behind it, the next message of another cluster would say that this one was stored as well.
            self.is_refusing = self.copies_from is not None
        if refusal.disconnects or self.is_refusing:
            self.disconnect_soon()

    def reject(self, sequence_id: int, error: GemingaError) -> None:
        """Answer SEND_ERROR for one message."""
        self.refuse(PublishBatch(self, [], [(sequence_id, sequence_id)], 0), Refusal(error))

    def answered(self) -> None:
        """A batch has its answers: write those at the head of the queue."""
        batches = self._batches
        while batches and batches[0].is_answered:
            batch = batches.popleft()
            if not self.is_closed:
                self._output.write_soon(batch.answers)
            self._publishes.publish_finished(batch.count, batch.size_bytes)
        if not batches and self._drained is not None:
            drained, self._drained = self._drained, None
            drained()

    def close(self, drained: Callable[[], None] | None = None) -> None:
        """Leave the topic; answers under way are still written. ``drained`` is called when there are none left."""
        self.topic.attendance.remove(self)
        if drained is None:
            return
        if self._batches:
            self._drained = drained
        else:
            drained()

    def stop(self) -> None:
        """Take nothing more of what it sends: it is about to be sent away."""
        self.is_refusing = True

    def disconnect(self) -> None:
        """Tell the client to look the topic up again; answers still under way are dropped, the client resends."""
        if self.is_closed:
            return
        if self.ready is not None:
            self.fence(self.topic.life.closing_error())
            return
        self.is_closed = True
        self.topic.attendance.remove(self)
        connection = self.connection
        if connection.members.producers.get(self.producer_id) is self:
            connection.members.producer_closed_by_broker(self.producer_id)
            if self._parting:
                connection.output.write_soon(self._parting)
            self.topic.life.send_away(
                connection, partial(commands.close_producer, self.producer_id, commands.UNREQUESTED)
            )

    def disconnect_soon(self) -> None:
        """Like :meth:`disconnect`, once everything before is answered: what was refused is sent again, in order."""
        if not self._batches:
            self.disconnect()
        elif not self.is_closed and self._drained is None:
            self._drained = self.disconnect

    def move(self, url: str, url_tls: str) -> None:
        """Send it to another cluster, once everything before is answered: what is sent now is refused."""
        self._parting = commands.topic_migrated(self.producer_id, url, url_tls, is_producer=True)
        self.disconnect_soon()

    def fence(self, error: GemingaError) -> None:
        """It lost, or can not get, exclusive access: a waiting one is told so, a connected one is disconnected."""
        if self.ready is not None:
            refused, self.ready = self.ready, None
            self.is_closed = True
            self.connection.members.waiting_producers.pop(self.producer_id, None)
            self.topic.attendance.remove(self)
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
        self.topic.attendance.remove(self)


def is_terminal(error: GemingaError) -> bool:
    """Whether the client knows by the error itself what to do, without being disconnected."""
    return isinstance(error, (TopicTerminatedError, NotAllowedError))


def _is_encrypted(entry: bytes) -> bool:
    """Whether a message has keys; a marker, which no consumer gets, needs none."""
    metadata = peek_metadata(entry)
    return metadata is not None and (bool(metadata.encryption_keys) or metadata.HasField("marker_type"))
