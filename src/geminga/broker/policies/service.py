"""Which rules hold for a topic now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.broker.policies.rules import TopicRules, rules_of
from geminga.broker.policies.topic_policies import TopicPolicyStore
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.service import Broker


class PolicyService:
    """Puts the three levels together."""

    __slots__ = ("_broker", "_default", "_system", "topics")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: The level of topics.
        self.topics = TopicPolicyStore(broker)
        #: Most topics have the broker's own rules: one object for all of them.
        self._system = TopicRules(unacked=broker.config.unacked_limits)
        self._default = rules_of(broker.config.rule_defaults, None, None)

    async def rules_now(self, name: TopicName) -> TopicRules | None:
        """By the namespace's policies as they are stored now; None: there is no such namespace. Raises StorageError.

        For what can not be undone: a watch may be late or lost.
        """
        self._broker.namespaces.forget(name.namespace)
        if await self._broker.namespaces.policies(name.namespace) is None:
            return None
        return await self.rules(name)

    async def rules(self, name: TopicName) -> TopicRules:
        """The rules of a topic. Raises StorageError."""
        namespace = await self._broker.namespaces.policies(name.namespace)
        topic = await self.topics.get(name) if name.is_persistent else None
        if name.is_system:
            # What the broker keeps for itself neither expires nor is held back; cursors of its own guard it.
            return self._system
        rules = rules_of(self._broker.config.rule_defaults, namespace, topic, self._broker.config.cluster_name)
        return self._default if rules == self._default else rules
