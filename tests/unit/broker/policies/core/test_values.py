"""What policies may be set to, beside what the table of REST calls holds them to."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import BodyError, NotBuiltError
from geminga.broker.policies.core.values import (
    check_bundles,
    check_delayed_delivery,
    check_entry_filters,
    check_quota,
    check_retention,
    check_subscription_types,
    check_topic_creation,
    is_quota_within_retention,
)
from geminga.model.errors import RemoteError

QUOTA = {"limitSize": "1000", "policy": "producer_exception"}


def retention(minutes: int, size_mb: int) -> dict[str, object]:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size_mb}


def test_what_is_stored_has_numbers_whatever_came() -> None:
    assert check_retention({"retentionTimeInMinutes": "10", "retentionSizeInMB": 20.0, "x": 1}) == retention(10, 20)
    assert check_quota(QUOTA, "a/b") == {
        "limit": 1000,
        "limitSize": 1000,
        "limitTime": 0,
        "policy": "producer_exception",
    }
    assert check_quota({"limit": 7, "policy": "producer_exception"}, "a/b")["limitSize"] == 7
    assert check_subscription_types(["Key_Shared", "Shared", "Shared"]) == ["Shared", "Key_Shared"]
    assert check_bundles({"numBundles": "8"}) == {"boundaries": [], "numBundles": 8}
    assert check_bundles({"numBundles": 9, "boundaries": ["0x0", "0xffffffff"]})["numBundles"] == 1


@pytest.mark.parametrize(
    ("check", "value", "status"),
    [
        (check_retention, retention(5, 0), 400),
        (check_retention, retention(-2, 5), 400),
        (check_retention, retention(1 << 31, 5), 400),
        (check_delayed_delivery, {"active": True, "tickTime": 0}, 412),
        (check_delayed_delivery, {"active": True, "tickTime": 1, "maxDeliveryDelayInMillis": "x"}, 400),
        (check_topic_creation, {}, 400),
        (check_topic_creation, {"allowAutoTopicCreation": True, "topicType": "round"}, 412),
        (check_topic_creation, {"allowAutoTopicCreation": "true", "topicType": "partitioned"}, 412),
        (check_bundles, 4, 400),
    ],
)
def test_what_can_not_be_is_refused(check, value, status: int) -> None:
    with pytest.raises(RemoteError) as caught:
        check(value)
    assert caught.value.http_status == status
    assert isinstance(caught.value, NotBuiltError) is (status == 501)


def test_a_quota_that_can_not_be_is_refused_with_the_namespace() -> None:
    for quota in ({}, {**QUOTA, "policy": "none"}, {**QUOTA, "policy": ["producer_exception"]}):
        with pytest.raises(BodyError, match=r"namespace\[a/b\]"):
            check_quota(quota, "a/b")
    with pytest.raises(BodyError, match="limitTime"):
        check_quota({**QUOTA, "limitTime": -2}, "a/b")


@pytest.mark.parametrize(
    ("size", "seconds", "kept", "is_within"),
    [
        (1 << 20, -1, None, True),
        (1 << 20, -1, retention(0, 0), True),
        (1 << 30, -1, retention(-1, -1), True),
        ((1 << 20) - 1, -1, retention(-1, 1), True),
        (1 << 20, -1, retention(-1, 1), False),
        (-1, 599, retention(10, -1), True),
        (-1, 600, retention(10, -1), False),
    ],
)
def test_a_quota_by_size_stays_below_what_is_retained(size: int, seconds: int, kept, is_within: bool) -> None:
    quota = {"limitSize": size, "limitTime": seconds, "policy": "producer_exception"}
    assert is_quota_within_retention({"destination_storage": quota}, kept) is is_within
    assert is_quota_within_retention({"message_age": quota}, kept)


def test_names_of_filters_are_stored_as_a_text_whatever_was_sent() -> None:
    """A number passed as one, was no name of a filter where that was looked for, and broke what wrote it down."""
    for given, stored in ((5, "5"), (True, "true"), ("a, b", "a, b")):
        assert check_entry_filters({"entryFilterNames": given}) == {"entryFilterNames": stored}
