"""Where a broker of several sends who asks for another one's bundles."""

from __future__ import annotations

from geminga.broker.ownership.core.bundles import Bundle
from geminga.broker.rest.cluster_routes.broker_stats import _ownership, _rule

BUNDLE = Bundle("a/b", 0, 10)
POLICY = {"namespaces": ["a/.*"], "primary": ["b1.*"], "secondary": ["b.*"]}


def test_a_bundle_is_told_with_what_its_policy_says_of_this_broker() -> None:
    def told(broker: str, *policies: dict[str, object]) -> tuple[object, object]:
        found = _ownership(BUNDLE, [_rule(policy, broker) for policy in policies])  # type: ignore[arg-type]
        return found["broker_assignment"], found["is_controlled"]

    assert told("b1:8080") == ("shared", False)
    assert told("b1:8080", {**POLICY, "namespaces": ["c/d"]}) == ("shared", False)
    assert told("b1:8080", POLICY) == ("primary", True)
    assert told("b2:8080", POLICY) == ("secondary", True)
    assert told("x:8080", POLICY) == ("shared", True)
