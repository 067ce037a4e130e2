"""The topics that a broker has open, found by their own names and by those of what they are partitions of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.topic.base import Topic


class LoadedTopics:
    """See the module."""

    __slots__ = ("_partitions", "by_name")

    def __init__(self) -> None:
        #: By full name; changed by :meth:`add` and :meth:`discard` alone.
        self.by_name: dict[str, Topic] = {}
        #: The full name of a partitioned topic -> its partitions that are here, by their own.
        self._partitions: dict[str, dict[str, Topic]] = {}

    def add(self, topic: Topic) -> None:
        """In the place of the one of that name, if there is one."""
        name = topic.name
        self.by_name[str(name)] = topic
        if name.is_partition:
            self._partitions.setdefault(str(name.partitioned_topic), {})[str(name)] = topic

    def discard(self, name: TopicName) -> None:
        """It is closed; nothing if it is not here."""
        self.by_name.pop(str(name), None)
        if name.is_partition:
            whole = str(name.partitioned_topic)
            partitions = self._partitions.get(whole)
            if partitions is not None:
                partitions.pop(str(name), None)
                if not partitions:
                    del self._partitions[whole]

    def of(self, whole: TopicName) -> list[Topic]:
        """That topic, and its partitions; as many as are here."""
        key = str(whole)
        own = self.by_name.get(key)
        return [*(() if own is None else (own,)), *self._partitions.get(key, {}).values()]
