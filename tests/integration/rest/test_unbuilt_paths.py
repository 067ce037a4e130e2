"""What only Pulsar has answers 501, what nobody has 404, and nothing is taken that would have no effect."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pulsar
import pytest

import geminga
from geminga.broker.policies.core.rows import ROWS
from geminga.broker.rest.calls.core import unbuilt
from geminga.broker.rest.families import all_rows
from support.house.source_tree import ROOT
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

DOMAINS = ("persistent", "non-persistent")
NOT_BUILT = f"not built in Geminga {geminga.__version__}"

PUBLISH_RATE_TEST = (
    "unit/broker/publishing/test_publish_throttle.py::"
    "test_rate_holds_after_a_restart_and_one_of_zero_means_the_next_level"
)
COMPACTION_TEST = "unit/broker/compaction/test_part.py::test_a_threshold_of_the_namespace_and_of_the_broker_count_too"
PERSISTENCE_TEST = (
    "unit/broker/topic/test_persistence.py::test_quorums_and_rate_of_each_level_hold_for_the_next_ledgers"
)
PAUSE_TEST = "unit/broker/policies/test_policy_effects.py::test_nothing_new_is_sent_while_ranges_are_too_many"
INACTIVE_TEST = "unit/broker/policies/test_policy_effects.py::test_topic_goes_when_its_own_policies_say_so"
#: Members of Pulsar 4.2.4's ``Policies`` that have an effect here -> a test that shows it.
NAMESPACE_EFFECTS = {
    "migrated": "integration/test_migration.py::test_new_clients_are_led_there_and_come_back_when_nothing_moves",
    "entryFilters": "unit/broker/composition/test_late_filters.py::test_policies_count_where_the_broker_lets_them",
    "resource_group_name": "unit/broker/rest/test_resource_groups.py"
    "::test_topics_of_a_namespace_are_held_to_the_limits_of_its_group",
    "replication_clusters": "unit/broker/geo/test_part.py"
    "::test_the_topic_s_own_clusters_come_before_those_of_its_namespace",
    "autoSubscriptionCreationOverride": "unit/broker/topic/test_topic_base.py"
    "::test_creation_of_subscriptions_on_demand_can_be_switched_off",
    "autoTopicCreationOverride": "integration/rest/test_partitions.py"
    "::test_partitions_of_an_unknown_topic_depend_on_the_policy",
    "backlog_quota_map": "unit/broker/topic/test_quota_guard.py"
    "::test_size_quota_stops_producers_as_soon_as_it_is_used_up",
    "deduplicationEnabled": "unit/broker/topic/test_deduplication.py"
    "::test_namespace_policy_switches_deduplication_on_and_off_while_it_runs",
    "deduplicationSnapshotIntervalSeconds": "unit/broker/policies/test_rules.py"
    "::test_snapshots_of_sequence_ids_and_delays_are_those_of_the_most_particular_level",
    "delayed_delivery_policies": "unit/broker/policies/test_rules.py"
    "::test_snapshots_of_sequence_ids_and_delays_are_those_of_the_most_particular_level",
    "allowed_topic_property_keys_for_metrics": "unit/broker/composition/test_metric_labels.py"
    "::test_properties_that_a_policy_names_are_labels",
    "dispatcherPauseOnAckStatePersistentEnabled": PAUSE_TEST,
    "encryption_required": "unit/broker/policies/test_policy_effects.py"
    "::test_what_is_not_encrypted_is_refused_where_the_namespace_says_so",
    "is_allow_auto_update_schema": "unit/broker/schema/test_topic_schemas.py"
    "::test_where_producers_may_not_add_they_need_a_known_schema",
    "is_allow_auto_update_schema_with_replicator": "unit/broker/schema/test_topic_schemas.py"
    "::test_replicators_may_add_where_they_are_told_to_and_others_may_not",
    "max_consumers_per_subscription": "unit/broker/topic/test_topic_base.py"
    "::test_policies_of_the_namespace_limit_producers_consumers_and_subscriptions",
    "max_consumers_per_topic": "unit/broker/topic/test_topic_base.py"
    "::test_policies_of_the_namespace_limit_producers_consumers_and_subscriptions",
    "max_producers_per_topic": "unit/broker/topic/test_topic_base.py"
    "::test_policies_of_the_namespace_limit_producers_consumers_and_subscriptions",
    "max_subscriptions_per_topic": "unit/broker/topic/test_topic_base.py"
    "::test_policies_of_the_namespace_limit_producers_consumers_and_subscriptions",
    "max_topics_per_namespace": "integration/rest/test_unbuilt_paths.py"
    "::test_namespace_takes_no_more_topics_than_its_policy_says",
    "max_unacked_messages_per_consumer": "unit/broker/policies/test_unacked_policies.py"
    "::test_whatever_is_set_and_removed_the_most_particular_level_holds_for_who_is_connected",
    "max_unacked_messages_per_subscription": "unit/broker/policies/test_unacked_policies.py"
    "::test_whatever_is_set_and_removed_the_most_particular_level_holds_for_who_is_connected",
    "message_ttl_in_seconds": "unit/broker/policies/test_upkeep.py"
    "::test_messages_expire_for_every_subscription_after_their_time_to_live",
    "retention_policies": "unit/broker/policies/test_upkeep.py"
    "::test_consumed_ledgers_stay_for_the_retention_time_of_each_level",
    "schema_auto_update_compatibility_strategy": "unit/broker/schema/test_topic_schemas.py"
    "::test_the_namespaces_strategy_comes_before_the_brokers",
    "schema_compatibility_strategy": "unit/broker/schema/test_topic_schemas.py"
    "::test_the_namespaces_strategy_comes_before_the_brokers",
    "schema_validation_enforced": "unit/broker/schema/test_topic_schemas.py"
    "::test_where_schemas_are_enforced_producers_need_one",
    "subscription_auth_mode": "unit/broker/access/test_lost_rights.py"
    "::test_prefix_of_subscriptions_is_asked_for_at_once",
    "subscription_expiration_time_minutes": "unit/broker/policies/test_upkeep.py"
    "::test_subscription_nobody_uses_expires_and_one_in_use_stays",
    "inactive_topic_policies": INACTIVE_TEST,
    "clusterSubscribeRate": "unit/broker/publishing/test_publishing_rates.py"
    "::test_subscribe_rate_of_namespace_and_topic_hold_at_once",
    "replicatorDispatchRate": "unit/broker/geo/test_rate.py::test_no_more_is_copied_than_the_rate_of_any_level_allows",
    **dict.fromkeys(
        ("topicDispatchRate", "subscriptionDispatchRate"),
        "unit/broker/subscription/test_throttling.py"
        "::test_dispatch_rate_sends_one_burst_and_then_exactly_the_rate_in_order",
    ),
    "clusterDispatchRate": "unit/broker/policies/core/test_rows.py"
    "::test_the_older_name_of_the_dispatch_rate_counts_last",
    "publishMaxMessageRate": PUBLISH_RATE_TEST,
    "persistence": PERSISTENCE_TEST,
    "compaction_threshold": COMPACTION_TEST,
    "offload_policies": "integration/lake/test_lake_broker.py"
    "::test_policies_are_followed_and_what_can_not_be_is_refused",
    **dict.fromkeys(
        ("offload_threshold", "offload_threshold_in_seconds", "offload_deletion_lag_ms"),
        "unit/broker/policies/core/test_offload.py::test_each_member_counts_from_the_most_particular_level",
    ),
    "subscription_types_enabled": "unit/broker/topic/test_topic_base.py"
    "::test_types_of_subscriptions_can_be_switched_off",
}
#: Kept and told as they are given: that is all that Pulsar does without authorization, or with this one cluster.
NAMESPACE_RECORDS = {
    "auth_policies",
    "allowed_clusters",
    "bundles",
    "deleted",
    "latency_stats_sample_rate",
    "properties",
}
#: Members of Pulsar 4.2.4's ``TopicPolicies`` that have an effect here -> their path, and a test that shows it.
TOPIC_EFFECTS = {
    "shadowTopics": (
        "shadowTopics",
        "unit/broker/shadow/test_shadow_topic.py::test_nothing_is_shown_before_the_source_says_so",
    ),
    "entryFilters": ("entryFilters", NAMESPACE_EFFECTS["entryFilters"]),
    "replicationClusters": ("replication", NAMESPACE_EFFECTS["replication_clusters"]),
    "backLogQuotaMap": ("backlogQuota", NAMESPACE_EFFECTS["backlog_quota_map"]),
    "deduplicationEnabled": (
        "deduplicationEnabled",
        "unit/broker/policies/test_rules.py::test_deduplication_is_that_of_the_most_particular_level_that_sets_it",
    ),
    "deduplicationSnapshotIntervalSeconds": (
        "deduplicationSnapshotInterval",
        NAMESPACE_EFFECTS["deduplicationSnapshotIntervalSeconds"],
    ),
    "delayedDeliveryEnabled": ("delayedDelivery", NAMESPACE_EFFECTS["delayed_delivery_policies"]),
    "delayedDeliveryTickTimeMillis": ("delayedDelivery", NAMESPACE_EFFECTS["delayed_delivery_policies"]),
    "maxUnackedMessagesOnConsumer": (
        "maxUnackedMessagesOnConsumer",
        NAMESPACE_EFFECTS["max_unacked_messages_per_consumer"],
    ),
    "maxUnackedMessagesOnSubscription": (
        "maxUnackedMessagesOnSubscription",
        NAMESPACE_EFFECTS["max_unacked_messages_per_subscription"],
    ),
    "subscribeRate": ("subscribeRate", NAMESPACE_EFFECTS["clusterSubscribeRate"]),
    "subscriptionPolicies": (
        "{subscription}/dispatchRate",
        "unit/broker/subscription/test_throttling.py::test_subscription_with_a_rate_of_its_own_is_held_by_that_one",
    ),
    "dispatchRate": ("dispatchRate", NAMESPACE_EFFECTS["topicDispatchRate"]),
    "subscriptionDispatchRate": ("subscriptionDispatchRate", NAMESPACE_EFFECTS["topicDispatchRate"]),
    "replicatorDispatchRate": ("replicatorDispatchRate", NAMESPACE_EFFECTS["replicatorDispatchRate"]),
    "publishRate": ("publishRate", NAMESPACE_EFFECTS["publishMaxMessageRate"]),
    "inactiveTopicPolicies": ("inactiveTopicPolicies", INACTIVE_TEST),
    "maxMessageSize": (
        "maxMessageSize",
        "unit/broker/policies/test_policy_effects.py"
        "::test_entries_larger_than_the_topic_takes_are_refused_and_no_others",
    ),
    "messageTTLInSeconds": ("messageTTL", NAMESPACE_EFFECTS["message_ttl_in_seconds"]),
    "delayedDeliveryMaxDelayInMillis": (
        "delayedDelivery",
        "unit/broker/policies/test_policy_effects.py::test_messages_that_wait_for_too_long_are_refused_and_no_others",
    ),
    **{
        name: (path, "unit/broker/policies/test_policy_effects.py::" + test)
        for name, path, test in (
            ("maxProducerPerTopic", "maxProducers", "test_limit_of_each_level_holds"),
            ("maxConsumerPerTopic", "maxConsumers", "test_limit_of_each_level_holds"),
            ("maxConsumersPerSubscription", "maxConsumersPerSubscription", "test_limit_of_each_level_holds"),
            ("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", "test_limit_of_each_level_holds"),
            ("subscriptionExpirationTimeInMinutes", "subscriptionExpirationTime", "test_subscriptions_expire_by_topic"),
            ("schemaCompatibilityStrategy", "schemaCompatibilityStrategy", "test_schemas_follow_the_topic"),
            ("schemaValidationEnforced", "schemaValidationEnforced", "test_schemas_follow_the_topic"),
            ("autoSubscriptionCreationOverride", "autoSubscriptionCreation", "test_subscriptions_on_demand_by_level"),
        )
    },
    "dispatcherPauseOnAckStatePersistentEnabled": ("dispatcherPauseOnAckStatePersistent", PAUSE_TEST),
    "persistence": ("persistence", PERSISTENCE_TEST),
    "compactionThreshold": ("compactionThreshold", COMPACTION_TEST),
    "offloadPolicies": ("offloadPolicies", NAMESPACE_EFFECTS["offload_policies"]),
    "retentionPolicies": ("retention", NAMESPACE_EFFECTS["retention_policies"]),
    "subscriptionTypesEnabled": (
        "subscriptionTypesEnabled",
        "unit/broker/policies/test_rules.py"
        "::test_subscription_types_are_those_of_the_most_particular_level_that_names_any",
    ),
}
#: Values of members that mean "not set".
UNSET_VALUES = {
    "clusterDispatchRate": {"standalone": {"dispatchThrottlingRateInMsg": -1}},
    "latency_stats_sample_rate": {},
    "allowed_topic_property_keys_for_metrics": [""],
    "dispatcherPauseOnAckStatePersistentEnabled": False,
}


class Lines:
    """Requests over one connection, which hundreds of them need."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Status and reason."""
        content = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text)["reason"] if text else ""

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def lines(rest: Rest) -> Iterator[Lines]:
    made = Lines(rest.base_url)
    yield made
    made.close()


