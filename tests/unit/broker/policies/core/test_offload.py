"""Offload policies: what may be set, and what the levels come to."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import BodyError
from geminga.broker.policies.core.offload import Older, bound_offload, check_offload, offload_policy
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.errors import ConfigurationError, PreconditionFailedError

BUCKET = {"managedLedgerOffloadDriver": "s3", "managedLedgerOffloadBucket": "b"}
HOURS_4 = 4 * 3600 * 1000


def test_drivers_buckets_and_credentials_are_judged_when_they_are_set():
    assert check_offload(BUCKET)["managedLedgerOffloadDriver"] == "S3"
    assert (
        check_offload({**BUCKET, "managedLedgerOffloadThresholdInBytes": "7"})["managedLedgerOffloadThresholdInBytes"]
        == 7
    )
    for driver in (None, "", "azureblob", "google-cloud-storage", "aliyun-oss", "tape"):
        with pytest.raises(PreconditionFailedError, match="driver"):
            check_offload({"managedLedgerOffloadDriver": driver})
    with pytest.raises(PreconditionFailedError, match="bucket"):
        check_offload({"managedLedgerOffloadDriver": "aws-s3"})
    for change in (
        {"s3ManagedLedgerOffloadCredentialSecret": "x"},
        {"managedLedgerOffloadThresholdInBytes": "many"},
        {"managedLedgerOffloadedReadPriority": "TAPE_FIRST"},
    ):
        with pytest.raises(BodyError):
            check_offload({**BUCKET, **change})


@pytest.mark.parametrize(
    ("wanted", "is_taken"),
    [
        (None, True),
        ("/data/lake", True),
        ("file:///data/lake/team", True),
        ("/data/lakes", False),
        ("/data/lake/../x", False),
        ("/", False),
        ("hdfs://x", False),
    ],
)
def test_a_directory_of_a_policy_is_the_brokers_or_in_it(wanted, is_taken):
    value = {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": wanted}
    if is_taken:
        bound_offload(value, {"fileSystemURI": "file:///data/lake"})
    else:
        with pytest.raises(PreconditionFailedError, match="fileSystemURI"):
            bound_offload(value, {"fileSystemURI": "file:///data/lake"})
    with pytest.raises(PreconditionFailedError, match="broker's configuration"):
        bound_offload(value, {"fileSystemURI": ""})


def test_each_member_counts_from_the_most_particular_level():
    config = ManagedLedgerConfig(
        offload_driver="filesystem", offload_directory="/lake", offload_threshold_bytes=1, offload_threshold_s=2
    )
    policy = offload_policy(None, Older(), config)
    assert (policy.driver, policy.properties["root"]) == ("filesystem", "file:///lake")
    assert (policy.threshold_bytes, policy.threshold_ms, policy.deletion_lag_ms) == (1, 2000, HOURS_4)
    assert not policy.is_bookkeeper_first
    policy = offload_policy(None, Older(5, 6, 7), config)
    assert (policy.threshold_bytes, policy.threshold_ms, policy.deletion_lag_ms) == (5, 6000, 7)
    document = {
        **BUCKET,
        "managedLedgerOffloadThresholdInBytes": 0,
        "managedLedgerOffloadDeletionLagInMillis": -1,
        "managedLedgerOffloadServiceEndpoint": "http://s3",
        "managedLedgerOffloadedReadPriority": "BOOKKEEPER_FIRST",
    }
    policy = offload_policy(document, Older(5, 6, 7), ManagedLedgerConfig(lake_prefix="p"))
    assert policy.properties == {"geminga.lake": "1", "root": "s3://b/p", "serviceEndpoint": "http://s3"}
    assert (policy.threshold_bytes, policy.threshold_ms, policy.deletion_lag_ms) == (0, 6000, -1)
    assert policy.is_bookkeeper_first


def test_without_a_driver_nothing_goes_and_the_lag_still_holds():
    policy = offload_policy(None, Older(5), ManagedLedgerConfig())
    assert (policy.driver, policy.threshold_bytes, policy.deletion_lag_ms) == ("", -1, HOURS_4)


def test_what_the_broker_can_not_do_is_said():
    with pytest.raises(ConfigurationError, match="fileSystemURI"):
        offload_policy(None, Older(), ManagedLedgerConfig(offload_driver="filesystem"))
    with pytest.raises(ConfigurationError, match="bucket"):
        offload_policy(None, Older(), ManagedLedgerConfig(offload_driver="S3"))
