"""``ConsumerInterceptor``: code of the application that sees what a consumer receives and acknowledges.

Interceptors are called in the order given, on the loop's thread. What one raises is logged, and everything goes on as
without it: a message that was taken is handed out, an acknowledgement that was sent stays sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from geminga.client._consuming.consumer import Consumer
    from geminga.client._message import Message
    from geminga.client._message_id import MessageId


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
        """These entries are asked for again after a negative acknowledgement."""

    def on_ack_timeout_send(self, consumer: Consumer[Any], message_ids: Sequence[MessageId]) -> None:
        """These entries are asked for again because they were not acknowledged in time."""

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """A partitioned topic has more partitions now."""

    def close(self) -> None:
        """The consumer was closed."""
