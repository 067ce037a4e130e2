"""``Listeners``: the producers, consumers and watches of one connection, and what the broker tells each of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from geminga.client._api.errors import PulsarException, error_from_broker
from geminga.client._transport.handlers import ConsumerHandler, ProducerHandler, ServiceUrl, WatchHandler
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_send_receipt, message_consumer_id
from geminga.wire.pulsar.commands import decode_command
from geminga.wire.pulsar.frame import Frame
from geminga.wire.pulsar.varint import signed64

_MESSAGE_PREFIX: Final = b"\x08\x09\x4a"
_RECEIPT_PREFIX: Final = b"\x08\x07\x3a"
#: What MESSAGE commands of one consumer begin with: the prefix, a size of one byte, and the consumer's id of one byte.
_CONSUMER_END: Final = 6
_SHORT_MESSAGE: Final = re.compile(_MESSAGE_PREFIX + rb"[\x00-\x7f]\x08[\x00-\x7f]")
_Type = pb.BaseCommand


class Listeners:
    """By their ids. Each hears ``on_connection_lost`` exactly once, in the order of registration, and nothing after."""

    __slots__ = ("_borrowers", "_consumers", "_producers", "_uses_tls", "_watchers", "is_over")

    def __init__(self, *, uses_tls: bool = False) -> None:
        """``uses_tls``: so does the connection, and who is sent on is told an address with it."""
        self._uses_tls = uses_tls
        self._producers: dict[int, ProducerHandler] = {}
        self._consumers: dict[int, ConsumerHandler] = {}
        self._watchers: dict[int, WatchHandler] = {}
        #: Consumers that take views of what was read; while there was one, others get copies of it.
        self._borrowers: set[int] | None = None
        #: The connection is lost.
        self.is_over = False

    def end(self, error: PulsarException) -> None:
        """The connection is lost: everybody hears ``error``, and nothing any more."""
        self.is_over = True
        handlers: list[ProducerHandler | ConsumerHandler | WatchHandler] = [
            *self._producers.values(),
            *self._consumers.values(),
            *self._watchers.values(),
        ]
        self._producers.clear()
        self._consumers.clear()
        self._watchers.clear()
        for handler in handlers:
            handler.on_connection_lost(error)

    def on_writable(self) -> None:
        """The transport takes data again: producers go on."""
        for producer in list(self._producers.values()):
            producer.on_writable()

    # ---- who listens

    def register_producer(self, producer_id: int, handler: ProducerHandler) -> None:
        """``handler`` hears of the producer's receipts and of its end."""
        self._producers[producer_id] = handler

    def unregister_producer(self, producer_id: int) -> None:
        """It hears nothing any more; fine if it was not registered."""
        self._producers.pop(producer_id, None)

    def has_producer(self, producer_id: int) -> bool:
        """Whether it is registered: neither the broker nor the loss of the connection ended it."""
        return producer_id in self._producers

    def has_consumer(self, consumer_id: int) -> bool:
        """Whether it is registered: neither the broker nor the loss of the connection ended it."""
        return consumer_id in self._consumers

    def register_consumer(self, consumer_id: int, handler: ConsumerHandler) -> None:
        """``handler`` hears of the consumer's messages and of its end."""
        self._consumers[consumer_id] = handler

    def unregister_consumer(self, consumer_id: int) -> None:
        """It hears nothing any more; fine if it was not registered."""
        self._consumers.pop(consumer_id, None)
        if self._borrowers:
            self._borrowers.discard(consumer_id)

    def lend_to(self, consumer_id: int) -> None:
        """What is behind the command of its messages may be a memoryview, as the connection's buffer lends."""
        if self._borrowers is None:
            self._borrowers = set()
        self._borrowers.add(consumer_id)

    def register_watcher(self, watcher_id: int, handler: WatchHandler) -> None:
        """``handler`` hears of changes of a list of topics."""
        self._watchers[watcher_id] = handler

    def unregister_watcher(self, watcher_id: int) -> None:
        """It hears nothing any more; fine if it was not registered."""
        self._watchers.pop(watcher_id, None)

    # ---- frames

    def take(
        self, frames: list[Frame], handle: Callable[[pb.BaseCommand], None], *, commands_max: int = 1 << 62
    ) -> int:
        """The frames of one turn, in order: messages of a consumer reach it as one call; ``handle`` gets commands that
        are neither messages nor plain receipts, at most ``commands_max``. How many frames were taken."""
        messages: list[Frame] = []
        commands = 0
        consumer_id = -1
        # How the commands of the consumer whose messages are gathered begin.
        alike: bytes | None = None
        for number, frame in enumerate(frames, 1):
            command = frame[0]
            if command[:_CONSUMER_END] == alike:
                messages.append(frame)
                continue
            prefix = command[:3]
            if prefix == _MESSAGE_PREFIX:
                owner = message_consumer_id(command)
                if owner == -1:  # in an unusual form, or damaged
                    owner = decode_command(command).message.consumer_id
                if owner != consumer_id:
                    if messages:
                        self._deliver(consumer_id, messages)
                        messages = []
                    consumer_id = owner
                messages.append(frame)
                short = _SHORT_MESSAGE.match(command)
                alike = short[0] if short else None
                continue
            if messages:
                self._deliver(consumer_id, messages)
                messages = []
            alike = None
            if self.is_over:
                return len(frames)
            if prefix == _RECEIPT_PREFIX:
                receipt = decode_send_receipt(command)
                if receipt is not None:
                    producer = self._producers.get(receipt[0])
                    if producer is not None:
                        producer.on_receipt(receipt[1], receipt[2], receipt[3], receipt[4])
                    continue
            handle(decode_command(command))
            commands += 1
            if commands == commands_max:
                return number
        if messages:
            self._deliver(consumer_id, messages)
        return len(frames)

    def _deliver(self, consumer_id: int, frames: list[Frame]) -> None:
        consumer = self._consumers.get(consumer_id)
        if consumer is not None:  # else: late ones of a consumer that was closed
            if self._borrowers is not None and consumer_id not in self._borrowers:
                frames = [(command, bytes(data)) for command, data in frames]
            consumer.on_messages(frames)

    # ---- commands

    def _on_receipt(self, command: pb.BaseCommand) -> None:
        receipt = command.send_receipt
        producer = self._producers.get(receipt.producer_id)
        if producer is not None:
            # -1 travels as 2^64 - 1; so does a receipt without any message id.
            ledger_id, entry_id = receipt.message_id.ledgerId, receipt.message_id.entryId
            producer.on_receipt(
                receipt.sequence_id, receipt.highest_sequence_id, signed64(ledger_id), signed64(entry_id)
            )

    def _on_send_error(self, command: pb.BaseCommand) -> None:
        refusal = command.send_error
        producer = self._producers.get(refusal.producer_id)
        if producer is not None:
            producer.on_send_error(refusal.sequence_id, error_from_broker(refusal.error, refusal.message))

    def _on_close_producer(self, command: pb.BaseCommand) -> None:
        request = command.close_producer
        url = request.assignedBrokerServiceUrlTls if self._uses_tls else request.assignedBrokerServiceUrl
        _closed_by_broker(self._producers.pop(request.producer_id, None), url)

    def _on_close_consumer(self, command: pb.BaseCommand) -> None:
        request = command.close_consumer
        url = request.assignedBrokerServiceUrlTls if self._uses_tls else request.assignedBrokerServiceUrl
        _closed_by_broker(self._consumers.pop(request.consumer_id, None), url)

    def _on_topic_migrated(self, command: pb.BaseCommand) -> None:
        migrated = command.topicMigrated
        url = ServiceUrl(migrated.brokerServiceUrl, migrated.brokerServiceUrlTls)
        if migrated.resource_type == pb.CommandTopicMigrated.Producer:
            _closed_by_broker(self._producers.pop(migrated.resource_id, None), url)
        else:
            _closed_by_broker(self._consumers.pop(migrated.resource_id, None), url)

    def _on_active_change(self, command: pb.BaseCommand) -> None:
        change = command.active_consumer_change
        consumer = self._consumers.get(change.consumer_id)
        if consumer is not None:
            consumer.on_active_change(change.is_active)

    def _on_end_of_topic(self, command: pb.BaseCommand) -> None:
        consumer = self._consumers.get(command.reachedEndOfTopic.consumer_id)
        if consumer is not None:
            consumer.on_end_of_topic()

    def _on_ack_response(self, command: pb.BaseCommand) -> None:
        response = command.ackResponse
        consumer = self._consumers.get(response.consumer_id)
        if consumer is not None:
            error = error_from_broker(response.error, response.message) if response.HasField("error") else None
            consumer.on_ack_response(response.request_id, error)

    def _on_topic_update(self, command: pb.BaseCommand) -> None:
        watcher = self._watchers.get(command.watchTopicUpdate.watcher_id)
        if watcher is not None:
            watcher.on_topic_update(command.watchTopicUpdate)


def _closed_by_broker(handler: ProducerHandler | ConsumerHandler | None, url: str | ServiceUrl) -> None:
    if handler is not None:
        handler.on_closed_by_broker(url)


_Handler = Callable[[Listeners, pb.BaseCommand], None]
#: What is for one of them alone.
FOR_LISTENERS: Final[dict[int, _Handler]] = {
    _Type.SEND_RECEIPT: Listeners._on_receipt,
    _Type.SEND_ERROR: Listeners._on_send_error,
    _Type.CLOSE_PRODUCER: Listeners._on_close_producer,
    _Type.CLOSE_CONSUMER: Listeners._on_close_consumer,
    _Type.TOPIC_MIGRATED: Listeners._on_topic_migrated,
    _Type.ACTIVE_CONSUMER_CHANGE: Listeners._on_active_change,
    _Type.REACHED_END_OF_TOPIC: Listeners._on_end_of_topic,
    _Type.ACK_RESPONSE: Listeners._on_ack_response,
    _Type.WATCH_TOPIC_UPDATE: Listeners._on_topic_update,
}
