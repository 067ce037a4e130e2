"""What a namespace's policies give to roles: Pulsar's ``auth_policies``, read and changed as JSON.

::

    {"namespace_auth": {role: [action]}, "destination_auth": {topic: {role: [action]}},
     "subscription_auth_roles": {subscription: [role]}}

A reader never raises: what is of another form gives nobody anything. A change keeps every member that it is not about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from geminga.broker.core.coercion import Document, Json
from geminga.model.topic_name import PARTITION_SUFFIX, TopicName

#: Pulsar's ``AuthAction``.
PRODUCE: Final = "produce"
CONSUME: Final = "consume"
ACTIONS: Final = (PRODUCE, CONSUME, "functions", "sources", "sinks", "packages")

AUTH_POLICIES: Final = "auth_policies"
#: Members of it: what holds in the namespace, for its topics by full name, and for its subscriptions by name.
NAMESPACE: Final = "namespace_auth"
TOPICS: Final = "destination_auth"
SUBSCRIPTIONS: Final = "subscription_auth_roles"
#: Of the policies: whether a subscription's name begins with its role.
AUTH_MODE: Final = "subscription_auth_mode"

#: Role -> what it may do.
Actions: TypeAlias = Mapping[str, frozenset[str]]
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Grants(NamedTuple):
    """What roles may do in a namespace, beside its tenant's administrators."""

    namespace: Actions = _NOTHING
    #: By the topics' full names.
    topics: Mapping[str, Actions] = _NOTHING
    #: Subscription -> those who may use it; none: everybody who may consume.
    subscriptions: Actions = _NOTHING
    #: Whether a subscription's name must begin with the role that uses it.
    is_by_prefix: bool = False


#: Of a namespace that nobody is given anything in.
NO_GRANTS: Final = Grants()


def grants_of(policies: Mapping[str, Json]) -> Grants:
    """What a namespace's policies hold."""
    return Grants(
        _actions(granted(policies)),
        {topic: _actions(_object(roles)) for topic, roles in granted_topics(policies).items()},
        {name: _texts(roles) for name, roles in granted_subscriptions(policies).items()},
        policies.get(AUTH_MODE) == "Prefix",
    )


# ---- as they are stored


def granted(policies: Mapping[str, Json]) -> Document:
    """Role -> actions in the whole namespace."""
    return _member(policies, NAMESPACE)


def granted_topics(policies: Mapping[str, Json]) -> Document:
    """Topic -> role -> actions."""
    return _member(policies, TOPICS)


def granted_subscriptions(policies: Mapping[str, Json]) -> Document:
    """Subscription -> roles."""
    return _member(policies, SUBSCRIPTIONS)


def granted_at(policies: Mapping[str, Json], topic: str) -> Document:
    """Role -> actions at a topic: those of the namespace, and its own."""
    found: Document = dict(granted(policies))
    for role, actions in _object(granted_topics(policies).get(topic)).items():
        both = [*_list(found.get(role)), *_list(actions)]
        found[role] = [*dict.fromkeys(text for text in both if isinstance(text, str))]
    return found


# ---- changes


def with_grant(policies: Document, role: str, actions: Iterable[str]) -> Document:
    """A role has these actions in the namespace, instead of those that it had."""
    return _with(policies, NAMESPACE, {**granted(policies), role: [*actions]})


def without_grant(policies: Document, role: str) -> Document:
    """A role has nothing in the namespace as a whole."""
    return _with(policies, NAMESPACE, {key: value for key, value in granted(policies).items() if key != role})


def with_topic_grant(policies: Document, topic: str, role: str, actions: Iterable[str]) -> Document:
    """A role has these actions at a topic, instead of those that it had there."""
    return with_topic_changes(policies, [GrantChange(topic, role, tuple(actions))])


def without_topic_grant(policies: Document, topics: Iterable[str], role: str) -> Document:
    """A role has nothing at these topics themselves."""
    return with_topic_changes(policies, [GrantChange(topic, role, None) for topic in topics])


class GrantChange(NamedTuple):
    """What becomes of a role at a topic."""

    topic: str
    role: str
    #: Instead of those that it had there; None: it has nothing any more.
    actions: tuple[str, ...] | None


def with_topic_changes(policies: Document, changes: Iterable[GrantChange]) -> Document:
    """One behind the other, at a cost of what there is and what is changed together: both may be thousands."""
    topics = dict(granted_topics(policies))
    #: Of topics that were changed.
    roles_of: dict[str, Document] = {}
    for topic, role, actions in changes:
        if topic not in roles_of:
            roles_of[topic] = dict(_object(topics.get(topic)))
        roles = roles_of[topic]
        if actions is None:
            roles.pop(role, None)
        else:
            roles[role] = [*actions]
    for topic, roles in roles_of.items():
        if roles:
            topics[topic] = roles
        else:
            topics.pop(topic, None)
    return _with(policies, TOPICS, topics) if topics != granted_topics(policies) else policies


def partitions_granted(policies: Mapping[str, Json], topic: TopicName) -> list[str]:
    """Partitions of a partitioned topic at which anybody has anything."""
    start = f"{topic}{PARTITION_SUFFIX}"
    return [name for name in granted_topics(policies) if name.startswith(start) and name[len(start) :].isdecimal()]


def without_topic(policies: Document, topic: TopicName, *, has_partitions: bool) -> Document:
    """Nobody has anything at a topic itself, nor at its partitions: it is gone."""
    gone = {str(topic), *(partitions_granted(policies, topic) if has_partitions else ())}
    found = granted_topics(policies)
    left = {name: roles for name, roles in found.items() if name not in gone}
    return _with(policies, TOPICS, left) if len(left) < len(found) else policies


def with_subscription_roles(policies: Document, subscription: str, roles: Iterable[str]) -> Document:
    """These roles alone may use a subscription."""
    return _with(policies, SUBSCRIPTIONS, {**granted_subscriptions(policies), subscription: [*roles]})


def without_subscription_role(policies: Document, subscription: str, role: str) -> Document:
    """A role may not use a subscription any more; without any it is everybody's who may consume, as in Pulsar."""
    found = granted_subscriptions(policies)
    roles: list[Json] = [each for each in _list(found.get(subscription)) if each != role]
    left = {name: value for name, value in found.items() if name != subscription}
    return _with(policies, SUBSCRIPTIONS, {**left, subscription: roles} if roles else left)


def _with(policies: Document, member: str, value: Document) -> Document:
    return {**policies, AUTH_POLICIES: {**_object(policies.get(AUTH_POLICIES)), member: value}}


def _member(policies: Mapping[str, Json], member: str) -> Document:
    return _object(_object(policies.get(AUTH_POLICIES)).get(member))


def _actions(roles: Document) -> Actions:
    return {role: _texts(actions) for role, actions in roles.items()}


def _texts(value: Json) -> frozenset[str]:
    return frozenset(text for text in _list(value) if isinstance(text, str))


def _object(value: Json) -> Document:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
