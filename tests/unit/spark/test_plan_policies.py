"""Which policies could empty the plans' topic, and what is said of them."""

from __future__ import annotations

import pytest

from geminga.spark.sink_rules.plan_policies import EVICTION, PlanPolicies, dangers, quota_actions

ARGUMENTS = ("persistent://a/b/plans", "a/b", "held")


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        (PlanPolicies(), []),
        (PlanPolicies(0, 0, ()), []),
        (PlanPolicies(-1, -1, ("producer_request_hold", "producer_exception")), []),
        (PlanPolicies(ttl_s=1), ["set-message-ttl --ttl 0 persistent://a/b/plans"]),
        (PlanPolicies(subscription_expiry_minutes=3), ["after 3 minutes"]),
        (PlanPolicies(quota_actions=(EVICTION,)), ["set-backlog-quota"]),
        (PlanPolicies(5, 6, ("producer_exception", EVICTION)), ["5 s", "6 minutes, and so would be held", "evicts"]),
    ],
)
def test_dangers_are_named_with_what_to_do(policies, words) -> None:
    found = dangers(*ARGUMENTS, policies)
    assert len(found) == len(words)
    for text, word in zip(found, words, strict=True):
        assert word in text
        assert "pulsar-admin" in text


@pytest.mark.parametrize(
    ("document", "actions"),
    [
        (None, ()),
        ({}, ()),
        ([], ()),
        ({"destination_storage": {"limitSize": -1, "limitTime": -1, "policy": EVICTION}}, ()),
        ({"destination_storage": {"limit": 0, "policy": EVICTION}}, (EVICTION,)),
        ({"message_age": {"limitTime": 10, "policy": "producer_exception"}, "x": 1}, ("producer_exception",)),
    ],
)
def test_only_quotas_with_a_limit_count(document, actions) -> None:
    assert quota_actions(document) == actions
