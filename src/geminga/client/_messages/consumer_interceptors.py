"""``ConsumerInterceptor``: code of the application that sees what a consumer receives and acknowledges.

Interceptors are called in the order given, on the loop's thread. What one raises is logged, and everything goes on as
without it: a message that was taken is handed out, an acknowledgment that was sent stays sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from geminga.client._api.message_id import MessageId
from geminga.client._messages.consumer import Consumer
from geminga.client._messages.message import Message
from geminga.runtime import Raised, attempt, get_logger, tell

T = TypeVar("T")
_log = get_logger(__name__)


class ConsumerInterceptor:
    """Does nothing; override what you need."""

    def before_consume(self, consumer: Consumer[Any], message: Message[Any]) -> Message[Any]:
        """A message is about to be handed out; what is returned is handed out instead."""
        return message

    def on_acknowledge(self, consumer: Consumer[Any], message_id: MessageId, error: Exception | None) -> None:
        """A message was acknowledged (with receipts: the broker said so), or that failed."""

    def on_acknowledge_cumulative(
        self, consumer: Consumer[Any], message_id: MessageId, error: Exception | None
    ) -> None:
        """Everything up to a message was acknowledged, or that failed."""

    def on_negative_acks_send(self, consumer: Consumer[Any], message_ids: Sequence[MessageId]) -> None:
        """These entries are asked for again after a negative acknowledgment."""

    def on_ack_timeout_send(self, consumer: Consumer[Any], message_ids: Sequence[MessageId]) -> None:
        """These entries are asked for again because they were not acknowledged in time."""

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """A partitioned topic has more partitions now."""

    def close(self) -> None:
        """The consumer was closed."""


class Interceptors:
    """Those of one consumer, told one after the other."""

    __slots__ = ("_all", "_consumer")

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._all = tuple(interceptors)
        #: What they are told with; set once, by the consumer itself.
        self._consumer: Consumer[Any] | None = None

    def speak_for(self, consumer: Consumer[Any]) -> None:
        """It is the consumer they hear of."""
        self._consumer = consumer

    @property
    def _speaker(self) -> Consumer[Any]:
        assert self._consumer is not None
        return self._consumer

    def consumed(self, message: Message[T]) -> Message[T]:
        """A message is about to be handed out: what is handed out instead."""
        # It left the queue: an interceptor that fails, or gives nothing back, must not lose it.
        for interceptor in self._all:
            given = attempt(interceptor.before_consume, self._speaker, message)
            if isinstance(given, Message):
                message = given
            elif isinstance(given, Raised):
                _log.error("interceptor of %s: %s", self._speaker.topic(), given, exc_info=given.error)
            else:
                kind = type(given).__name__
                _log.error("interceptor of %s gave %s: expected a message", self._speaker.topic(), kind)
        return message

    def acknowledged(self, message_id: MessageId, error: Exception | None) -> None:
        """A message was acknowledged, or that failed."""
        for interceptor in self._all:
            tell(_log, "interceptor", interceptor.on_acknowledge, self._speaker, message_id, error)

    def acknowledged_up_to(self, message_id: MessageId, error: Exception | None) -> None:
        """Everything up to a message was acknowledged, or that failed."""
        for interceptor in self._all:
            tell(_log, "interceptor", interceptor.on_acknowledge_cumulative, self._speaker, message_id, error)

    def refused(self, message_ids: Sequence[MessageId]) -> None:
        """Entries are asked for again after a negative acknowledgment."""
        for interceptor in self._all:
            tell(_log, "interceptor", interceptor.on_negative_acks_send, self._speaker, message_ids)

    def timed_out(self, message_ids: Sequence[MessageId]) -> None:
        """Entries are asked for again because they were not acknowledged in time."""
        for interceptor in self._all:
            tell(_log, "interceptor", interceptor.on_ack_timeout_send, self._speaker, message_ids)

    def partitions_changed(self, topic: str, partitions: int) -> None:
        """A partitioned topic has more partitions now."""
        for interceptor in self._all:
            tell(_log, "interceptor", interceptor.on_partitions_change, topic, partitions)

    def close(self) -> None:
        """The consumer was closed: they hear of that, and of nothing more."""
        told, self._all, self._consumer = self._all, (), None
        for interceptor in told:
            tell(_log, "interceptor", interceptor.close)