def paths_of(template: str) -> list[str]:
    """The template with names in it, for each domain if it has one."""
    names = {
        "tenant": "public",
        "namespace": "default",
        "topic": "t",
        "bundle": "0x00000000_0x40000000",
        "cluster": "standalone",
    }

    def filled(domain: str) -> str:
        known = {**names, "domain": domain}
        return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: known.get(found[1], "1"), template)

    return [filled(domain) for domain in (DOMAINS if "{domain" in template else ("",))]


def test_what_only_pulsar_has_answers_501(rest: Rest, lines: Lines) -> None:
    rest.put("persistent/public/default/t")
    client = pulsar.Client(rest.get("/lookup/v2/topic/persistent/public/default/t").json["brokerUrl"])
    # A topic that is not persistent is there while somebody uses it.
    client.create_producer("non-persistent://public/default/t")
    for row in unbuilt.ROUTES:
        for path in paths_of(row.path):
            for method in row.methods:
                answer = lines(method, path, 5 if method in ("PUT", "POST") else None)
                assert answer == (501, f"{row.what}: {NOT_BUILT}"), f"{method} {path}"
    client.close()
    rest.delete("persistent/public/default/t?force=true")


@pytest.mark.parametrize(
    ("method", "path", "value"),
    [
        ("POST", "namespaces/{}/encryptionRequired", False),
        ("POST", "namespaces/{}/subscriptionAuthMode", "None"),
        ("POST", "namespaces/{}/replicatorDispatchRate", {"dispatchThrottlingRateInMsg": -1}),
        ("POST", "persistent/{}/t/dispatcherPauseOnAckStatePersistent", False),
        ("PUT", "namespaces/{}/compactionThreshold", 0),
        ("POST", "clusters/standalone", {"serviceUrl": "http://localhost:1", "peerClusterNames": [""]}),
    ],
)
def test_what_sets_nothing_is_taken(
    rest: Rest, lines: Lines, namespace: str, method: str, path: str, value: object
) -> None:
    rest.put(f"persistent/{namespace}/t")
    before = rest.get("clusters/standalone").json
    status, reason = lines(method, f"/admin/v2/{path.format(namespace)}", value)
    if path.startswith("clusters"):
        rest.post("clusters/standalone", before)
    assert status == (200 if path.startswith("clusters") else 204), reason


