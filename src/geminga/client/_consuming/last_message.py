"""What the last message of a topic is, and whether a consumer has received it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from geminga.client._api.message_id import MessageId
from geminga.client._consuming import requests
from geminga.client._consuming.last_received import LastReceived
from geminga.client._transport.cluster import Cluster
from geminga.client.consumer_rules.availability import Start, is_available
from geminga.model import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb

_ENDS: Final = {None: Start.SUBSCRIPTION, MessageId.earliest: Start.SUBSCRIPTION, MessageId.latest: Start.LATEST}


class Asked(Protocol):
    """The consumer of one topic, as far as it is asked here."""

    @property
    def cluster(self) -> Cluster:
        """Tries again."""
        ...

    @property
    def topic(self) -> TopicName:
        """The topic, or the partition."""
        ...

    @property
    def last_received(self) -> LastReceived:
        """What was received, and where it began."""
        ...

    async def request(self, make: requests.Make) -> pb.BaseCommand:
        """Ask the broker."""
        ...

    def has_passed_over(self, message_id: MessageId) -> bool:
        """Whether everything up to its entry came, and the last of it gave no message."""
        ...


async def last_message_ids(consumer: Asked) -> tuple[MessageId, MessageId | None]:
    """The topic's last message, and how far the subscription is acknowledged, if the broker says; raises its error.

    Asks again after a lost connection, until the operation timeout.
    """
    about = f"last message id of {consumer.topic}"
    answered = await consumer.cluster.lookup.retry(lambda: consumer.request(requests.get_last_message_id), about)
    answer = answered.getLastMessageIdResponse
    marked = answer.consumer_mark_delete_position if answer.HasField("consumer_mark_delete_position") else None
    topic = str(consumer.topic)
    return (
        MessageId.from_data(answer.last_message_id, topic),
        None if marked is None else MessageId.from_data(marked, topic),
    )


async def is_any_left(consumers: Iterable[Asked]) -> bool:
    """Whether a broker has a message of any of these topics that is still to come; raises its error."""
    for consumer in consumers:
        if await has_message_available(consumer):
            return True
    return False


async def has_message_available(consumer: Asked) -> bool:
    """Whether the broker has a message that was not received yet and can be; raises its error."""
    last, marked = await last_message_ids(consumer)
    if consumer.has_passed_over(last):
        return False
    last_received = consumer.last_received
    start, received = last_received.start_message_id, last_received.position()
    return is_available(
        _unpartitioned(last),
        marked=None if marked is None else _unpartitioned(marked),
        received=None if received is None else _unpartitioned(received),
        start=_ENDS.get(start) or (Start.SUBSCRIPTION if start is None else _unpartitioned(start)),
        is_inclusive=last_received.is_start_inclusive,
    )


def _unpartitioned(message_id: MessageId) -> MessageId:
    """All are of one topic, and only some say which partition that is: an order of partitions there is none."""
    return MessageId(-1, message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())
