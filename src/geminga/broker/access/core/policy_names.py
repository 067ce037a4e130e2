"""Under which name of Pulsar's a policy is asked for, by the end of its path in the admin REST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.broker.access.core.actions import PolicyName
from geminga.model.errors import InvariantError

#: Paths of namespaces' and of topics' policies; one that both have means the same in both.
POLICY_NAMES: Final[Mapping[str, PolicyName]] = {
    "allowedTopicPropertyKeysForMetrics": PolicyName.ALLOW_CUSTOM_METRIC_LABELS,
    "autoSubscriptionCreation": PolicyName.AUTO_SUBSCRIPTION_CREATION,
    "autoTopicCreation": PolicyName.AUTO_TOPIC_CREATION,
    "backlogQuota": PolicyName.BACKLOG,
    "backlogQuotaMap": PolicyName.BACKLOG,
    "compactionThreshold": PolicyName.COMPACTION,
    "deduplication": PolicyName.DEDUPLICATION,
    "deduplicationEnabled": PolicyName.DEDUPLICATION,
    "deduplicationSnapshotInterval": PolicyName.DEDUPLICATION_SNAPSHOT,
    "delayedDelivery": PolicyName.DELAYED_DELIVERY,
    "dispatchRate": PolicyName.RATE,
    "dispatcherPauseOnAckStatePersistent": PolicyName.DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT,
    "encryptionRequired": PolicyName.ENCRYPTION,
    "entryFilters": PolicyName.ENTRY_FILTERS,
    "inactiveTopicPolicies": PolicyName.INACTIVE_TOPIC,
    "isAllowAutoUpdateSchema": PolicyName.SCHEMA_COMPATIBILITY_STRATEGY,
    "maxConsumers": PolicyName.MAX_CONSUMERS,
    "maxConsumersPerSubscription": PolicyName.MAX_CONSUMERS,
    "maxConsumersPerTopic": PolicyName.MAX_CONSUMERS,
    "maxMessageSize": PolicyName.MAX_PRODUCERS,
    "maxProducers": PolicyName.MAX_PRODUCERS,
    "maxProducersPerTopic": PolicyName.MAX_PRODUCERS,
    "maxSubscriptionsPerTopic": PolicyName.MAX_SUBSCRIPTIONS,
    "maxTopicsPerNamespace": PolicyName.MAX_TOPICS,
    "maxUnackedMessagesOnConsumer": PolicyName.MAX_UNACKED,
    "maxUnackedMessagesOnSubscription": PolicyName.MAX_UNACKED,
    "maxUnackedMessagesPerConsumer": PolicyName.MAX_UNACKED,
    "maxUnackedMessagesPerSubscription": PolicyName.MAX_UNACKED,
    "messageTTL": PolicyName.TTL,
    "offloadPolicies": PolicyName.OFFLOAD,
    "persistence": PolicyName.PERSISTENCE,
    "properties": PolicyName.ALL,
    "property": PolicyName.ALL,
    "publishRate": PolicyName.RATE,
    "replication": PolicyName.REPLICATION,
    "replicatorDispatchRate": PolicyName.REPLICATION_RATE,
    "resourcegroup": PolicyName.RESOURCEGROUP,
    "retention": PolicyName.RETENTION,
    "schemaCompatibilityStrategy": PolicyName.SCHEMA_COMPATIBILITY_STRATEGY,
    "schemaValidationEnforced": PolicyName.SCHEMA_COMPATIBILITY_STRATEGY,
    "shadowTopics": PolicyName.SHADOW_TOPIC,
    "subscribeRate": PolicyName.RATE,
    "subscriptionDispatchRate": PolicyName.RATE,
    "subscriptionExpirationTime": PolicyName.SUBSCRIPTION_EXPIRATION_TIME,
    "subscriptionTypesEnabled": PolicyName.SUBSCRIPTION_AUTH_MODE,
}


def policy_name(path: str) -> PolicyName:
    """The name for a policy with this ``path`` (its part behind the namespace or topic).

    Raises InvariantError for one that is not in the table: a policy that nobody decides about is not served.
    """
    found = POLICY_NAMES.get(path.partition("/")[0])
    if found is None:
        raise InvariantError(f"no row of POLICY_NAMES says who may read and change the policy {path}")
    return found
