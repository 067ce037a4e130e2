"""Policies as typed views of Pulsar's document."""

from __future__ import annotations

import pytest

from geminga.broker.resources.policies import Policies, bundle_boundaries, completed, new_policies
from geminga.model.errors import PreconditionFailedError


def test_fields_that_are_not_set_read_as_none() -> None:
    policies = Policies({})
    assert policies.deduplication_enabled is None
    assert policies.message_ttl_seconds is None
    assert policies.retention is None
    assert policies.auto_topic_creation is None
    assert policies.auto_subscription_creation is None
    assert policies.schema_compatibility_strategy is None
    assert policies.subscription_types_enabled == ()
    assert not policies.is_deleted
    assert policies.bundle_boundaries == ("0x00000000", "0xffffffff")


def test_fields_that_are_set_are_read() -> None:
    policies = Policies(
        {
            "deduplicationEnabled": False,
            "message_ttl_in_seconds": 60,
            "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": 5},
            "autoTopicCreationOverride": {
                "allowAutoTopicCreation": True,
                "topicType": "partitioned",
                "defaultNumPartitions": 4,
            },
            "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False},
            "schema_compatibility_strategy": "FORWARD",
            "subscription_types_enabled": ["Shared"],
            "max_producers_per_topic": 3,
            "deleted": True,
        }
    )
    assert policies.deduplication_enabled is False
    assert policies.message_ttl_seconds == 60
    assert policies.retention == (-1, 5)
    assert policies.auto_topic_creation == (True, "partitioned", 4)
    assert policies.auto_subscription_creation is False
    assert policies.schema_compatibility_strategy == "FORWARD"
    assert policies.subscription_types_enabled == ("Shared",)
    assert policies.number("max_producers_per_topic") == 3
    assert policies.is_deleted


def test_fields_of_the_wrong_type_read_as_not_set() -> None:
    policies = Policies({"deduplicationEnabled": "yes", "message_ttl_in_seconds": True, "retention_policies": 3})
    assert policies.deduplication_enabled is None
    assert policies.message_ttl_seconds is None
    assert policies.retention is None


@pytest.mark.parametrize("count", [1, 2, 3, 4, 128])
def test_bundles_cover_the_whole_range(count: int) -> None:
    boundaries = [int(boundary, 16) for boundary in bundle_boundaries(count)]
    assert len(boundaries) == count + 1
    assert boundaries[0] == 0
    assert boundaries[-1] == 0xFFFFFFFF
    assert boundaries == sorted(set(boundaries))


@pytest.mark.parametrize("count", [0, 129])
def test_bundle_count_out_of_bounds_is_refused(count: int) -> None:
    with pytest.raises(PreconditionFailedError):
        bundle_boundaries(count)


def test_given_policies_are_completed_with_defaults() -> None:
    whole = completed({"bundles": {"numBundles": 2}, "message_ttl_in_seconds": 9, "persistence": None}, ["c"])
    assert whole["bundles"] == {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2}
    assert whole["message_ttl_in_seconds"] == 9
    assert whole["replication_clusters"] == ["c"]
    assert "persistence" not in whole
    assert set(new_policies(["c"])) <= set(whole)


@pytest.mark.parametrize(
    "bundles",
    [
        {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 2},
        {"boundaries": ["0x80000000", "0x00000000", "0xffffffff"]},
        {"boundaries": ["zero", "0xffffffff"]},
        {"numBundles": 1000},
    ],
)
def test_bundles_that_make_no_sense_are_refused(bundles) -> None:
    with pytest.raises(PreconditionFailedError):
        completed({"bundles": bundles}, ["c"])