def test_what_is_missing_is_answered_before_what_is_not_built(lines: Lines) -> None:
    # In a namespace that is there it is refused for having no lake.
    path = "/admin/v2/namespaces/public/{}/scanOffloadedLedgers"
    assert [lines("GET", path.format(one), None)[0] for one in ("default", "nowhere")] == [412, 404]
    for row in unbuilt.ROUTES:
        # Nothing else that is not built names a namespace or a topic by now.
        assert not row.path.startswith(("/admin/v2/namespaces", "/admin/v2/{domain}", "/admin/v2/clusters")), row.path


def test_what_nobody_has_answers_404_and_what_only_others_do_405(lines: Lines) -> None:
    for path in ("/admin/v2/nothing", "/admin/v3/nothing", "/nothing", "/admin/v2/persistent/public/default/t/nothing"):
        for method in ("GET", "PUT", "POST", "DELETE"):
            assert lines(method, path)[0] == 404, f"{method} {path}"
    for method, path in (
        ("PATCH", "clusters"),
        ("PUT", "namespaces/public/default/retention"),
        ("PUT", "namespaces/public/default/t"),
        ("GET", "namespaces/public/default/nothing"),
        ("POST", "persistent/public/default"),
        ("PUT", "persistent/public/default/t/retention"),
        ("POST", "brokers/health"),
    ):
        assert lines(method, f"/admin/v2/{path}")[0] == 405, f"{method} {path}"


