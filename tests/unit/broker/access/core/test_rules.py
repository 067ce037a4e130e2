"""Rules and grants by single cases: each that would give or keep one right too much."""

from __future__ import annotations

from typing import ClassVar

import pytest

from geminga.broker.access.core.actions import (
    EVERYTHING,
    Action,
    BrokerOperation,
    NamespaceOperation,
    Resource,
    SuperUser,
    TenantOperation,
    TopicOperation,
    of_namespace,
    of_topic,
)
from geminga.broker.access.core.grants import (
    GrantChange,
    granted_at,
    granted_topics,
    grants_of,
    partitions_granted,
    with_grant,
    with_subscription_roles,
    with_topic_changes,
    with_topic_grant,
    without_grant,
    without_subscription_role,
    without_topic,
    without_topic_grant,
)
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.core.rules import Facts, Rules, administrators_of, decide, settled_without_facts
from geminga.broker.core.coercion import Document, Json
from geminga.model.topic_name import TopicName

NAME = TopicName.parse("persistent://t/n/a")
PARTITION = NAME.with_partition(3)
HERE, ALL = of_topic(NAME), of_namespace("t/n")
NOTHING: Document = {}


def may(role: str, action: Action, resource: Resource, policies: Document, rules: Rules = Rules()) -> bool:  # noqa: B008
    return decide(rules, Facts(frozenset(["owner"]), grants_of(policies)), Principal(role), action, resource) is None


@pytest.mark.parametrize("action", [NamespaceOperation.UNSUBSCRIBE, NamespaceOperation.CLEAR_BACKLOG])
def test_subscriptions_of_a_namespace_are_those_of_who_may_consume_in_it(action: Action) -> None:
    assert may("eater", action, ALL, with_grant(NOTHING, "eater", ["consume"]))
    assert not may("cook", action, ALL, with_grant(NOTHING, "cook", ["produce"]))
    # Not of who may consume from one topic.
    assert not may("eater", action, ALL, with_topic_grant(NOTHING, str(NAME), "eater", ["consume"]))


@pytest.mark.parametrize("action", [NamespaceOperation.GET_TOPICS, NamespaceOperation.GET_BUNDLE])
def test_topics_of_a_namespace_are_listed_by_who_may_use_them_all(action: Action) -> None:
    for word in ("produce", "consume"):
        assert may("jane", action, ALL, with_grant(NOTHING, "jane", [word]))
        assert not may("jane", action, ALL, with_topic_grant(NOTHING, str(NAME), "jane", [word]))
    assert not may("jane", action, ALL, with_grant(NOTHING, "jane", ["functions", "packages"]))


@pytest.mark.parametrize(
    ("subscription", "is_allowed"),
    [("jane", True), ("jane-1", True), ("my-jane", False), ("jan", False), ("", True), (" ", False)],
)
def test_prefix_is_a_beginning(subscription: str, is_allowed: bool) -> None:
    policies: Document = {**with_grant(NOTHING, "jane", ["consume"]), "subscription_auth_mode": "Prefix"}
    assert may("jane", TopicOperation.CONSUME, of_topic(NAME, subscription), policies) == is_allowed
    assert may("jane", TopicOperation.CONSUME, of_topic(NAME, subscription), {**policies, "subscription_auth_mode": 3})


def test_refused_prefix_says_what_is_expected() -> None:
    policies: Document = {**with_grant(NOTHING, "jane", ["consume"]), "subscription_auth_mode": "Prefix"}
    facts = Facts(frozenset(), grants_of(policies))
    refusal = decide(Rules(), facts, Principal("jane"), TopicOperation.CONSUME, of_topic(NAME, "mine"))
    assert refusal is not None
    assert refusal.reason == (
        "the name of a subscription must begin with the role that uses it here, such as jane-name: mine does not, of "
        "persistent://t/n/a"
    )


def test_partition_has_the_actions_of_its_partitioned_topic_and_no_others() -> None:
    policies = with_topic_grant(NOTHING, str(NAME), "jane", ["consume"])
    assert may("jane", TopicOperation.CONSUME, of_topic(PARTITION), policies)
    assert not may("jane", TopicOperation.PRODUCE, of_topic(PARTITION), policies)
    assert not may("jim", TopicOperation.CONSUME, of_topic(PARTITION), policies)
    # And not the other way round.
    policies = with_topic_grant(NOTHING, str(PARTITION), "jane", ["consume"])
    assert may("jane", TopicOperation.CONSUME, of_topic(PARTITION), policies)
    assert not may("jane", TopicOperation.CONSUME, HERE, policies)
    assert not may("jane", TopicOperation.CONSUME, of_topic(NAME.with_partition(4)), policies)


def test_topic_of_the_other_domain_is_another_one() -> None:
    policies = with_topic_grant(NOTHING, str(NAME), "jane", ["produce"])
    assert not may("jane", TopicOperation.PRODUCE, of_topic(TopicName.parse("non-persistent://t/n/a")), policies)


