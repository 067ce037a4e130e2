"""What a namespace only holds: who may use it, where it lives, what it says of itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from geminga.broker.access.core.actions import PolicyName, SuperUser
from geminga.broker.core.coercion import (
    BodyError,
    Json,
    boolean_of,
    number_of,
    object_of,
    shown,
    text_of,
    texts_of,
)
from geminga.broker.policies.core.avro_types import array, optional
from geminga.broker.policies.core.readers import document_of, flag_of, samples_of, text_value_of, texts_value_of
from geminga.broker.policies.core.row import NamespaceLevel, Nothing, PolicyRow, Rest, TopicLevel
from geminga.broker.policies.core.values import (
    check_auto_update_strategy,
    check_boolean,
    check_bundles,
    check_properties_fit,
    checked_properties,
)

#: Pulsar's ``SubscriptionAuthMode``.
AUTH_MODES: Final = ("None", "Prefix")
_LABEL: Final = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]*")
#: Labels that metrics of topics have for something else.
_TAKEN: Final = (
    "broker",
    "cluster",
    "consumer_id",
    "consumer_name",
    "le",
    "namespace",
    "partition",
    "producer_id",
    "producer_name",
    "quantile",
    "remote_cluster",
    "subscription",
    "topic",
)
_NOBODY: Final[dict[str, Json]] = {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}}


def _names(value: Json) -> Json:
    return [*texts_of(value, "a list of clusters")]


def _properties(value: Json) -> Json:
    given = checked_properties(value)
    check_properties_fit(given)
    return given


def _samples(value: Json) -> Json:
    return {
        cluster: number_of(rate, cluster) for cluster, rate in object_of(value, "latency_stats_sample_rate").items()
    }


def is_label(text: str) -> bool:
    """Whether metrics can have such a label beside those that they have anyway."""
    return _LABEL.fullmatch(text) is not None and text not in _TAKEN


def _label_names(value: Json) -> Json:
    names = texts_of(value, "the body")
    wrong = next((name for name in names if name.strip() and not is_label(name)), None)
    if wrong is not None:
        others = ", ".join(_TAKEN)
        raise BodyError(f"{shown(wrong)} can not be a label of metrics: of letters, digits and _, and none of {others}")
    return [*names]


def _keys(names: object) -> Json:
    return [*names] or None if isinstance(names, tuple) else None


def _all(levels: Sequence[Json]) -> Json:
    found = [name for level in levels if isinstance(level, list) for name in level]
    return [*dict.fromkeys(found)]


def _any(levels: Sequence[Json]) -> Json:
    return any(level is True for level in levels)


def _auth_mode(value: Json) -> Json:
    if value not in AUTH_MODES:
        raise BodyError(f"the body must be one of {', '.join(AUTH_MODES)}, not {shown(value)}")
    return value


AUTH_POLICIES: Final[PolicyRow[Any]] = PolicyRow(
    name="permissions",
    policy=PolicyName.ALL,
    read=document_of,
    otherwise=None,
    check=lambda value: _NOBODY | object_of(value, "auth_policies"),
    namespace=NamespaceLevel("auth_policies", Rest("permissions", is_by_hand=True), new=_NOBODY),
    followed_by=("access/core/grants.py",),
    text="Roles and what they may do; asked for where `authorizationEnabled` is set.",
)
REPLICATION_CLUSTERS_LEVEL: Final = TopicLevel(
    {"replicationClusters": optional(array("string"))}, Rest("replication", is_by_hand=True)
)
REPLICATION: Final[PolicyRow[tuple[str, ...]]] = PolicyRow(
    name="replication",
    policy=PolicyName.REPLICATION,
    read=texts_value_of,
    otherwise=(),
    check=_names,
    namespace=NamespaceLevel("replication_clusters", Rest("replication", is_by_hand=True)),
    topic=REPLICATION_CLUSTERS_LEVEL,
    followed_by=("geo/part.py",),
    text="Clusters that the namespace, or a topic, lives in; from this one messages are copied to the others.",
)
ALLOWED_CLUSTERS: Final[PolicyRow[tuple[str, ...]]] = PolicyRow(
    name="allowedClusters",
    policy=PolicyName.ALLOW_CLUSTERS,
    read=texts_value_of,
    otherwise=(),
    check=_names,
    namespace=NamespaceLevel("allowed_clusters", Rest("allowedClusters", is_by_hand=True)),
    followed_by=("rest/namespace_routes/namespaces.py",),
    text="Clusters that the namespace may be moved to; empty: all that its tenant may use.",
)
BUNDLES: Final[PolicyRow[Any]] = PolicyRow(
    name="bundles",
    policy=PolicyName.ALL,
    read=document_of,
    otherwise=None,
    check=check_bundles,
    namespace=NamespaceLevel("bundles", Rest("bundles", is_by_hand=True)),
    followed_by=("resources/policies.py",),
    text="Ranges of hashes, by which topics are spread over brokers.",
)
DELETED: Final = PolicyRow(
    name="deleted",
    policy=PolicyName.ALL,
    read=flag_of,
    otherwise=False,
    check=lambda value: boolean_of(value, "deleted"),
    namespace=NamespaceLevel("deleted", new=False),
    followed_by=("registry/topic_registry.py",),
    text="Whether the namespace is being deleted: nothing may be made in it any more.",
)
PROPERTIES: Final[PolicyRow[Any]] = PolicyRow(
    name="properties",
    policy=PolicyName.ALL,
    read=document_of,
    otherwise=None,
    check=_properties,
    namespace=NamespaceLevel("properties", Rest("properties", is_by_hand=True), new={}),
    followed_by=("rest/namespace_routes/policies.py",),
    text="Names and texts that the namespace's owner keeps with it.",
)
AUTO_UPDATE_STRATEGY: Final = PolicyRow(
    name="schemaAutoUpdateCompatibilityStrategy",
    policy=PolicyName.SCHEMA_COMPATIBILITY_STRATEGY,
    read=text_value_of,
    otherwise="",
    check=check_auto_update_strategy,
    namespace=NamespaceLevel(
        "schema_auto_update_compatibility_strategy",
        Rest("schemaAutoUpdateCompatibilityStrategy", "PUT", unset_status=204),
    ),
    followed_by=("policies/core/schema_rows.py",),
    text="The old name of `schemaCompatibilityStrategy`; read where that one is not set.",
)
LATENCY_SAMPLES: Final[PolicyRow[Any]] = PolicyRow(
    name="latencyStatsSampleRate",
    policy=PolicyName.RATE,
    read=samples_of,
    otherwise=None,
    check=_samples,
    namespace=NamespaceLevel("latency_stats_sample_rate", new={}),
    followed_by=("rest/namespace_routes/namespaces.py",),
    text="Kept and told. Pulsar's broker does not read it either: `/metrics` has the latencies of all publishes.",
)
ENCRYPTION: Final = PolicyRow(
    name="encryptionRequired",
    policy=PolicyName.ENCRYPTION,
    read=flag_of,
    otherwise=False,
    check=check_boolean,
    keys=("encryptionRequireOnProducer",),
    namespace=NamespaceLevel(
        "encryption_required",
        Rest("encryptionRequired", nothing=Nothing.IS_REFUSED, unset=False),
        new=False,
        removed=False,
    ),
    merge=_any,
    followed_by=("topic/base.py",),
    text="Whether producers must encrypt: those that do not say so, and messages without keys, are refused. Where "
    "the broker requires it, no namespace does without.",
)
SUBSCRIPTION_AUTH: Final = PolicyRow(
    name="subscriptionAuthMode",
    policy=PolicyName.SUBSCRIPTION_AUTH_MODE,
    read=text_value_of,
    otherwise="None",
    check=_auth_mode,
    namespace=NamespaceLevel(
        "subscription_auth_mode", Rest("subscriptionAuthMode", unset="None"), new="None", removed="None"
    ),
    followed_by=("access/core/grants.py",),
    text="Whether a subscription's name must begin with its role.",
)
METRIC_LABELS: Final[PolicyRow[tuple[str, ...]]] = PolicyRow(
    name="allowedTopicPropertyKeysForMetrics",
    policy=PolicyName.ALLOW_CUSTOM_METRIC_LABELS,
    read=texts_value_of,
    otherwise=(),
    check=_label_names,
    keys=("allowedTopicPropertyKeysForMetrics",),
    of_broker=_keys,
    namespace=NamespaceLevel("allowed_topic_property_keys_for_metrics", Rest("allowedTopicPropertyKeysForMetrics")),
    merge=_all,
    followed_by=("composition/metric_labels.py",),
    text="Properties of topics that become labels of metrics with `exposeCustomTopicMetricLabelsEnabled`: those of "
    "namespace and broker together.",
)
RESOURCE_GROUP: Final = PolicyRow(
    name="resourcegroup",
    policy=PolicyName.RESOURCEGROUP,
    read=text_value_of,
    otherwise="",
    check=lambda value: text_of(value, "the body"),
    namespace=NamespaceLevel("resource_group_name", Rest("resourcegroup", is_by_hand=True)),
    followed_by=("composition/late_groups.py",),
    text="The group whose limits the namespace shares.",
)
MIGRATED: Final = PolicyRow(
    name="migrated",
    policy=PolicyName.CLUSTER_MIGRATION,
    read=flag_of,
    otherwise=False,
    check=check_boolean,
    namespace=NamespaceLevel("migrated", Rest("migration", is_by_hand=True), needs=SuperUser.MIGRATE_NAMESPACE),
    followed_by=("geo/moves.py",),
    text="Whether its topics move to the cluster that this one's policies name.",
)

ROWS: Final = (
    AUTH_POLICIES,
    REPLICATION,
    ALLOWED_CLUSTERS,
    BUNDLES,
    DELETED,
    PROPERTIES,
    AUTO_UPDATE_STRATEGY,
    LATENCY_SAMPLES,
    ENCRYPTION,
    SUBSCRIPTION_AUTH,
    METRIC_LABELS,
    RESOURCE_GROUP,
    MIGRATED,
)
