"""Which rules hold for a topic now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from geminga.broker.policies.core.limit_rows import MAX_UNACKED_ON_CONSUMER, MAX_UNACKED_ON_SUBSCRIPTION
from geminga.broker.policies.core.record_rows import REPLICATION
from geminga.broker.policies.core.row import PolicyRow, Settings
from geminga.broker.policies.rules import Levels, TopicRules
from geminga.broker.resources.documents import Json
from geminga.broker.resources.policies import Policies
from geminga.broker.resources.topic_policies import NO_TOPIC_POLICIES, TopicPolicies
from geminga.broker.system_topics.ports import NamespacePolicies
from geminga.broker.system_topics.topic_policies import TopicPolicyStore
from geminga.model.topic_name import CHANGE_EVENTS, TopicName

if TYPE_CHECKING:
    from geminga.wire.bookkeeper.isolation import IsolationGroups

#: Key: namespaces without bookies of their own keep off those that are in groups.
STRICT_AFFINITY: Final = "strictBookieAffinityEnabled"
#: Namespaces whose rules are remembered: most topics have those of their namespace, one object for all of them.
NAMESPACES_MAX: Final = 1000


class PolicyService:
    """Puts the levels together."""

    __slots__ = (
        "_cluster",
        "_default",
        "_is_affinity_strict",
        "_namespaces",
        "_of_namespaces",
        "_of_system",
        "_system",
        "settings",
        "topics",
    )

    def __init__(
        self, namespaces: NamespacePolicies, topics: TopicPolicyStore, settings: Settings, cluster: str
    ) -> None:
        """``settings``: the broker's configuration by key; ``cluster``: this one's name."""
        self._namespaces = namespaces
        #: The level of topics.
        self.topics = topics
        topics.cluster = cluster
        self._cluster = cluster
        self.use_settings(settings)

    def use_settings(self, settings: Settings) -> None:
        """Another level of the broker from now on; whoever has rules already is to ask for them again."""
        #: The level of the broker.
        self.settings = settings
        of_broker = Levels(settings, self._cluster)
        self._default = of_broker.rules()
        self._is_affinity_strict = settings.get(STRICT_AFFINITY) is True
        # What the broker keeps for itself neither expires nor is held back; cursors of its own guard it.
        system: list[PolicyRow[Any]] = [MAX_UNACKED_ON_CONSUMER, MAX_UNACKED_ON_SUBSCRIPTION]
        self._of_system: dict[PolicyRow[Any], object] = {row: of_broker.value(row) for row in system}
        self._system = TopicRules(self._of_system)
        self._of_namespaces: dict[str, tuple[Policies | None, TopicRules]] = {}

    def levels(self, namespace: Policies | None = None, topic: TopicPolicies = NO_TOPIC_POLICIES) -> Levels:
        """The levels of a topic, or of a namespace by itself."""
        document: Mapping[str, Json] = namespace.document if namespace is not None else {}
        return Levels(self.settings, self._cluster, document, topic.document, topic.for_all)

    async def levels_of(self, name: TopicName) -> Levels:
        """The levels of a topic as they are now. Raises StorageError."""
        namespace = await self._namespaces.policies(name.namespace)
        return self.levels(namespace, await self._of_topic(name, namespace))

    async def rules_now(self, name: TopicName) -> TopicRules | None:
        """By the namespace's policies as they are stored now; None: there is no such namespace, or it lives in other
        clusters alone, and what is left here of it is nobody's to delete unasked. Raises StorageError.

        For what can not be undone: a watch may be late or lost, and a metadata server lag behind.
        """
        policies = await self._namespaces.policies_now(name.namespace)
        if policies is None or not policies.lives_in(self._cluster):
            return None
        return await self._rules(name, policies, is_exact=True)

    async def rules(self, name: TopicName) -> TopicRules:
        """The rules of a topic. Raises StorageError."""
        return await self._rules(name, await self._namespaces.policies(name.namespace))

    async def _rules(self, name: TopicName, namespace: Policies | None, *, is_exact: bool = False) -> TopicRules:
        if name.is_system:
            return self._rules_of_own(name, namespace)
        topic = await self._of_topic(name, namespace, is_exact=is_exact)
        if topic:
            return self.levels(namespace, topic).rules(self._bookies_of(namespace))
        return self._rules_of(name.namespace, namespace)

    def _bookies_of(self, namespace: Policies | None, *, is_system: bool = False) -> IsolationGroups | None:
        """Where ledgers of its topics are, as in Pulsar."""
        found = None if namespace is None else namespace.bookies
        if found is not None or not self._is_affinity_strict:
            return found
        from geminga.wire.bookkeeper.isolation import EVERYWHERE, IN_NO_GROUP

        return EVERYWHERE if is_system else IN_NO_GROUP

    async def _of_topic(self, name: TopicName, namespace: Policies | None, *, is_exact: bool = False) -> TopicPolicies:
        if namespace is not None and namespace.is_deleted:
            # Their events are not served any more, and go with all else: what is loaded is loaded to be deleted.
            return NO_TOPIC_POLICIES
        return await self.topics.get(name, is_exact=is_exact) or NO_TOPIC_POLICIES

    def _rules_of_own(self, name: TopicName, namespace: Policies | None) -> TopicRules:
        """Of what the broker keeps for itself; of that, policies for all clusters go where the namespace is copied."""
        rules, bookies = self._system, self._bookies_of(namespace, is_system=True)
        clusters = self.levels(namespace).value(REPLICATION) if name.local_name == CHANGE_EVENTS else ()
        if clusters:
            rules = TopicRules({**self._of_system, REPLICATION: clusters})
        return rules if bookies is None else rules.with_bookies(bookies)

    def _rules_of(self, name: str, namespace: Policies | None) -> TopicRules:
        known = self._of_namespaces.pop(name, None)
        if known is None or known[0] is not namespace:
            rules = self.levels(namespace).rules(self._bookies_of(namespace))
            known = namespace, self._default if rules == self._default else rules
        self._of_namespaces[name] = known
        if len(self._of_namespaces) > NAMESPACES_MAX:
            del self._of_namespaces[next(iter(self._of_namespaces))]
        return known[1]
