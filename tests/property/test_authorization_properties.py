"""Who may do what, against a second model that is written as lists of rights instead of questions."""

from __future__ import annotations

from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from geminga.broker.access.core.actions import (
    Action,
    BrokerOperation,
    ClusterOperation,
    NamespaceOperation,
    PolicyName,
    Resource,
    SuperUser,
    TenantAdministration,
    TenantOperation,
    TopicOperation,
    of_namespace,
    of_topic,
    reading,
    writing,
)
from geminga.broker.access.core.grants import ACTIONS, grants_of
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.core.rules import Facts, Rules, decide, settled_without_facts
from geminga.model.topic_name import TopicName

ROLES = ("jane", "jim", "ja", "admin", "root")
PATTERNS = (*ROLES, "ja*", "*m", "*", "a*e")
TOPICS = [
    TopicName.parse(f"{domain}://t/n/{name}")
    for domain, name in product(("persistent", "non-persistent"), ("a", "a-partition-0", "a-partition-1", "b"))
]
SUBSCRIPTIONS = ("", "s", "jane-s", "jim")
ENUMERATIONS = (
    TopicOperation,
    NamespaceOperation,
    TenantOperation,
    ClusterOperation,
    BrokerOperation,
    SuperUser,
    TenantAdministration,
)
WORDS: list[Action] = [
    *(word for enumeration in ENUMERATIONS for word in enumeration),
    *(of(policy) for policy in (PolicyName.TTL, PolicyName.PARTITION) for of in (reading, writing)),
]

actions = st.sets(st.sampled_from(ACTIONS))
grants = st.dictionaries(st.sampled_from(PATTERNS), actions.map(sorted), max_size=4)
policies = st.fixed_dictionaries(
    {
        "auth_policies": st.fixed_dictionaries(
            {
                "namespace_auth": grants,
                "destination_auth": st.dictionaries(st.sampled_from([str(topic) for topic in TOPICS]), grants),
                "subscription_auth_roles": st.dictionaries(
                    st.sampled_from(SUBSCRIPTIONS), st.sets(st.sampled_from(ROLES)).map(sorted)
                ),
            }
        ),
        "subscription_auth_mode": st.sampled_from(["None", "Prefix"]),
    }
)
rules = st.builds(
    Rules,
    st.frozensets(st.sampled_from(("root", "jim")), max_size=2),
    has_wildcards=st.booleans(),
    are_subscriptions_closed=st.booleans(),
    replicators=st.frozensets(st.sampled_from(("ja", "jane")), max_size=1),
)
more_roles = st.none() | st.frozensets(st.sampled_from(ROLES), max_size=2)
principals = st.builds(Principal, st.sampled_from(("", *ROLES)), st.sampled_from(("", *ROLES)), more_roles, more_roles)
resources = st.one_of(
    st.just(Resource()),
    st.just(Resource(tenant="t")),
    st.builds(lambda name: of_namespace("t/n")._replace(subscription=name), st.sampled_from(SUBSCRIPTIONS)),
    st.builds(of_topic, st.sampled_from(TOPICS), st.sampled_from(SUBSCRIPTIONS)),
)
administrators = st.frozensets(st.sampled_from(("admin", "jane")))

EATS = {
    "GET_SUBSCRIPTIONS",
    "CONSUME",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "SKIP",
    "PEEK_MESSAGES",
    "RESET_CURSOR",
    "GET_BACKLOG_SIZE",
}
LOOKS = {"LOOKUP", "GET_STATS", "GET_METADATA"}


def rights(role, rules, facts_document, administrators, resource):
    """Everything that one role has at a resource, as words: those of a topic, of a namespace, of a tenant."""
    if not role:
        return set()
    auth = facts_document["auth_policies"]
    found = {"let in"}
    if role in rules.super_users:
        found |= {"super", "administer"}
    if resource.tenant and role in administrators:
        found.add("administer")
    if resource.namespace and role in rules.replicators:
        found.add("replicate")
    for granted, actions in auth["namespace_auth"].items():
        is_same = granted == role or (rules.has_wildcards and is_like(granted, role))
        if is_same and resource.namespace:
            found |= {f"{action} all" for action in actions} | set(actions)
    topic, subscription = resource.topic, resource.subscription
    if topic is None:
        closed, named = rules.are_subscriptions_closed, auth["subscription_auth_roles"]
        is_prefix = facts_document["subscription_auth_mode"] == "Prefix"
        about = [(subscription, named.get(subscription, []))] if subscription else [*named.items()]
        barred = [users and role not in users for _, users in about]
        if subscription:
            barred += [closed and role not in about[0][1], is_prefix and not subscription.startswith(role)]
        else:
            barred += [closed, is_prefix]
        if "consume all" in found and not any(barred):
            found.add("eat all")
        return found
    for name, roles in auth["destination_auth"].items():
        for granted, actions in roles.items():
            if name == str(topic) and (granted == role or (rules.has_wildcards and is_like(granted, role))):
                found |= set(actions)
            whole = topic.local_name.split("-partition-")[0]
            if topic.partition >= 0 and name == f"{topic.domain}://t/n/{whole}" and granted == role:
                found |= set(actions)
    users = auth["subscription_auth_roles"].get(subscription, [])
    is_barred = subscription and (
        (users and role not in users)
        or (rules.are_subscriptions_closed and role not in users)
        or (facts_document["subscription_auth_mode"] == "Prefix" and not subscription.startswith(role))
    )
    named = auth["subscription_auth_roles"].values()
    is_barred_from_one = is_barred or (
        not subscription
        and (
            rules.are_subscriptions_closed
            or facts_document["subscription_auth_mode"] == "Prefix"
            or any(users and role not in users for users in named)
        )
    )
    if "consume" in found and not is_barred:
        found.add("eat")
    if "consume" in found and not is_barred_from_one:
        found.add("eat each")
    return found


