"""Properties of topics as labels of their metrics (``exposeCustomTopicMetricLabelsEnabled``), as in Pulsar (PIP-447).

Which ones: those that the namespace's policy or the broker's configuration names, and that the topic has; of a
partition those of its partitioned topic. Persistent topics alone have any. Asked for when somebody scrapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from geminga.broker.policies.core.record_rows import METRIC_LABELS, is_label
from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.errors import StorageError
from geminga.runtime import Turns, get_logger

if TYPE_CHECKING:
    from geminga.broker.composition.service import Broker
    from geminga.model.exposition import Labels

_log = get_logger(__name__)

#: What is stored of a partitioned topic is read again after so many seconds.
READ_AGAIN_S: Final = 60.0


class TopicLabels:
    """See the module."""

    __slots__ = ("_broker", "_stored")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Of partitioned topics that have partitions here: when they were read, and their properties.
        self._stored: dict[str, tuple[float, Mapping[str, str]]] = {}

    async def now(self) -> dict[str, Labels]:
        """Of each topic that has any, by full name."""
        found: dict[str, Labels] = {}
        before, self._stored = self._stored, {}
        turns = Turns(self._broker.runtime.clock)
        for topic in [*self._broker.topics.values()]:
            if turns.is_over():
                await turns.next()
            wanted = topic.rules[METRIC_LABELS]
            if wanted and isinstance(topic, PersistentTopic):
                properties = await self._properties(topic, before)
                labels = tuple((key, properties[key]) for key in wanted if key in properties and is_label(key))
                if labels:
                    found[str(topic.name)] = labels
        return found

    async def _properties(
        self, topic: PersistentTopic, before: Mapping[str, tuple[float, Mapping[str, str]]]
    ) -> Mapping[str, str]:
        if not topic.name.is_partition:
            return topic.ledger.stored.properties
        whole = topic.name.partitioned_topic
        key, now_s = str(whole), self._broker.runtime.clock.monotonic()
        known = self._stored.get(key) or before.get(key)
        if known is None or now_s - known[0] >= READ_AGAIN_S:
            try:
                stored = await self._broker.resources.partitioned_topics.find(whole)
                known = now_s, {} if stored is None else stored.properties
            except StorageError as error:
                # Series whose labels come and go would be other series.
                _log.warning("labels of the metrics of %s are those of before: %s", whole, error)
                known = now_s, {} if known is None else known[1]
        self._stored[key] = known
        return known[1]
