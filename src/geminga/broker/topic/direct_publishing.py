"""Publishing to a non-persistent topic: what came is with its subscriptions when it is answered, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

from geminga.broker.subscription.non_persistent import NO_POSITION, NonPersistentSubscription
from geminga.broker.topic.message_size import runs_by_size
from geminga.broker.topic.publish import PublishBatch, Publishing
from geminga.runtime import Clock


class DirectPublishing(Publishing):
    """Hands entries to subscriptions and answers at once."""

    __slots__ = ("_subscriptions", "entries_in", "entry_bytes_max")

    def __init__(self, clock: Clock, subscriptions: Mapping[str, NonPersistentSubscription]) -> None:
        super().__init__(clock)
        self._subscriptions = subscriptions
        #: Entries published since the topic was loaded.
        self.entries_in = 0
        #: Bytes of the largest entry that the policies let in; 0: whatever the broker takes.
        self.entry_bytes_max = 0

    def publish(self, batch: PublishBatch) -> None:
        """As :meth:`Publishing.publish`."""
        for run in runs_by_size(batch, self.entry_bytes_max):
            if run.refusal is None:
                self._hand_over(run)
            else:
                run.producer.refuse(run, run.refusal)

    def _hand_over(self, batch: PublishBatch) -> None:
        entries, producer = batch.entries, batch.producer
        size_bytes = sum(map(len, entries))
        self.entries_in += len(entries)
        self.messages_in += batch.messages
        self.bytes_in += size_bytes
        self.last_published_s = self._clock.monotonic()
        producer.messages_in += batch.messages
        producer.bytes_in += size_bytes
        for subscription in list(self._subscriptions.values()):
            subscription.dispatch(entries)
        producer.begin(batch, 0)
        batch.same_id(NO_POSITION.ledger_id, NO_POSITION.entry_id)