def is_like(pattern, role):
    if pattern[-1] == "*" and role[: len(pattern) - 1] == pattern[:-1]:
        return True
    return pattern[0] == "*" and (len(pattern) == 1 or role[-(len(pattern) - 1) :] == pattern[1:])


def wants(action, resource):
    """Words of which one is enough."""
    if action is ClusterOperation.LIST_CLUSTERS:
        return {"let in"}
    if isinstance(action, SuperUser | ClusterOperation | BrokerOperation) or action is TenantOperation.LIST_TENANTS:
        return {"super"}
    if isinstance(action, TopicOperation) and resource.topic is not None:
        if action.name in LOOKS:
            return {"administer", "produce", "consume"}
        if action.name in EATS:
            return {"administer", "eat"}
        if action is TopicOperation.EXPIRE_MESSAGES:
            return {"administer", "eat each"}
        if action is TopicOperation.PRODUCE:
            return {"administer", "produce"}
    if action in (NamespaceOperation.GET_TOPICS, NamespaceOperation.GET_BUNDLE):
        return {"administer", "produce all", "consume all"}
    if action in (NamespaceOperation.UNSUBSCRIBE, NamespaceOperation.CLEAR_BACKLOG):
        return {"administer", "eat all"}
    if action is TenantAdministration.REPLICATE:
        return {"administer", "replicate"}
    return {"administer"}


@given(rules, policies, administrators, principals, resources)
@example(
    Rules(has_wildcards=True),
    {
        "auth_policies": {
            "namespace_auth": {},
            "destination_auth": {"persistent://t/n/a": {"ja*": ["produce"]}},
            "subscription_auth_roles": {},
        },
        "subscription_auth_mode": "None",
    },
    frozenset(),
    Principal("jane"),
    of_topic(TOPICS[1]),
)
def test_decision_is_that_of_the_plain_model(rules, document, administrators, principal, resource) -> None:
    facts = Facts(administrators, grants_of(document))
    sides = [(principal.role, principal.roles)]
    if principal.original:
        sides.append((principal.original, principal.original_roles))
    have = []
    for role, more in sides:
        # Whoever it is may what one of its roles may; nobody has none.
        roles = {role, *(more or ())} if role else {role}
        have.append(set().union(*(rights(one, rules, document, administrators, resource) for one in roles)))
    for action in WORDS:
        # Who replicates is the one that a proxy names; it is asked beside whether both may produce.
        asked = have[-1:] if action is TenantAdministration.REPLICATE else have
        expected = all(words & wants(action, resource) for words in asked)
        refusal = decide(rules, facts, principal, action, resource)
        assert (refusal is None) == expected, (action, refusal)
        if settled_without_facts(rules, principal, action):
            assert (decide(rules, Facts(), principal, action, resource) is None) == expected
        if refusal is not None:
            assert refusal.role in (principal.role, principal.original)


@given(rules, policies, principals, resources)
def test_producing_and_consuming_never_give_administration(rules, document, principal, resource) -> None:
    """CVE-2024-28098, CVE-2024-29834: whatever is granted, on topic, partition and partitioned topic alike."""
    rules = rules._replace(super_users=frozenset())
    for action in WORDS:
        if wants(action, resource) == {"administer"}:
            assert decide(rules, Facts(frozenset(), grants_of(document)), principal, action, resource) is not None


@given(rules, policies, administrators, principals, resources)
def test_proxy_has_no_more_than_either_of_both(rules, document, administrators, principal, resource) -> None:
    facts = Facts(administrators, grants_of(document))
    for action in WORDS:
        if action is TenantAdministration.REPLICATE:
            continue  # asked beside PRODUCE alone
        both = decide(rules, facts, Principal(principal.role, principal.original or "jim"), action, resource)
        alone = [
            decide(rules, facts, Principal(role), action, resource)
            for role in (principal.role, principal.original or "jim")
        ]
        assert (both is None) == (alone == [None, None])
