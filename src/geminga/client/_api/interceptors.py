"""Interceptors of producers: they see every message before it is sent, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.client._api.errors import PulsarException
from geminga.client._api.message_id import MessageId
from geminga.client._api.options import OutgoingMessage

if TYPE_CHECKING:
    from geminga.client._api.producer import Producer


class ProducerInterceptor:
    """Override what you need. What an interceptor raises in :meth:`before_send` is raised by ``send``."""

    def before_send(self, producer: Producer[object], message: OutgoingMessage) -> OutgoingMessage:
        """The message to send: the given one, changed or not, or another one."""
        return message

    def on_send_acknowledgement(
        self,
        producer: Producer[object],
        message: OutgoingMessage,
        message_id: MessageId | None,
        error: PulsarException | None,
    ) -> None:
        """It was stored as ``message_id``, or failed with ``error``."""

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        """A partitioned topic has so many partitions now."""

    def close(self) -> None:
        """The producer is closed."""
