"""``Consumer``: what users see, over one topic, one partition or many of them.

Entries of all its topics meet in one prefetch queue, in order of arrival; ``receive``, ``batch_receive`` and
``async for`` take messages from there. Nothing leaves the queue before it is returned, so a cancelled ``receive`` loses
nothing. Each topic has its own permits, so a busy one does not starve the others of memory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Generic, TypeVar

from geminga.client._api.message_id import MessageId
from geminga.client._api.opening import ClosedAtEnd
from geminga.client._api.transaction import Transaction
from geminga.client._messages.message import Message
from geminga.client.rules.stats import ConsumerStats

T = TypeVar("T")


class Consumer(ClosedAtEnd, Generic[T]):
    """Receives the messages of a subscription; made by :meth:`Client.subscribe`. Not for use by several threads.

    ``async for message in consumer`` ends when the consumer is closed. ``async with`` closes it at the end.
    """

    # ---- receive

    @abstractmethod
    async def receive(self, timeout_millis: int | None = None) -> Message[T]:
        """The next message. Raises Timeout after ``timeout_millis`` (None: never), AlreadyClosed, or why it failed."""

    @abstractmethod
    def receive_nowait(self) -> Message[T] | None:
        """A message that was prefetched; None if there is none."""

    @abstractmethod
    async def batch_receive(self) -> list[Message[T]]:
        """As many messages as ``batch_receive_policy`` says: the first of its limits that is reached ends the wait.

        Empty if none came in its time. Raises AlreadyClosed, or why the consumer failed.
        """

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[Message[T]]: ...

    @abstractmethod
    async def __anext__(self) -> Message[T]: ...

    # ---- acknowledge

    @abstractmethod
    async def acknowledge(
        self,
        message: Message[Any] | MessageId | Iterable[Message[Any] | MessageId],
        txn: Transaction | None = None,
        *,
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """One message (or its id), or several; they are sent in groups.

        With ``ack_receipt_enabled`` it returns when the broker has done it, and raises its error: what is awaited
        leaves at once, together with all that is acknowledged in the same turn of the loop. Without, it returns at
        once. Raises InvalidMessage for what is no message, OperationNotSupported for an id that says too little (then
        nothing of a list is acknowledged), and AlreadyClosed.

        ``txn``: it counts once that is committed, and what was acknowledged comes again if it is aborted. It returns
        when the broker holds it (so give lists), and raises TransactionConflict if another transaction does already;
        what has failed lets the transaction be aborted only.

        ``properties``: names and 64-bit integers that the command takes to the broker, which does not keep those of
        single acknowledgments (see :meth:`acknowledge_cumulative`); none in a transaction. Raises InvalidMessage.
        """

    @abstractmethod
    async def acknowledge_cumulative(
        self,
        message: Message[Any] | MessageId,
        txn: Transaction | None = None,
        *,
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """Everything up to and with a message, of its topic or partition; receipts and ``txn`` as in
        :meth:`acknowledge`.

        ``properties``: names and 64-bit integers, 4,096 bytes of them, that the broker keeps with the position until
        the next cumulative acknowledgment: ``cursors.SUBSCRIPTION.properties`` of the topic's internal statistics.
        Raises CumulativeAcknowledgementNotAllowedError on Shared and Key_Shared: others hold what lies before it.
        """

    @abstractmethod
    async def negative_acknowledge(self, message: Message[Any] | MessageId) -> None:
        """It could not be processed: deliver it again after the redelivery delay (or backoff).

        A batch comes again with those of its messages that are not acknowledged. On Exclusive and Failover everything
        comes again that is not acknowledged, in order. Raises InvalidMessage for what is no message.
        """

    @abstractmethod
    async def reconsume_later(
        self,
        message: Message[Any],
        delay: timedelta | float = 0,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Put the message into the retry-letter topic, to come back after ``delay`` (seconds), and acknowledge it.

        After ``max_redeliver_count`` rounds it goes to the dead-letter topic. Needs ``retry_enabled``; raises
        InvalidMessage, or the error of storing it, and then it is not acknowledged.
        """

    @abstractmethod
    async def redeliver_unacknowledged_messages(self) -> None:
        """Everything this consumer holds unacknowledged comes again, now. Raises AlreadyClosed, or why it failed."""

    @abstractmethod
    async def flush_acknowledgements(self) -> None:
        """Send the acknowledgments that wait for their group now; with ``ack_receipt_enabled``, wait for the answers
        to all that was acknowledged before, and raise the first error among them."""

    # ---- listener, pause

    @abstractmethod
    def pause(self) -> None:
        """Ask for no more messages; what was asked for still comes and can be received, the listener gets none."""

    @abstractmethod
    def resume(self) -> None:
        """Go on after :meth:`pause`."""

    @abstractmethod
    def pause_message_listener(self) -> None:
        """The listener gets no messages; they wait in the prefetch queue."""

    @abstractmethod
    def resume_message_listener(self) -> None:
        """The listener gets messages again."""

    # ---- moving

    @abstractmethod
    async def seek(self, target: MessageId | int) -> None:
        """Move the subscription: to a message id (also ``MessageId.earliest`` and ``latest``), or to a time in
        milliseconds since the epoch.

        The message of that id comes next with ``start_message_id_inclusive``, else the one behind it; of a time, the
        first one published then or later. An id moves its own topic, the two ends and a time move all topics.

        Raises InvalidConfiguration for what is neither, AlreadyClosed, the broker's error, or Timeout after
        ``operation_timeout_ms``.
        """

    @abstractmethod
    async def get_last_message_id(self) -> MessageId:
        """Id of the topic's last message (entry id -1: it is empty).

        Raises OperationNotSupported with several topics, and what :meth:`get_last_message_ids` raises.
        """

    @abstractmethod
    async def get_last_message_ids(self) -> list[MessageId]:
        """Ids of the last messages, one for each topic or partition.

        Raises AlreadyClosed, the broker's error, or Timeout after ``operation_timeout_ms``.
        """

    @abstractmethod
    async def has_message_available(self) -> bool:
        """Whether a message can be received without waiting for somebody to publish one.

        The broker knows the last message of a topic, not whether it can be read. A reader waits until one is here, or
        what the broker has was read and gave none; for the operation timeout at most, then it is the broker's word.
        Raises what :meth:`get_last_message_ids` raises.
        """

    # ---- life

    @abstractmethod
    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription (``force``: also while others consume it) and close this consumer.

        Raises AlreadyClosed, InvalidConfiguration, the broker's error, or Timeout after ``operation_timeout_ms``; then
        it is not closed.
        """

    @abstractmethod
    async def close(self) -> None:
        """Send what is acknowledged, leave the broker; harmless twice. Whoever receives gets AlreadyClosed."""

    # ---- what it is

    @abstractmethod
    def topic(self) -> str:
        """What was subscribed to."""

    @abstractmethod
    def topics(self) -> list[str]:
        """The topics and partitions consumed now."""

    @abstractmethod
    def subscription_name(self) -> str:
        """The subscription."""

    @abstractmethod
    def consumer_name(self) -> str:
        """This consumer's name, unique in the subscription as a rule."""

    @abstractmethod
    def is_connected(self) -> bool:
        """Whether it is subscribed to all its topics now."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""

    @abstractmethod
    def is_active(self) -> bool:
        """On Failover: whether the broker made this the active consumer of any topic; True on the other types."""

    @abstractmethod
    def stats(self) -> ConsumerStats:
        """Counters since it was made, and rates of the last interval."""

    # ---- for the client's own parts

    @abstractmethod
    async def mark_delete_positions(self) -> list[MessageId | None]:
        """Up to where the subscription is acknowledged on each topic or partition; None: the broker does not say."""

    @abstractmethod
    def watch_prefetched(self, hook: Callable[[int], None], chunked_bytes_max: int = 0) -> None:
        """``hook`` hears of what came or is kept (:meth:`kept_bytes`), with the bytes of all that wait to be received.

        ``chunked_bytes_max``: a message in pieces that is larger, or inflates to more, stays in its topic; 0: any.
        How much is kept is the hook's to bound."""

    @abstractmethod
    def prefetched_bytes(self) -> int:
        """Of messages that wait to be received, an entry whole until its last one is, and of what is kept."""

    @abstractmethod
    def kept_bytes(self) -> int:
        """Of pieces that wait for the rest of their messages, and of ids that wait to be asked for again."""

    @abstractmethod
    def has_reached_end_of_topic(self) -> bool:
        """Whether each of its topics was terminated and had nothing more for it: there will be no more messages."""
