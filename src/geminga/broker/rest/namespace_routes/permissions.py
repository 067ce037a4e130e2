"""Permissions in namespaces: of roles in the whole namespace, of roles at subscriptions, and at several topics at once.

They are kept in the namespace's policies, as Pulsar keeps them, also while nothing asks for them. Who loses one in use
is sent away before the answer (``broker/access/lost_rights.py``); other brokers hear of it by the watch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import (
    NamespaceOperation,
    Resource,
    TenantAdministration,
    of_namespace,
)
from geminga.broker.access.core.grants import (
    ACTIONS,
    GrantChange,
    granted,
    granted_subscriptions,
    with_grant,
    with_subscription_roles,
    with_topic_changes,
    without_grant,
    without_subscription_role,
)
from geminga.broker.core.coercion import object_of, text_of, texts_of
from geminga.broker.policies.core.row import NO_NAMESPACE
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.requests import (
    RestError,
    context_of,
    json_body,
    json_response,
    namespace_of,
    no_content,
    path_text,
)
from geminga.broker.rest.calls.routing import InBody, Route
from geminga.broker.rest.namespace_routes.policies import change_policies, change_policy, require_namespace_of
from geminga.model.errors import PreconditionFailedError, TopicNotFoundError
from geminga.model.topic_name import TopicName

#: Changes of one request, each of which is looked at: a namespace's node holds no more of them.
CHANGES_MAX: Final = 20_000
#: What is said where permissions are given in a namespace that is not there.
NO_NAMESPACE_OF_TOPIC: Final = "Topic's namespace does not exist"


async def get_permissions(request: Request) -> Response:
    """Role -> actions."""
    policies = await context_of(request).resources.namespaces.get(namespace_of(request))
    return json_response(granted(policies.document))


async def grant_permission(request: Request) -> Response:
    """Give a role actions, replacing those it had."""
    role, actions = path_text(request, "role"), actions_of(await json_body(request))
    return await change_policies(
        request, namespace_of(request), lambda document: with_grant(document, role, actions), NO_NAMESPACE_OF_TOPIC
    )


async def revoke_permission(request: Request) -> Response:
    """Take every action from a role."""
    role = path_text(request, "role")
    return await change_policies(
        request, namespace_of(request), lambda document: without_grant(document, role), NO_NAMESPACE
    )


async def subscription_permissions(request: Request) -> Response:
    """Subscription -> roles, as they are stored."""
    namespace = await require_namespace_of(request)
    policies = await context_of(request).resources.namespaces.get(namespace)
    return json_response(granted_subscriptions(policies.document))


async def grant_subscription(request: Request) -> Response:
    """These roles alone may use a subscription, of whatever topic of the namespace."""
    subscription, body = path_text(request, "subscription"), await json_body(request)
    if body is None:
        raise RestError(400, "Roles should not be null")
    roles = [*dict.fromkeys(texts_of(body, "the body"))]
    return await change_policy(
        request, lambda document: with_subscription_roles(document, subscription, roles), NO_NAMESPACE
    )


async def revoke_subscription(request: Request) -> Response:
    """A role may not use a subscription any more; 412 for one that names no roles."""
    subscription, role = path_text(request, "subscription"), path_text(request, "role")

    def revoke(document: Document) -> Document:
        if subscription not in granted_subscriptions(document):
            raise PreconditionFailedError(
                f"the subscription {subscription} has no roles here, so that none can be taken from it"
            )
        return without_subscription_role(document, subscription, role)

    return await change_policy(request, revoke, NO_NAMESPACE)


# ---- several topics of a namespace in one change


class _Change(NamedTuple):
    topic: TopicName
    role: str
    #: None: they are taken.
    actions: tuple[str, ...] | None


async def grant_on_topics(request: Request) -> Response:
    """Give roles actions at topics of one namespace, all of them or none."""
    return await _change_topics(request, takes=False)


async def revoke_on_topics(request: Request) -> Response:
    """Take every action from roles at topics of one namespace, all of them or none."""
    return await _change_topics(request, takes=True)


async def _change_topics(request: Request, *, takes: bool) -> Response:
    context = context_of(request)
    changes = [_change_of(item, takes=takes) for item in _items(request.state.body)]
    if not context.config.acl_changes_without_topics:
        for change in changes:
            await require_topic_of_permissions(request, change.topic)

    made = [GrantChange(str(change.topic), change.role, change.actions) for change in changes]
    await change_policies(
        request,
        changes[0].topic.namespace,
        lambda document: with_topic_changes(document, made),
        NO_NAMESPACE_OF_TOPIC,
    )
    return no_content()


def _about(body: Json) -> Resource:
    """The namespace of all of them."""
    namespaces = {_topic_of(item).namespace for item in _items(body)}
    if len(namespaces) != 1:
        raise RestError(400, "The namespace should be the same")
    return of_namespace(namespaces.pop())


def _items(body: Json) -> list[Document]:
    if not isinstance(body, list) or not body:
        raise RestError(400, "the body must be a list of topics, each with topic and role")
    if len(body) > CHANGES_MAX:
        raise RestError(412, f"the body has {len(body)} changes; at most {CHANGES_MAX} are made at once")
    return [object_of(item, "each of the list") for item in body]


def _topic_of(item: Document) -> TopicName:
    return TopicName.parse(text_of(item.get("topic"), "topic"))


def _change_of(item: Document, *, takes: bool) -> _Change:
    role = text_of(item.get("role"), "role")
    return _Change(_topic_of(item), role, None if takes else actions_of(item.get("actions")))


# ---- for topics, too


def actions_of(body: Json) -> tuple[str, ...]:
    """Actions in a body; raises RestError (400)."""
    if body is None:
        raise RestError(400, "Actions should not be null")
    actions = texts_of(body, "the body")
    unknown = [action for action in actions if action not in ACTIONS]
    if unknown:
        raise RestError(400, f"the body must be a list of actions out of {', '.join(ACTIONS)}, not {unknown[0]}")
    return tuple(dict.fromkeys(actions))


async def require_topic_of_permissions(request: Request, name: TopicName) -> None:
    """Raise TopicNotFoundError, also where the topic's namespace is not there, as in Pulsar here."""
    topics = context_of(request).topics
    if await topics.registry.exists(name):
        return
    if name.is_partition or await topics.resources.partitioned_topics.find(name) is None:
        raise TopicNotFoundError(f"Topic {name} not found")


_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_GRANT: Final = NamespaceOperation.GRANT_PERMISSION
_REVOKE: Final = NamespaceOperation.REVOKE_PERMISSION
_ON_TOPICS: Final = InBody(TenantAdministration.TOPIC_PERMISSIONS, _about)

ROUTES: Final = [
    Route("GET", f"{_NAMESPACE}/permissions", get_permissions, NamespaceOperation.GET_PERMISSION),
    Route("POST", f"{_NAMESPACE}/permissions/{{role}}", grant_permission, _GRANT),
    Route("DELETE", f"{_NAMESPACE}/permissions/{{role}}", revoke_permission, _REVOKE),
    Route("GET", f"{_NAMESPACE}/permissions/subscription", subscription_permissions, NamespaceOperation.GET_PERMISSION),
    Route("POST", f"{_NAMESPACE}/permissions/subscription/{{subscription}}", grant_subscription, _GRANT),
    Route("DELETE", f"{_NAMESPACE}/permissions/{{subscription}}/{{role}}", revoke_subscription, _REVOKE),
    Route("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", grant_on_topics, _ON_TOPICS),
    Route("POST", "/admin/v2/namespaces/revokePermissionsOnTopics", revoke_on_topics, _ON_TOPICS),
]