@pytest.mark.parametrize("domain", ["foo", "Persistent", "persistent:", "%70ersistent", "nonpersistent"])
def test_topics_have_one_of_two_domains_whatever_is_asked_of_them(lines: Lines, domain: str) -> None:
    templates = [(method, route.path) for route in all_rows() for method in (route.methods or ())]
    templates += [(method, row.path) for row in unbuilt.ROUTES for method in row.methods]
    for method, template in templates:
        if "/v2/{domain" in template and method != "HEAD":
            path = paths_of(template)[0].replace("/persistent/", f"/{domain}/", 1)
            # Also where the body would be refused, and where the method would be: it is no topic's path.
            for tried in (method, "PATCH"):
                assert lines(tried, path, "x" if tried in ("PUT", "POST") else None)[0] == 404, f"{tried} {path}"


def test_each_member_of_pulsars_policies_has_an_effect_or_is_a_record() -> None:
    groups = [set(NAMESPACE_EFFECTS), NAMESPACE_RECORDS]
    # Pulsar 4.2.4 has 48 of them; one is of 5.0.
    assert sum(map(len, groups)) == len(set.union(*groups)) == 49
    keys = [row.namespace.key for row in ROWS if row.namespace is not None]
    keys += [row.namespace.older[0] for row in ROWS if row.namespace is not None and row.namespace.older is not None]
    assert set(keys) == set.union(*groups)
    built = {name: row for row in ROWS if row.topic is not None for name in row.topic.avro}
    # A mark of all others, which a query asks for.
    assert set(built) == {*TOPIC_EFFECTS, "isGlobal"}
    for name, (path, _) in TOPIC_EFFECTS.items():
        level = built[name].topic
        assert level is not None
        assert level.rest is not None
        assert level.rest.path == path
    for test in (*NAMESPACE_EFFECTS.values(), *(test for _, test in TOPIC_EFFECTS.values())):
        module, _, name = test.partition("::")
        assert f"\ndef {name}(" in (ROOT / "tests" / module).read_text(encoding="utf-8"), test


