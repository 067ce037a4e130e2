"""Resource groups, loaded with the first topic whose namespace is in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.broker.ownership.sole import SoleOwnership
from geminga.broker.policies.core.record_rows import RESOURCE_GROUP
from geminga.broker.publishing.rates import NO_THROTTLES, BrokerThrottles

if TYPE_CHECKING:
    from geminga.broker.composition.service import Broker
    from geminga.broker.groups.groups import BrokerGroups
    from geminga.broker.policies.rules import TopicRules

_COPYING = "ReplicationDispatch"
#: Monitoring classes of Pulsar's metrics -> the limits of messages and of bytes.
_CLASSES = {
    "Publish": ("publishRateInMsgs", "publishRateInBytes"),
    "Dispatch": ("dispatchRateInMsgs", "dispatchRateInBytes"),
    # Of a group that limits it.
    _COPYING: ("replicationDispatchRateInMsgs", "replicationDispatchRateInBytes"),
}
Labels = tuple[tuple[str, str], ...]


class LateGroups:
    """See the module."""

    __slots__ = ("_broker", "groups")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: None: no topic ever was in one.
        self.groups: BrokerGroups | None = None

    async def throttles(self, rules: TopicRules) -> BrokerThrottles:
        """What holds a topic with its group. Raises StorageError."""
        name = rules[RESOURCE_GROUP]
        if not name or self._broker.is_closing:
            return NO_THROTTLES
        if self.groups is None:
            from geminga.broker.groups.groups import BrokerGroups

            broker = self._broker
            self.groups = BrokerGroups(
                broker.runtime,
                broker.metadata,
                broker,
                interval_s=lambda: broker.config.resource_usage_interval_s,
                is_alone=isinstance(broker.ownership, SoleOwnership),
                in_use=lambda: {topic.rules[RESOURCE_GROUP] for topic in broker.topics.values()},
                follow=self._follow,
            )
        return await self.groups.throttles(name)

    async def _follow(self, group: str) -> None:
        topics = self._broker.topics.values()
        for namespace in {topic.name.namespace for topic in topics if topic.rules[RESOURCE_GROUP] == group}:
            await self._broker.policies_changed(namespace)

    async def close(self) -> None:
        """Give the shares back."""
        if self.groups is not None:
            await self.groups.close()

    def rows(self) -> list[tuple[Labels, dict[str, float]]]:
        """For the metrics: what was used and what this broker may use, by group and monitoring class."""
        found: list[tuple[Labels, dict[str, float]]] = []
        for name, group in sorted(self.groups.groups.items()) if self.groups is not None else ():
            totals = group.totals()
            for kind, (messages, size) in _CLASSES.items():
                if kind == _COPYING and group.throttles.copying is None:
                    continue
                labels = (("resource_group", name), ("monitoring_class", kind))
                values: dict[str, float] = {
                    "pulsar_resource_group_messages_used": totals[messages],
                    "pulsar_resource_group_bytes_used": totals[size],
                }
                if messages in group.shares:
                    values["pulsar_resource_group_calculated_messages_quota"] = group.shares[messages]
                if size in group.shares:
                    values["pulsar_resource_group_calculated_bytes_quota"] = group.shares[size]
                found.append((labels, values))
        return found
