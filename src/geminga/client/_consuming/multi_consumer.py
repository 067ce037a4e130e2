"""Which topics a consumer has: named ones with their partitions, looked up again from time to time.

Partitions that a topic grows are added by themselves; partitions never go away. A pattern adds and removes topics
(:mod:`.pattern_consumer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from geminga.client._api.condition import Condition
from geminga.client._api.errors import InvalidConfiguration, PulsarException
from geminga.client._api.message_id import MessageId
from geminga.client._api.opening import close_unopened
from geminga.client._consuming.held_topics import HeldTopics
from geminga.client._consuming.subscription import Subscription
from geminga.client._consuming.topic_consumer import TopicConsumer
from geminga.client._messages.ports import Delivery
from geminga.client._transport.cluster import Cluster
from geminga.client.schema._protocol import SchemaSource, TopicSchema
from geminga.model import TopicName
from geminga.runtime import Raised, attempt_await, get_logger, spawn, wait_ms

_log = get_logger(__name__)

#: Where several topics and partitions may begin; None: where their subscription is.
_ENDS: Final = (None, MessageId.earliest, MessageId.latest)


class TopicSet:
    """The topics of one consumer."""

    __slots__ = (
        "_changing",
        "_cluster",
        "_condition",
        "_delivery",
        "_held",
        "_partitions",
        "_schema",
        "_schemas",
        "_start_message_id",
        "_subscription",
        "_task",
        "is_by_pattern",
    )

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        *,
        held: HeldTopics,
        delivery: Delivery,
        condition: Condition,
        schema: TopicSchema[Any] | None,
        schemas: SchemaSource,
        start_message_id: MessageId | None,
    ) -> None:
        """``held``: where the consumers of its topics come to; ``delivery``: who gets what they receive;
        ``condition``: of the consumer whose topics they are."""
        self._cluster = cluster
        self._subscription = subscription
        self._held = held
        self._delivery = delivery
        self._condition = condition
        self._schema = schema
        self._schemas = schemas
        #: What is added from now on was found by a pattern.
        self.is_by_pattern = False
        self._start_message_id = start_message_id
        #: Held by who looks for partitions, or leaves a topic: both may be asked to at any time.
        self._changing = asyncio.Lock()
        #: Topic -> number of its partitions, 0 for none.
        self._partitions: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def topics(self) -> list[str]:
        """Topics without partition suffix, in order of arrival."""
        return list(self._partitions)

    @property
    def partition_count(self) -> int:
        """Partitions of all topics."""
        return sum(self._partitions.values())

    async def add(self, topics: Iterable[TopicName]) -> None:
        """Subscribe to topics, all partitions of them; if one fails, all that were added here are closed again."""
        found: list[tuple[TopicName, int]] = []
        for topic in topics:
            if str(topic) in self._partitions:
                continue
            # A partition named as such is a topic of its own.
            count = 0 if topic.is_partition else await self._count(topic)
            found.append((topic, count))
        names = [name for topic, count in found for name in _partition_names(topic, 0, count)]
        await self._open(names, len(self._held) + len(names))
        for topic, count in found:
            self._partitions[str(topic)] = count

    async def remove(self, topic: str) -> None:
        """Close the consumers of a topic that is gone."""
        async with self._changing:
            self._partitions.pop(topic, None)
            going = [
                consumer
                for consumer in self._held.all()
                if topic in (str(consumer.topic.partitioned_topic), str(consumer.topic))
            ]
            # Closed before they are removed: cut off in between, the whole consumer's end closes them.
            await close_all(going)
            for consumer in going:
                self._held.remove(consumer)

    async def _count(self, topic: TopicName) -> int:
        return await self._cluster.lookup.partitions(
            str(topic), auto_create=self._subscription.options.force_topic_creation and not self.is_by_pattern
        )

    async def _open(self, names: list[TopicName], total: int, *, are_added: bool = False) -> None:
        """``are_added``: partitions that there were not before."""
        subscription, start = self._subscription, self._start_message_id
        if are_added:
            subscription = subscription.of_added_partition()
            start = None if start is None else MessageId.earliest
        options = subscription.options
        capacity = options.receiver_queue_size
        if total > 1:
            check_start_of_several(start)
            if capacity == 0:
                raise InvalidConfiguration("receiver_queue_size=0: only with one topic without partitions")
            capacity = max(1, min(capacity, options.max_total_receiver_queue_size_across_partitions // total))
        made: list[TopicConsumer] = []
        try:
            for name in names:
                schema = self._schema
                decoder = (
                    None if schema is None else await schema.bind_consumer(str(name.partitioned_topic), self._schemas)
                )
                topic = TopicConsumer(
                    self._cluster,
                    subscription,
                    self._delivery,
                    name,
                    capacity=capacity,
                    decoder=decoder,
                    start_message_id=start,
                    is_found=self.is_by_pattern,
                )
                made.append(topic)
                self._held.add(topic)
            await _open_all(made)
        except BaseException as error:
            for topic in made:
                self._held.remove(topic)
            await close_unopened(close_all(made), error, name=f"close what was not opened of {self._condition.name}")
            raise

    # ---- partitions that are added

    def start_updates(self) -> None:
        """Look for new partitions from time to time, if any topic has partitions; harmless twice."""
        if self._task is not None or self._condition.is_closed:
            return
        if self._subscription.options.auto_update_partitions_interval_ms and any(self._partitions.values()):
            self._task = spawn(self._update(), name=f"partitions of {self._condition.name}")

    def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _update(self) -> None:
        while True:
            await wait_ms(self._subscription.options.auto_update_partitions_interval_ms)
            await self._look()

    async def _look(self) -> None:
        outcome = await attempt_await(self.update_partitions())
        if isinstance(outcome, Raised):
            _log.info("partitions of %s: %s", self._condition.name, outcome)

    async def update_partitions(self) -> None:
        """Look for new partitions of every topic now; raises what went wrong first, which may be the schema's own."""
        failure: Exception | None = None
        for topic in list(self._partitions):
            outcome = await attempt_await(self._add_partitions(topic))
            if isinstance(outcome, Raised):
                failure = failure or outcome.error
        if failure is not None:
            try:
                raise failure
            finally:
                del failure, outcome  # see runtime's value_of

    async def _add_partitions(self, topic: str) -> None:
        async with self._changing:
            count = self._partitions.get(topic)
            if not count:
                return  # it has none, or was left
            now = await self._cluster.lookup.partitions(topic, auto_create=False)
            if now > count:
                names = _partition_names(TopicName.parse(topic), count, now)
                await self._open(names, len(self._held) + len(names), are_added=True)
                self._partitions[topic] = now
                if self._subscription.interceptors is not None:
                    self._subscription.interceptors.partitions_changed(topic, now)


