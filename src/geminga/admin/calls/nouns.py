"""All kinds of things that calls are about, in the order of the documents."""

from __future__ import annotations

from typing import Final

from geminga.admin.calls.cluster import BOOKIES, BROKERS, CLUSTERS, RESOURCES, SCHEMAS, TENANTS, TRANSACTIONS
from geminga.admin.calls.namespaces import NAMESPACES, PERMISSIONS
from geminga.admin.calls.policies import NAMESPACE_POLICIES, TOPIC_POLICIES
from geminga.admin.calls.topics import COMPACTION, LAKE, MESSAGES, SUBSCRIPTIONS, TOPICS

NOUNS: Final = (
    TOPICS,
    MESSAGES,
    SUBSCRIPTIONS,
    NAMESPACES,
    PERMISSIONS,
    TENANTS,
    CLUSTERS,
    BROKERS,
    BOOKIES,
    SCHEMAS,
    TRANSACTIONS,
    COMPACTION,
    LAKE,
    RESOURCES,
)
POLICY_SETS: Final = (TOPIC_POLICIES, NAMESPACE_POLICIES)
