"""Delayed delivery of one topic: what waits for its time, for all subscriptions, and its snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import ClassVar

from geminga.broker.core.delayed.delivery import TopicDelays
from geminga.broker.policies.core.delivery_rows import DELAYED_DELIVERY
from geminga.broker.subscription.due_messages import forget_acknowledged
from geminga.broker.topic.delayed_snapshots import DelayedSnapshots, stored_value
from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.broker.topic.publish import PublishBatch, Refusal, runs_without
from geminga.model.errors import NotAllowedError
from geminga.wire.pulsar.metadata import peek_metadata


class DelayedDelivery(TopicPart):
    """Most topics have no delayed messages: then it holds nothing.

    Where nobody subscribes nobody waits either, and it is not asked whether there is a snapshot: a topic that is loaded
    for its producers is so a way to the metadata sooner. The first who subscribes has it read.
    """

    __slots__ = ("_delays", "_is_read", "_reading", "_snapshots", "_topic")

    name: ClassVar[str] = "delayedDelivery"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        #: Made for the first Shared or Key_Shared consumer.
        self._delays: TopicDelays | None = None
        self._snapshots: DelayedSnapshots | None = None
        #: Whether it was looked for a snapshot of before.
        self._is_read = False
        self._reading: asyncio.Future[None] | None = None

    def delays(self) -> TopicDelays | None:
        """What waits for its delivery time; None: messages are delivered at once."""
        if not self._topic.rules.delays:
            return None
        if self._delays is None:
            self._make()
        return self._delays

    def _make(self) -> DelayedSnapshots:
        topic, services, config = self._topic, self._topic.services, self._topic.services.config
        delays = self._delays = TopicDelays(
            tick_ms=topic.rules.delay_tick_ms,
            is_strict=config.is_delayed_delivery_deliver_at_time_strict,
            fresh_max=config.delayed_delivery_min_index_count_per_bucket,
        )
        snapshots = self._snapshots = DelayedSnapshots(
            topic.name.managed_ledger_name,
            delays,
            clock=services.runtime.clock,
            metadata=services.metadata,
            bookkeeper=services.ledgers.bookkeeper,
            config=services.ledgers.config,
            part=topic,
        )
        return snapshots

    def acknowledged(self) -> None:
        """Subscriptions were moved on, or are gone."""
        if self._delays is not None:
            topic = self._topic
            cursors = [subscription.cursor for subscription in topic.subscriptions.values()]
            forget_acknowledged(self._delays, topic.ledger, cursors, topic)

    async def load(self) -> None:
        """What is known to wait since before the topic was loaded, if anybody does."""
        if self._topic.subscriptions:
            await self.ready()

    async def ready(self) -> None:
        """Have a snapshot of before read, before there is a consumer. Where messages do not wait any more it is known
        all the same whether there is one: it goes with the topic, and is replaced when they wait again."""
        while not self._is_read:
            if self._reading is not None:
                await asyncio.shield(self._reading)
                continue
            reading = self._reading = asyncio.get_running_loop().create_future()
            try:
                await self._read(is_used=self._topic.rules.delays)
            finally:
                # Called off, it is left to the next.
                self._reading = None
                reading.set_result(None)

    async def _read(self, *, is_used: bool) -> None:
        topic = self._topic
        value = await stored_value(topic.services.metadata, topic.name.managed_ledger_name)
        if value:
            await self._make().load(value, is_used=is_used)
        self._is_read = True

    def stats(self) -> Mapping[str, int | bool]:
        """What the index holds and takes; empty while there is none."""
        delays, snapshots = self._delays, self._snapshots
        if delays is None or snapshots is None:
            return {}
        return {
            "entries": len(delays),
            "memoryBytes": delays.index.memory_bytes,
            "bucketMs": 1 << delays.index.bits,
            "strict": delays.index.is_strict,
            "readers": delays.reader_count,
            "notSaved": delays.fresh_count,
            "snapshotLedgerId": snapshots.ledger_id,
        }

    async def close(self) -> None:
        """Save what is worth it."""
        if self._snapshots is not None:
            await self._snapshots.close()

    def drop(self) -> None:
        """The index is not to be trusted."""
        if self._snapshots is not None:
            self._snapshots.stop()

    async def delete(self) -> None:
        """The snapshot goes with the topic."""
        if not self._is_read:
            await self._read(is_used=False)
        if self._snapshots is not None:
            await self._snapshots.delete()


def delays_stats(topic: PartTopic) -> Mapping[str, int | bool]:
    """What a topic's delayed index holds and takes; empty while there is none."""
    part = topic.parts.find(DelayedDelivery)
    return part.stats() if part is not None else {}


class LongestDelay(TopicPart):
    """Refuses messages that are to wait for longer than the policies let them: as they say when they were published.

    A topic without such a limit, or that delivers at once, has no such part, and pays nothing.
    """

    __slots__ = ("_topic", "longest_ms")

    name: ClassVar[str] = "longestDelay"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        self.longest_ms = topic.rules[DELAYED_DELIVERY].longest_ms

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Where messages wait, and not for as long as they like."""
        delays = topic.rules[DELAYED_DELIVERY]
        return delays.is_active and delays.longest_ms > 0

    def policies_changed(self) -> None:
        """Another limit holds."""
        self.longest_ms = self._topic.rules[DELAYED_DELIVERY].longest_ms

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        """Refuse what is to wait for longer, and nothing else of the batch."""
        if not any(map(self._is_refused, batch.entries)):
            return (batch,)
        # In Pulsar's words.
        error = NotAllowedError(f"Exceeds max allowed delivery delay of {self.longest_ms} milliseconds")
        return runs_without(batch, self._is_refused, Refusal(error))

    def _is_refused(self, entry: bytes) -> bool:
        metadata = peek_metadata(entry)
        if metadata is None or not metadata.HasField("deliver_at_time"):
            return False
        return metadata.deliver_at_time - metadata.publish_time > self.longest_ms