def _partition_names(topic: TopicName, first: int, count: int) -> list[TopicName]:
    return [topic.with_partition(index) for index in range(first, count)] if count else [topic]


def check_start_of_several(start: MessageId | None) -> None:
    """Raise InvalidConfiguration for a message of one of them: others may be behind it as a whole, and nothing of them
    would ever come."""
    if start not in _ENDS:
        raise InvalidConfiguration(
            f"start_message_id={start}: a message of one topic or partition; expected MessageId.earliest or latest "
            "with several, or the name of its partition"
        )


async def _open_all(consumers: list[TopicConsumer]) -> None:
    """All at once; the first failure is raised, after every attempt ended."""
    tasks = [spawn(_open(consumer), name=f"subscribe to {consumer.topic}") for consumer in consumers]
    try:
        errors = [await task for task in tasks]
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    for error in errors:
        if error is not None:
            try:
                raise error
            finally:
                del error, errors, tasks  # see runtime's value_of


async def _open(consumer: TopicConsumer) -> PulsarException | None:
    try:
        await consumer.open()
    except PulsarException as error:
        return error
    return None


async def close_all(consumers: Sequence[TopicConsumer]) -> None:
    """Close them side by side: each may have to wait for its broker. Cancelled, all of them are closed all the same."""
    if len(consumers) == 1:
        await consumers[0].close()
        return
    tasks = [spawn(consumer.close(), name=f"close consumer of {consumer.topic}") for consumer in consumers]
    try:
        for task in tasks:
            await asyncio.wait([task])
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        raise