def test_policies_as_pulsar_tells_them_are_taken_and_strange_members_dropped(rest: Rest, namespace: str) -> None:
    document = rest.get(f"namespaces/{namespace}").json
    document.update(UNSET_VALUES)
    other = f"{namespace}-other"
    given = {**document, "message_ttl_in_seconds": 60, "allowed_clusters": [], "messageTTL": 5}
    assert rest.put(f"namespaces/{other}", given).status == 204
    found = rest.get(f"namespaces/{other}").json
    assert found["message_ttl_in_seconds"] == 60
    assert "messageTTL" not in found
    assert rest.delete(f"namespaces/{other}").status == 204


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("message_ttl_in_seconds", -7),
        ("retention_policies", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}),
        ("backlog_quota_map", {"destination_storage": {"limitSize": 5, "policy": "none"}}),
        ("backlog_quota_map", {"other": {"limitSize": 5, "policy": "producer_exception"}}),
        ("subscription_types_enabled", ["Fanout"]),
    ],
)
def test_policies_given_at_creation_are_held_to_the_rules_of_their_own_paths(
    rest: Rest, namespace: str, key: str, value: object
) -> None:
    assert rest.put(f"namespaces/{namespace}-other", {key: value}).status in (400, 412)
    assert f"{namespace}-other" not in rest.get("namespaces/public").json


