"""The blocking ``Producer``.

Generated from ``client/_api/producer.py`` by ``tools/generate_blocking.py``: do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Generic, Self, TypedDict, Unpack

from geminga.client._api.message_id import MessageId
from geminga.client._api.producer import SendCallback, T
from geminga.client.blocking._facade import ProducerFacade, with_transaction
from geminga.client.blocking._transaction import Transaction


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


class Producer(ProducerFacade[T], Generic[T]):
    """Sends messages to a topic; made by :meth:`Client.create_producer`. For use by any number of threads.

    ``with`` closes it at the end.
    """

    __slots__ = ()

    def send(self, content: T | None, **fields: Unpack[MessageFields]) -> MessageId:
        """Send one message and wait until it is stored; None as content is a null value.

        Any number of ``send`` may wait at once: those of one turn of the loop become one batch. Cancelling stops the
        waiting, not the message. Raises Timeout (its text says whether that is known: unknown whether it was stored, or
        not stored), ProducerQueueIsFull and MemoryBufferIsFull (only with ``block_if_queue_full=False``),
        MessageTooBig, AlreadyClosed, or what the broker said.
        """
        return self._run(lambda: self._target.send(content, **with_transaction(fields)))

    def send_nowait(
        self, content: T | None, callback: SendCallback | None = None, **fields: Unpack[MessageFields]
    ) -> None:
        """Hand over one message and return at once; the fast way to send many.

        ``callback`` hears of its receipt; without one, the first error of such messages is raised by the next
        :meth:`flush`. Raises ProducerQueueIsFull or MemoryBufferIsFull when there is no room (then
        ``producer.drain()``), MessageTooBig, AlreadyClosed, or the error the producer failed with.

        Blocking: where the asynchronous one raises because there is no room, this one waits; errors of a message
        without callback come with the next :meth:`flush`. Callbacks run on a thread of their own and may block.
        """
        self._post(content, callback, fields)

    def flush(self) -> None:
        """Send what waits in batches, and wait for the receipts of everything sent before.

        Raises the first error among the messages sent without callback since the last flush.
        """
        self._flush()

    def drain(self) -> None:
        """Wait until there is room for more; lets the loop run in any case.

        Raises nothing when it is closed or has failed meanwhile: the next message does.
        """
        self._run(lambda: self._target.drain())

    def close(self) -> None:
        """Send what waits, wait for the receipts (while connected, at most the operation timeout), then leave.

        What has no receipt then fails with AlreadyClosed. Harmless if it is closed already; goes on to its end also
        when the caller is cancelled.
        """
        self._close()

    def topic(self) -> str:
        """The topic's full name."""
        return self._call(lambda: self._target.topic())

    def producer_name(self) -> str:
        """Its name: given, or made by the broker; unique on the topic."""
        return self._call(lambda: self._target.producer_name())

    def last_sequence_id(self) -> int:
        """Highest sequence id that has its receipt, -1 before the first; starts with what the broker remembers."""
        return self._call(lambda: self._target.last_sequence_id())

    def is_connected(self) -> bool:
        """Whether messages can leave now."""
        return self._call(lambda: self._target.is_connected())

    @property
    def pending_messages(self) -> int:
        """Messages without receipt."""
        return self._call(lambda: self._target.pending_messages)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
