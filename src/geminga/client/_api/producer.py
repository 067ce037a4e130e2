"""``Producer``: what users see, whether the topic has partitions or not."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Generic, TypedDict, TypeVar, Unpack

from geminga.client._api.errors import PulsarException
from geminga.client._api.message_id import MessageId
from geminga.client._api.opening import ClosedAtEnd
from geminga.client._api.transaction import Transaction
from geminga.client.producer_rules.encoded_batch import EncodedBatch, WholeEntry
from geminga.client.producer_rules.message import EncodedMessage

T = TypeVar("T")

#: Hears what became of a message: the error or None, the message's id or None. Called on the loop; must not block.
SendCallback = Callable[[PulsarException | None, MessageId | None], None]


class MessageFields(TypedDict, total=False):
    """What a message may have beside its content."""

    #: Text by text.
    properties: Mapping[str, str] | None
    #: Decides the partition, and the consumer on Key_Shared subscriptions; compaction keeps the newest of each key.
    partition_key: str | bytes | None
    #: Goes before ``partition_key`` on Key_Shared subscriptions.
    ordering_key: str | bytes | None
    #: Own number, ascending; deduplication goes by it. Messages without one count on from the highest.
    sequence_id: int | None
    #: When it happened, milliseconds since the epoch.
    event_timestamp: int | None
    #: Not delivered before, milliseconds since the epoch (Shared and Key_Shared subscriptions).
    deliver_at: int | None
    #: Not delivered before so much time has passed.
    deliver_after: timedelta | None
    #: Clusters it goes to.
    replication_clusters: Sequence[str] | None
    #: It stays in this cluster.
    disable_replication: bool
    #: The transaction it is sent in: it is seen once that is committed, and never if it is aborted.
    txn: Transaction | None


class Producer(ClosedAtEnd, Generic[T]):
    """Sends messages to a topic; made by :meth:`Client.create_producer`. Not for use by several threads.

    ``async with`` closes it at the end.
    """

    __slots__ = ()

    @abstractmethod
    async def send(self, content: T | None, **fields: Unpack[MessageFields]) -> MessageId:
        """Send one message and wait until it is stored; None as content is a null value.

        Any number of ``send`` may wait at once: those of one turn of the loop become one batch. Cancelling stops the
        waiting, not the message. Raises Timeout (its text says whether that is known: unknown whether it was stored, or
        not stored), ProducerQueueIsFull and MemoryBufferIsFull (only with ``block_if_queue_full=False``),
        MessageTooBig, AlreadyClosed, or what the broker said.
        """

    @abstractmethod
    def send_nowait(
        self, content: T | None, callback: SendCallback | None = None, **fields: Unpack[MessageFields]
    ) -> None:
        """Hand over one message and return at once; the fast way to send many.

        ``callback`` hears of its receipt; without one, the first error of such messages is raised by the next
        :meth:`flush`. Raises ProducerQueueIsFull or MemoryBufferIsFull when there is no room (then
        ``await producer.drain()``), MessageTooBig, AlreadyClosed, or the error the producer failed with.
        """

    @abstractmethod
    async def flush(self) -> None:
        """Send what waits in batches, and wait for the receipts of everything sent before.

        Raises the first error among the messages sent without callback since the last flush.
        """

    @abstractmethod
    async def drain(self) -> None:
        """Wait until there is room for more; lets the loop run in any case.

        Raises nothing when it is closed or has failed meanwhile: the next message does.
        """

    @abstractmethod
    async def close(self) -> None:
        """Send what waits, wait for the receipts (while connected, at most the operation timeout), then leave.

        What has no receipt then fails with AlreadyClosed. Harmless if it is closed already; goes on to its end also
        when the caller is cancelled.
        """

    @abstractmethod
    def topic(self) -> str:
        """The topic's full name."""

    @abstractmethod
    def producer_name(self) -> str:
        """Its name: given, or made by the broker; unique on the topic."""

    @abstractmethod
    def last_sequence_id(self) -> int:
        """Highest sequence id that has its receipt, -1 before the first; starts with what the broker remembers."""

    @abstractmethod
    def is_connected(self) -> bool:
        """Whether messages can leave now."""

    @property
    @abstractmethod
    def pending_messages(self) -> int:
        """Messages without receipt."""


class EntryProducer(Producer[T]):
    """A producer of one topic without partitions, or of one partition: it also takes entries that are encoded already.

    ``create_producer`` gives one for such a topic. For programs that move data (Spark): they number and encode whole
    batches themselves, and hand them over.
    """

    __slots__ = ()

    @abstractmethod
    def send_encoded(
        self,
        entry: EncodedBatch | EncodedMessage | WholeEntry,
        callback: SendCallback | None = None,
        *,
        txn: Transaction | None = None,
    ) -> None:
        """Hand over an entry that is encoded already, behind everything before; raises as :meth:`send_nowait` does.

        ``callback`` hears of it once, with an id that has no index in the batch; a whole entry has its own. ``txn``:
        the transaction it is sent in; a whole entry is in none.
        """

    @property
    @abstractmethod
    def unsure_resends(self) -> int:
        """How often it connected again and sent what had no receipt once more, though the broker did not say that it
        remembers its sequence ids: what was stored and lost its receipt is stored twice then."""

    @property
    @abstractmethod
    def schema_version(self) -> bytes:
        """Of the schema that it was made with, as in message metadata; empty: it has none."""

    @abstractmethod
    def end_with_refusal(self) -> None:
        """From now on the first entry that the broker refuses ends the producer, and what is behind it fails, too: none
        overtakes another."""

    @property
    @abstractmethod
    def is_usable(self) -> bool:
        """Neither closed nor failed."""