@pytest.mark.parametrize(
    ("pattern", "role", "fits"),
    [
        ("ab*", "ab", True),
        ("ab*", "abc", True),
        ("ab*", "xab", False),
        ("ab*", "xabc", False),
        ("*ab", "ab", True),
        ("*ab", "cab", True),
        ("*ab", "abx", False),
        ("*ab", "xabx", False),
        ("*", "whoever", True),
        ("a*b", "axb", False),
        ("a*b", "a*b", True),
        ("", "whoever", False),
        ("*ab*", "ab*", True),
        ("*ab*", "xab*", True),
        ("*ab*", "xabx", False),
    ],
)
def test_star_at_an_end_stands_for_any_text_where_that_is_configured(pattern: str, role: str, fits: bool) -> None:
    for policies in (
        with_grant(NOTHING, pattern, ["produce"]),
        with_topic_grant(NOTHING, str(NAME), pattern, ["produce"]),
    ):
        assert may(role, TopicOperation.PRODUCE, HERE, policies, Rules(has_wildcards=True)) == fits
        assert not may(role, TopicOperation.CONSUME, HERE, policies, Rules(has_wildcards=True))
        assert may(role, TopicOperation.PRODUCE, HERE, policies) == (pattern == role)


def test_wildcard_gives_nobody_anything() -> None:
    policies = with_grant(NOTHING, "*", ["produce", "consume"])
    for action, resource in ((TopicOperation.PRODUCE, HERE), (NamespaceOperation.GET_TOPICS, ALL)):
        assert not may("", action, resource, policies, Rules(has_wildcards=True))


def test_wildcard_at_a_partitioned_topic_holds_for_that_name_alone() -> None:
    policies = with_topic_grant(NOTHING, str(NAME), "ja*", ["produce"])
    assert may("jane", TopicOperation.PRODUCE, HERE, policies, Rules(has_wildcards=True))
    assert not may("jane", TopicOperation.PRODUCE, of_topic(PARTITION), policies, Rules(has_wildcards=True))


def test_any_role_of_a_token_gives_its_right_and_a_proxy_needs_one_of_each() -> None:
    facts = Facts(frozenset(["owner"]), grants_of(with_grant(NOTHING, "writer", ["produce"])))
    rules = Rules(frozenset(["root"]))

    def refused(
        *roles: str, original: str = "", others: tuple[str, ...] | None = None, action: Action = TopicOperation.PRODUCE
    ) -> str | None:
        who = Principal(roles[0], original, frozenset(roles), None if others is None else frozenset(others))
        settled = settled_without_facts(rules, who, action)
        found = decide(rules, facts, who, action, HERE)
        # Nothing is settled early that what is stored decides otherwise.
        assert not settled or decide(rules, Facts(), who, action, HERE) == found
        return None if found is None else found.role

    assert refused("jane") == "jane"
    assert refused("jane", "writer") is None
    assert refused("jane", "owner") is None
    assert refused("jane", "root", action=SuperUser.CHANGE_QUOTAS) is None
    # It is told of by the name that it is known by.
    assert refused("jane", "jim", "ann") == "jane"
    assert refused("proxy", "root", original="jane") == "jane"
    assert refused("proxy", "root", original="jane", others=("jane", "writer")) is None
    assert refused("proxy", original="jane", others=("jane", "writer")) == "proxy"
    assert refused("proxy", "writer", original="writer") is None


def test_administrator_of_a_tenant_is_no_super_user() -> None:
    for action in (SuperUser.UNLOAD_NAMESPACE, BrokerOperation.SHUTDOWN, TenantOperation.LIST_TENANTS):
        assert not may("owner", action, EVERYTHING, NOTHING)
        assert not may("owner", action, ALL, NOTHING)
        assert may("root", action, EVERYTHING, NOTHING, Rules(frozenset(["root"])))
    assert may("owner", TenantOperation.UPDATE_TENANT, Resource(tenant="t"), NOTHING)
    assert not may("owner", TenantOperation.UPDATE_TENANT, EVERYTHING, NOTHING)


@pytest.mark.parametrize(
    ("info", "roles"),
    [
        (None, set()),
        ({}, set()),
        ({"adminRoles": ["a", "b"]}, {"a", "b"}),
        ({"adminRoles": ["a", "", 3, None]}, {"a"}),
        ({"adminRoles": "a"}, set()),
    ],
)
def test_administrators_are_names_in_a_list(info: Document | None, roles: set[str]) -> None:
    assert administrators_of(info) == roles


# ---- what is stored


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"auth_policies": None},
        {"auth_policies": 3},
        {"auth_policies": {"namespace_auth": [], "destination_auth": 3, "subscription_auth_roles": "x"}},
        {"auth_policies": {"namespace_auth": {"jane": "produce"}, "destination_auth": {str(NAME): {"jane": 3}}}},
        {"auth_policies": {"namespace_auth": {"jane": [3, None, {}]}, "destination_auth": {str(NAME): ["jane"]}}},
    ],
)
def test_what_is_of_another_form_gives_nobody_anything(document: Document) -> None:
    for action in (TopicOperation.PRODUCE, TopicOperation.CONSUME):
        assert not may("jane", action, HERE, document, Rules(has_wildcards=True))


