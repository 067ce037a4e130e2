"""What the last message of a topic is, and whether a consumer has received it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.client._consuming import requests
from geminga.client._message_id import MessageId

if TYPE_CHECKING:
    from geminga.client._consuming.topic_consumer import TopicConsumer


async def last_message_ids(consumer: TopicConsumer) -> tuple[MessageId, MessageId | None]:
    """The topic's last message, and how far the subscription is acknowledged, if the broker says; raises its error.

    Asks again after a lost connection, until the operation timeout.
    """
    about = f"last message id of {consumer.topic}"
    answered = await consumer.client.lookup.retry(lambda: consumer.request(requests.get_last_message_id), about)
    answer = answered.getLastMessageIdResponse
    marked = answer.consumer_mark_delete_position if answer.HasField("consumer_mark_delete_position") else None
    topic = str(consumer.topic)
    return (
        MessageId.from_data(answer.last_message_id, topic),
        None if marked is None else MessageId.from_data(marked, topic),
    )


async def has_message_available(consumer: TopicConsumer) -> bool:
    """Whether the broker has a message that was not received yet and can be; raises its error."""
    last, marked = await last_message_ids(consumer)
    if last.entry_id() < 0 or consumer.has_passed_over(last):
        return False
    received = consumer.last_received()
    if received is not None:
        return last > received
    start = consumer.start_message_id
    if start is None or start == MessageId.earliest:
        # The subscription's own place: everything acknowledged is behind it.
        return marked is None or last > marked
    if start == MessageId.latest:
        return marked is not None and marked.entry_id() >= 0 and last > marked
    return last >= start if consumer.options.start_message_id_inclusive else last > start
