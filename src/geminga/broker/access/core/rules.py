"""Whether a role may do something: the rules of Pulsar 4.2's ``PulsarAuthorizationProvider``. Pure.

Four kinds of roles: super-users (``superUserRoles``) may do everything; a tenant's administrators (``adminRoles``)
everything in it; who was granted actions in a namespace or at a topic may produce or consume there, and look at what
that takes, but not in topics of the brokers' own; everybody else nothing. To produce or to consume never gives
administration: no policy, no partition count, no unloading, no end of a topic (CVE-2024-28098, CVE-2024-29834). A word
that no rule names is an administrator's.

A proxy asks in another's name: then its own role and that one must both be allowed (:func:`decide`). Only who
replicates is the named one alone: what a replicator says of its messages is not the proxy's word.

Who has several roles (``MultiRolesTokenAuthorizationProvider``: all that the token's claim names) may do what any one
of them may, as a super-user, an administrator or by grants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from geminga.broker.access.core.actions import (
    Action,
    BrokerOperation,
    ClusterOperation,
    NamespaceOperation,
    Resource,
    SuperUser,
    TenantAdministration,
    TenantOperation,
    TopicOperation,
)
from geminga.broker.access.core.grants import CONSUME, NO_GRANTS, PRODUCE, Actions, Grants
from geminga.broker.access.core.principal import Principal
from geminga.model.topic_name import REPLICATOR_PREFIX, TopicName


class Need(Enum):
    """What of a role an action takes, beside being a super-user."""

    #: Nothing but being let in.
    NOTHING = auto()
    SUPER_USER = auto()
    #: Of the tenant.
    ADMINISTRATOR = auto()
    #: The same, or one of the roles of replicators.
    REPLICATE = auto()
    #: To produce to the topic; to consume from it, by the subscription if one is named; one of them.
    PRODUCE = auto()
    CONSUME = auto()
    EITHER = auto()
    #: To consume from it, by the subscription that is named, else by all.
    CONSUME_EACH = auto()
    #: The same in the whole namespace; by the subscription that is named there, else by all.
    CONSUME_ALL = auto()
    EITHER_ALL = auto()


#: The words that the provider answers otherwise than by asking for an administrator.
_NEEDS: Final[Mapping[Action, Need]] = {
    TopicOperation.LOOKUP: Need.EITHER,
    TopicOperation.GET_STATS: Need.EITHER,
    TopicOperation.GET_METADATA: Need.EITHER,
    TopicOperation.PRODUCE: Need.PRODUCE,
    TopicOperation.GET_SUBSCRIPTIONS: Need.CONSUME,
    TopicOperation.CONSUME: Need.CONSUME,
    TopicOperation.SUBSCRIBE: Need.CONSUME,
    TopicOperation.UNSUBSCRIBE: Need.CONSUME,
    TopicOperation.SKIP: Need.CONSUME,
    # Of all subscriptions where none is named: Pulsar's provider asks who may consume.
    TopicOperation.EXPIRE_MESSAGES: Need.CONSUME_EACH,
    TopicOperation.PEEK_MESSAGES: Need.CONSUME,
    TopicOperation.RESET_CURSOR: Need.CONSUME,
    TopicOperation.GET_BACKLOG_SIZE: Need.CONSUME,
    NamespaceOperation.GET_TOPICS: Need.EITHER_ALL,
    NamespaceOperation.GET_BUNDLE: Need.EITHER_ALL,
    NamespaceOperation.UNSUBSCRIBE: Need.CONSUME_ALL,
    NamespaceOperation.CLEAR_BACKLOG: Need.CONSUME_ALL,
    # Pulsar's path asks nobody.
    ClusterOperation.LIST_CLUSTERS: Need.NOTHING,
    # They are about no tenant, so that none is administered.
    TenantOperation.LIST_TENANTS: Need.SUPER_USER,
    TenantAdministration.REPLICATE: Need.REPLICATE,
}


#: What brings or takes messages: of a topic in which brokers keep policies it would be to set and to read them.
_OF_MESSAGES: Final = (Need.PRODUCE, Need.CONSUME, Need.CONSUME_EACH)


class Rules(NamedTuple):
    """How a broker is configured."""

    super_users: frozenset[str] = frozenset()
    #: ``authorizationAllowWildcardsMatching``: ``*`` at the beginning or end of a granted role stands for any text.
    has_wildcards: bool = False
    #: Geminga's own: a subscription that names no roles is nobody's, where in Pulsar it is everybody's.
    are_subscriptions_closed: bool = False
    #: Geminga's own: who may publish under a replicator's name beside super-users and the tenant's administrators.
    replicators: frozenset[str] = frozenset()
    #: What brokers of this cluster are, as far as that was asked for.
    brokers: frozenset[str] = frozenset()


class Facts(NamedTuple):
    """What is stored of what an action is about."""

    #: Roles that administer the tenant; none: there is no such tenant.
    administrators: frozenset[str] = frozenset()
    grants: Grants = NO_GRANTS


NO_FACTS: Final = Facts()


class Refusal(NamedTuple):
    """Why not."""

    #: Whose right is missing.
    role: str
    #: In words that name more than the action; empty: there are none.
    reason: str = ""


def need_of(action: Action) -> Need:
    """What an action takes."""
    need = _NEEDS.get(action)
    if need is not None:
        return need
    if isinstance(action, SuperUser | ClusterOperation | BrokerOperation):
        return Need.SUPER_USER
    return Need.ADMINISTRATOR


def roles_of(principal: Principal) -> tuple[tuple[str, ...], ...]:
    """Of who asks, and for whom: one role of each must be allowed."""
    own = _all_of(principal.role, principal.roles)
    return (own, _all_of(principal.original, principal.original_roles)) if principal.original else (own,)


def _asked(principal: Principal, action: Action) -> tuple[tuple[str, ...], ...]:
    """Those of whom each must be allowed. Whether a proxy between clusters may produce, the same command asks."""
    return roles_of(principal)[-1:] if need_of(action) is Need.REPLICATE else roles_of(principal)


def _all_of(role: str, roles: frozenset[str] | None) -> tuple[str, ...]:
    """The role by which somebody is known is first: it is the one that a refusal tells of."""
    return (role, *sorted(roles - {role})) if role and roles else (role,)


def settled_without_facts(rules: Rules, principal: Principal, action: Action) -> bool:
    """Whether :func:`decide` comes to the same, whatever is stored."""
    if principal.is_anonymous or need_of(action) in (Need.NOTHING, Need.SUPER_USER):
        return True
    return all(not rules.super_users.isdisjoint(roles) for roles in roles_of(principal))


def decide(rules: Rules, facts: Facts, principal: Principal, action: Action, resource: Resource) -> Refusal | None:
    """None: it is allowed."""
    for roles in _asked(principal, action):
        refusal = _decide_any(rules, facts, roles, action, resource)
        if refusal is not None:
            return refusal
    return _kept_for_brokers(rules, facts, principal, action, resource)


def is_of_brokers(action: Action, resource: Resource) -> bool:
    """Whether it brings or takes messages of a topic in which brokers keep policies, or what became of transactions."""
    return resource.topic is not None and resource.topic.is_system and need_of(action) in _OF_MESSAGES


def _kept_for_brokers(
    rules: Rules, facts: Facts, principal: Principal, action: Action, resource: Resource
) -> Refusal | None:
    """Who produces to a topic of the brokers' own has to be an administrator, or to bring other clusters' policies; who
    consumes from it, an administrator."""
    if not is_of_brokers(action, resource):
        return None
    roles, may = roles_of(principal)[-1], rules.super_users | facts.administrators | rules.brokers
    if need_of(action) is Need.PRODUCE:
        may |= rules.replicators
    if may.intersection(roles):
        return None
    return Refusal(roles[0], f"{resource.topic} is the brokers' own: expected an administrator of {resource.tenant}")


def _decide_any(
    rules: Rules, facts: Facts, roles: tuple[str, ...], action: Action, resource: Resource
) -> Refusal | None:
    """None: one of them may."""
    first: Refusal | None = None
    for role in roles:
        refusal = _decide_role(rules, facts, role, action, resource)
        if refusal is None:
            return None
        first = first or refusal
    return first


def _decide_role(rules: Rules, facts: Facts, role: str, action: Action, resource: Resource) -> Refusal | None:
    if not role:
        return Refusal(role)
    need = need_of(action)
    if need is Need.NOTHING or role in rules.super_users:
        return None
    if need is Need.SUPER_USER:
        return Refusal(role)
    if resource.tenant and role in facts.administrators:
        return None
    if need is Need.ADMINISTRATOR or not resource.namespace:
        return Refusal(role)
    if need is Need.REPLICATE:
        may = role in rules.replicators or role in rules.brokers
        return None if may else Refusal(role, _no_replicator(role, resource))
    if need is Need.CONSUME_ALL:
        refusal = _kept_from(rules, facts.grants, role, resource)
        return refusal or _allowed(role, _has(rules, facts.grants.namespace, role, CONSUME))
    if need is Need.EITHER_ALL:
        grants = facts.grants.namespace
        return _allowed(role, _has(rules, grants, role, CONSUME) or _has(rules, grants, role, PRODUCE))
    if resource.topic is None:
        return Refusal(role)
    if need is Need.PRODUCE:
        return _allowed(role, _may(rules, facts.grants, role, PRODUCE, resource.topic))
    if need in (Need.CONSUME, Need.CONSUME_EACH):
        return _may_consume(rules, facts.grants, role, resource, is_of_each=need is Need.CONSUME_EACH)
    may = any(_may(rules, facts.grants, role, action, resource.topic) for action in (PRODUCE, CONSUME))
    return _allowed(role, may)


def _no_replicator(role: str, resource: Resource) -> str:
    return (
        f"{role} may not publish under the name of another cluster's replicator ({REPLICATOR_PREFIX}...) to "
        f"{resource}: expected a super-user, an administrator of {resource.tenant}, or one of gemingaReplicatorRoles"
    )


def _allowed(role: str, is_allowed: bool) -> Refusal | None:
    return None if is_allowed else Refusal(role)


def _may_consume(rules: Rules, grants: Grants, role: str, resource: Resource, *, is_of_each: bool) -> Refusal | None:
    assert resource.topic is not None
    # Pulsar's provider asks of no blank name, and lets everybody who may consume use a subscription of that name.
    is_asked = is_of_each or resource.subscription
    refusal = _kept_from(rules, grants, role, resource) if is_asked else None
    return refusal or _allowed(role, _may(rules, grants, role, CONSUME, resource.topic))


def _kept_from(rules: Rules, grants: Grants, role: str, resource: Resource) -> Refusal | None:
    """Whether a subscription, or one of all where none is named, is not this role's.

    A subscription's roles restrict; they give nothing to who may not consume.
    """
    subscription = resource.subscription
    if not subscription:
        is_open = not (rules.are_subscriptions_closed or grants.is_by_prefix)
        if is_open and all(role in roles or not roles for roles in grants.subscriptions.values()):
            return None
        return Refusal(role, f"not all subscriptions of {resource} are those of {role}: name one")
    roles = grants.subscriptions.get(subscription, frozenset())
    if role not in roles and (roles or rules.are_subscriptions_closed):
        return Refusal(role, f"{role} is not among the roles of the subscription {subscription}")
    if grants.is_by_prefix and not subscription.startswith(role):
        return Refusal(
            role,
            f"the name of a subscription must begin with the role that uses it here, such as {role}-name: "
            f"{subscription} does not, of {resource.topic or resource.namespace}",
        )
    return None


def _may(rules: Rules, grants: Grants, role: str, action: str, topic: TopicName) -> bool:
    """By the namespace, the topic, or the partitioned topic that it is a partition of."""
    own = grants.topics.get(str(topic), {})
    if _has(rules, grants.namespace, role, action) or _has(rules, own, role, action):
        return True
    # By name alone, as in Pulsar: so grants hold for partitions that were added after them.
    return topic.is_partition and action in grants.topics.get(str(topic.partitioned_topic), {}).get(role, ())


def _has(rules: Rules, granted: Actions, role: str, action: str) -> bool:
    return action in granted.get(role, ()) or (
        rules.has_wildcards and any(action in actions and _fits(pattern, role) for pattern, actions in granted.items())
    )


def _fits(pattern: str, role: str) -> bool:
    """A star at the end stands for any end, one at the beginning for any beginning; anywhere else it is a letter."""
    return (pattern.endswith("*") and role.startswith(pattern[:-1])) or (
        pattern.startswith("*") and role.endswith(pattern[1:])
    )


def administrators_of(tenant: Mapping[str, object] | None) -> frozenset[str]:
    """Of a tenant's ``TenantInfo``; None: there is no such tenant."""
    roles = None if tenant is None else tenant.get("adminRoles")
    return frozenset(_texts(roles)) if isinstance(roles, list) else frozenset()


def _texts(values: Iterable[object]) -> Iterable[str]:
    return (value for value in values if isinstance(value, str) and value)