def test_change_keeps_what_it_is_not_about() -> None:
    before: Document = {"x": 1, "auth_policies": {"y": 2, "namespace_auth": {"jim": ["consume"]}}}
    after = with_grant(before, "jane", ["produce"])
    after = with_topic_grant(after, str(NAME), "jane", ["consume"])
    after = with_topic_grant(after, str(NAME), "joe", ["consume"])
    after = with_subscription_roles(after, "s", ["jane", "joe"])
    assert after == {
        "x": 1,
        "auth_policies": {
            "y": 2,
            "namespace_auth": {"jim": ["consume"], "jane": ["produce"]},
            "destination_auth": {str(NAME): {"jane": ["consume"], "joe": ["consume"]}},
            "subscription_auth_roles": {"s": ["jane", "joe"]},
        },
    }
    assert granted_at(after, str(NAME)) == {"jim": ["consume"], "jane": ["produce", "consume"], "joe": ["consume"]}
    after = without_subscription_role(after, "s", "jane")
    after = without_topic_grant(after, [str(NAME)], "jane")
    after = without_grant(after, "jane")
    assert after["auth_policies"] == {
        "y": 2,
        "namespace_auth": {"jim": ["consume"]},
        "destination_auth": {str(NAME): {"joe": ["consume"]}},
        "subscription_auth_roles": {"s": ["joe"]},
    }
    after = without_topic_grant(without_subscription_role(after, "s", "joe"), [str(NAME)], "joe")
    assert after["auth_policies"] == {
        "y": 2,
        "namespace_auth": {"jim": ["consume"]},
        "destination_auth": {},
        "subscription_auth_roles": {},
    }


class _Looked(str):
    """A name that counts how often it is looked at, or compared."""

    looks: ClassVar[int] = 0

    def __hash__(self) -> int:
        _Looked.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        _Looked.looks += 1
        return super().__eq__(other)


def test_many_changes_at_many_topics_cost_no_more_than_both_together() -> None:
    """Whoever may give rights in one namespace held the loop for minutes with one request."""

    def looks(count: int) -> int:
        names = [_Looked(f"{NAME}{number}") for number in range(count)]
        topics: dict[str, Json] = {name: {"jane": ["consume"], "joe": ["consume"]} for name in names}
        policies: Document = {"auth_policies": {"destination_auth": topics}}
        _Looked.looks = 0
        after = without_topic_grant(policies, names, "jane")
        assert len(granted_topics(after)) == count
        return _Looked.looks

    assert looks(200) <= 3 * looks(100)


def test_changes_are_made_one_behind_the_other() -> None:
    steps = [
        GrantChange("a", "jane", ("consume",)),
        GrantChange("a", "joe", ("produce",)),
        GrantChange("b", "jane", ("produce",)),
        GrantChange("a", "jane", None),
        GrantChange("a", "joe", ("consume",)),
        GrantChange("b", "jane", None),
        GrantChange("c", "jane", None),
    ]
    policies: Document = {"auth_policies": {"destination_auth": {"b": {"jim": ["produce"]}, "d": {"x": []}}}}
    after = with_topic_changes(policies, steps)
    assert granted_topics(after) == {"a": {"joe": ["consume"]}, "b": {"jim": ["produce"]}, "d": {"x": []}}
    one_by_one = policies
    for step in steps:
        one_by_one = with_topic_changes(one_by_one, [step])
    assert one_by_one == after
    assert granted_topics(policies) == {"b": {"jim": ["produce"]}, "d": {"x": []}}
    assert with_topic_changes(after, steps[3:4]) is after


def test_topic_that_goes_takes_its_own_and_those_of_its_partitions_along() -> None:
    names = [str(NAME), f"{NAME}-partition-0", f"{NAME}-partition-17"]
    others = [f"{NAME}-partition-x", f"{NAME}-partition-", f"{NAME}2", "persistent://t/n/b", "non-persistent://t/n/a"]
    policies: Document = {}
    for name in (*names, *others):
        policies = with_topic_grant(policies, name, "jane", ["produce"])

    def left(document: Document) -> list[str]:
        return sorted(grants_of(document).topics)

    assert sorted(partitions_granted(policies, NAME)) == sorted(names[1:])
    assert left(without_topic(policies, NAME, has_partitions=True)) == sorted(others)
    assert left(without_topic(policies, NAME, has_partitions=False)) == sorted([*names[1:], *others])
    untouched = with_topic_grant(NOTHING, others[0], "jane", ["produce"])
    assert without_topic(untouched, NAME, has_partitions=True) is untouched
