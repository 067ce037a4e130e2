"""Policies of a namespace in words."""

from __future__ import annotations

from geminga.app.console.core.policies import SetPolicy, policy_rows, words_of


def test_what_is_set_is_shown_and_nothing_else() -> None:
    policies = {
        "retention_policies": {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1},
        "backlog_quota_map": {"destination_storage": {"limitSize": 1000, "policy": "consumer_backlog_eviction"}},
        "replication_clusters": ["a", "b"],
        "message_ttl_in_seconds": 5,
        "schema_validation_enforced": True,
        "encryption_required": False,
        "offload_threshold": -1,
        "deleted": False,
        "topicDispatchRate": {},
        "auth_policies": {"namespace_auth": {"joe": ["consume"]}},
        "bundles": {"numBundles": 4},
        "subscription_auth_mode": "None",
    }
    assert policy_rows(policies) == [
        SetPolicy("Backlog quota map", "destination storage limit size 1000; policy consumer_backlog_eviction"),
        SetPolicy("Message ttl in seconds", "5"),
        SetPolicy("Replication clusters", "a, b"),
        SetPolicy("Retention policies", "retention time 60 min; retention size no limit"),
        SetPolicy("Schema validation enforced", "yes"),
    ]


def test_what_is_switched_off_is_set_where_it_is_absent_else() -> None:
    """Deduplication of a namespace that is off goes before that of the broker; of others off is what all have."""
    standing = {"encryption_required": False, "schema_validation_enforced": False, "migrated": False}
    assert policy_rows({**standing, "is_allow_auto_update_schema": True, "deleted": False}) == []
    assert policy_rows({**standing, "is_allow_auto_update_schema": False, "deduplicationEnabled": False}) == [
        SetPolicy("Deduplication enabled", "no"),
        SetPolicy("Is allow auto update schema", "no"),
    ]


def test_names_are_words() -> None:
    assert words_of("publishMaxMessageRate") == "Publish max message rate"
    assert words_of("a_b") == "A b"