def test_namespace_lives_in_this_cluster_and_in_others_or_in_others_alone(rest: Rest, namespace: str) -> None:
    local = rest.get("clusters").json[0]
    assert rest.put("clusters/far", {"serviceUrl": "http://127.0.0.1:1"}).status in (200, 204)
    tenant = f"both-{namespace.partition('/')[2]}"
    assert rest.put(f"tenants/{tenant}", {"allowedClusters": [local, "far"]}).status == 204
    assert rest.put(f"namespaces/{tenant}/alone", {"replication_clusters": ["far"]}).status == 204
    refused = rest.put(f"persistent/{tenant}/alone/t")
    assert (refused.status, "missing local cluster name" in refused.reason) == (412, True)
    assert rest.delete(f"namespaces/{tenant}/alone").status == 204
    assert rest.put(f"namespaces/{tenant}/n").status == 204
    assert rest.get(f"namespaces/{tenant}/n").json["replication_clusters"] == [local]
    assert rest.put(f"namespaces/{tenant}/both", {"replication_clusters": [local, "far"]}).status == 204
    assert rest.get(f"namespaces/{tenant}/both").json["replication_clusters"] == [local, "far"]
    kept = rest.delete(f"namespaces/{tenant}/both")
    assert (kept.status, kept.reason.partition(".")[0]) == (
        412,
        f"Cannot delete the global namespace {tenant}/both",
    )
    assert rest.post(f"namespaces/{tenant}/both/replication", [local]).status in (200, 204)
    assert rest.delete(f"namespaces/{tenant}/both").status == 204
    assert rest.post("clusters/far", {"serviceUrl": "http://127.0.0.1:1", "peerClusterNames": [local]}).status == 200
    assert rest.post(f"namespaces/{tenant}/n/replication", [local, "far"]).status == 409
    for path in (f"namespaces/{tenant}/n", f"tenants/{tenant}", "clusters/far"):
        assert rest.delete(path).status in (200, 204)


def test_namespace_takes_no_more_topics_than_its_policy_says(rest: Rest, namespace: str) -> None:
    assert rest.post(f"namespaces/{namespace}/maxTopicsPerNamespace", 2).status == 204
    assert rest.put(f"persistent/{namespace}/one").status == 204
    assert rest.put(f"persistent/{namespace}/several/partitions", 2).status == 412
    assert rest.put(f"persistent/{namespace}/two").status == 204
    assert rest.put(f"persistent/{namespace}/three").status == 409
    assert rest.delete(f"namespaces/{namespace}/maxTopicsPerNamespace").status == 204
    assert rest.put(f"persistent/{namespace}/three").status == 204
