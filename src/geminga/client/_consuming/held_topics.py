"""``HeldTopics``: the consumers of single topics and partitions that one :class:`Consumer` has now."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from geminga.client._api.errors import InvalidMessage, OperationNotSupported
from geminga.client._api.message_id import MessageId
from geminga.client._consuming.topic_consumer import TopicConsumer
from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError


class HeldTopics:
    """In the order they came; who awaits something in between goes over :meth:`all`."""

    __slots__ = ("_held", "_is_paused", "on_gone")

    def __init__(self) -> None:
        #: The topic as text -> its consumer.
        self._held: dict[str, TopicConsumer] = {}
        self._is_paused = False
        #: Hears of a topic that was found by a pattern and does not exist any more; None: there is no pattern.
        self.on_gone: Callable[[TopicName], None] | None = None

    def __iter__(self) -> Iterator[TopicConsumer]:
        return iter(self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    def all(self) -> list[TopicConsumer]:
        """Those there are now."""
        return list(self._held.values())

    def names(self) -> list[str]:
        """The topics and partitions."""
        return list(self._held)

    def get(self, topic: TopicName) -> TopicConsumer | None:
        """The consumer of one; None: it was left."""
        return self._held.get(str(topic))

    def add(self, consumer: TopicConsumer) -> None:
        """It is open, or about to; among paused ones it is paused, too."""
        if self._is_paused:
            consumer.permits.pause()
        self._held[str(consumer.topic)] = consumer

    def remove(self, consumer: TopicConsumer) -> None:
        """Its topic is gone or it could not be opened."""
        self._held.pop(str(consumer.topic), None)

    def source_of(self, message_id: MessageId) -> TopicConsumer:
        """Whose message it is; raises InvalidMessage, or OperationNotSupported if the id does not say."""
        if not message_id.is_possible:
            raise InvalidMessage(f"{message_id!r:.100}: expected a message, or a message id that can be")
        topics, name = self._held, message_id.topic_name()
        found = topics.get(name)
        if found is not None:
            return found
        of_name = [topic for topic in topics.values() if not name or _is_named(topic.topic, name)]
        # Topics of a pattern go: what was of one that did is no other's, though it may look like it.
        candidates = list(topics.values()) if self.on_gone is None else of_name
        if len(candidates) == 1:
            return candidates[0]
        for among in (of_name, candidates):
            same = [topic for topic in among if topic.topic.partition == message_id.partition() >= 0]
            if len(same) == 1:
                return same[0]
        raise OperationNotSupported(
            f"{message_id!r} names no topic of this consumer: deserialize it with its topic, or use the message"
        )

    # ---- of all of them

    @property
    def is_paused(self) -> bool:
        """Whether no more messages are asked for."""
        return self._is_paused

    def pause(self) -> None:
        """No more permits, also of those to come."""
        self._is_paused = True
        for topic in self:
            topic.permits.pause()

    def resume(self) -> None:
        """Permits again."""
        self._is_paused = False
        for topic in self:
            topic.permits.resume()

    @property
    def capacity(self) -> int:
        """Messages that are prefetched at most, as far as it is known how large they are."""
        return sum(topic.flow.most if topic.flow.is_new else topic.flow.capacity for topic in self)

    @property
    def pending_acks(self) -> int:
        """Acknowledgments that wait to be sent."""
        return sum(topic.acks.sender.tracker.pending_count for topic in self)

    def ask_for_one(self) -> None:
        """Without prefetching: a message is wanted now."""
        for topic in self:
            topic.permits.ask_for_one()

    def send_owed(self) -> None:
        """Permits that wait for half of the queue go back now."""
        for topic in self:
            topic.permits.send_owed()


def _is_named(topic: TopicName, name: str) -> bool:
    """Whether ``name`` is the topic's, or that of the partitioned one it is a part of."""
    try:
        named = TopicName.parse(name)
    except InvalidTopicNameError:
        return False
    return named in (topic, topic.partitioned_topic)
