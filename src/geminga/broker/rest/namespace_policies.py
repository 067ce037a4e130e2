"""Policies of a namespace, one by one: read, set, remove.

Each is a field of the namespace's ``Policies`` document. Reading one that is not set answers 200 without a body, as
Pulsar does; setting answers 204 when the change is stored and the topics that this broker has loaded follow it. Other
brokers hear of it through the metadata store's watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import PolicyName, reading, writing
from geminga.broker.access.core.policy_names import policy_name
from geminga.broker.core.coercion import boolean_of, object_of, text_of, texts_of
from geminga.broker.policies.rules import AGE_QUOTA, SIZE_QUOTA
from geminga.broker.resources.documents import Document, Json
from geminga.broker.resources.policies import Policies
from geminga.broker.rest.core.unbuilt import NAMESPACE_FIELDS, refuse_unbuilt
from geminga.broker.rest.policy_values import (
    check_boolean,
    check_bundles,
    check_delayed_delivery,
    check_expiration,
    check_quota,
    check_retention,
    check_snapshot_interval,
    check_strategy,
    check_subscription_creation,
    check_subscription_types,
    check_topic_creation,
    check_ttl,
    is_quota_within_retention,
    limit_check,
)
from geminga.broker.rest.requests import (
    NO_BODY,
    RestError,
    context_of,
    json_body,
    json_response,
    namespace_of,
    no_content,
    nothing_set,
)
from geminga.broker.rest.routing import Route
from geminga.broker.service import Broker
from geminga.model.errors import NotFoundError
from geminga.runtime import get_logger

_log = get_logger(__name__)

#: Seconds that an answer waits for the loaded topics to follow: many may have to recover their deduplication. Those
#: that are not done go on by themselves.
FOLLOW_S_MAX = 10.0
QUOTA_TYPES = (SIZE_QUOTA, AGE_QUOTA)
#: What is said where the namespace is missing: some of Pulsar's paths use other words.
_NO_NAMESPACE = "Namespace does not exist"
_NO_POLICIES = "Namespace policies does not exist"


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: its path, the field that holds it, how it is set and what may be set."""

    path: str
    key: str
    #: Returns the value to store; raises :class:`RestError`.
    check: Callable[[Json], Json]
    set_method: str = "POST"
    #: What is answered where nothing is set; None: no body.
    unset: Json = None
    #: What is stored when the policy is removed.
    removed: Json = None
    #: Whether nothing, or null, may be set: that removes it.
    takes_nothing: bool = False
    #: What is said where the namespace is missing when the policy is changed.
    missing: str = _NO_NAMESPACE
    #: The broker's own setting, answered where nothing is set.
    setting: Callable[[Broker], Json] | None = None


def _at_least_zero(path: str) -> Callable[[Json], Json]:
    return limit_check(f"{path} must be 0 or more")


POLICIES = (
    Policy("deduplication", "deduplicationEnabled", check_boolean),
    Policy(
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds",
        check_snapshot_interval,
        takes_nothing=True,
        missing=_NO_POLICIES,
    ),
    Policy("messageTTL", "message_ttl_in_seconds", check_ttl),
    Policy(
        "delayedDelivery", "delayed_delivery_policies", check_delayed_delivery, takes_nothing=True, missing=_NO_POLICIES
    ),
    Policy("retention", "retention_policies", check_retention, takes_nothing=True, missing=_NO_POLICIES),
    Policy("subscriptionExpirationTime", "subscription_expiration_time_minutes", check_expiration),
    Policy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        check_strategy,
        "PUT",
        unset="UNDEFINED",
        removed="UNDEFINED",
        takes_nothing=True,
    ),
    Policy("schemaValidationEnforced", "schema_validation_enforced", check_boolean, unset=False, removed=False),
    Policy(
        "isAllowAutoUpdateSchema",
        "is_allow_auto_update_schema",
        check_boolean,
        setting=lambda broker: broker.config.allow_auto_update_schema,
    ),
    Policy("autoTopicCreation", "autoTopicCreationOverride", check_topic_creation, takes_nothing=True),
    Policy(
        "autoSubscriptionCreation", "autoSubscriptionCreationOverride", check_subscription_creation, takes_nothing=True
    ),
    Policy(
        "maxTopicsPerNamespace",
        "max_topics_per_namespace",
        _at_least_zero("maxTopicsPerNamespace"),
        unset=0,
        missing=_NO_POLICIES,
    ),
    Policy("maxProducersPerTopic", "max_producers_per_topic", _at_least_zero("maxProducersPerTopic")),
    Policy("maxConsumersPerTopic", "max_consumers_per_topic", _at_least_zero("maxConsumersPerTopic")),
    Policy(
        "maxUnackedMessagesPerConsumer",
        "max_unacked_messages_per_consumer",
        _at_least_zero("maxUnackedMessagesPerConsumer"),
    ),
    Policy(
        "maxUnackedMessagesPerSubscription",
        "max_unacked_messages_per_subscription",
        _at_least_zero("maxUnackedMessagesPerSubscription"),
    ),
    # An empty list and none set are the same: what the broker enables.
    Policy("subscriptionTypesEnabled", "subscription_types_enabled", check_subscription_types, unset=[], removed=[]),
    Policy(
        "maxConsumersPerSubscription",
        "max_consumers_per_subscription",
        _at_least_zero("maxConsumersPerSubscription"),
    ),
    Policy(
        "maxSubscriptionsPerTopic",
        "max_subscriptions_per_topic",
        _at_least_zero("maxSubscriptionsPerTopic"),
        missing=_NO_POLICIES,
    ),
)


#: Members of Pulsar's ``Policies`` that no path above sets, and that are kept as they are given.
OTHER_FIELDS = (
    *("auth_policies", "replication_clusters", "allowed_clusters", "bundles", "deleted", "properties"),
    "schema_auto_update_compatibility_strategy",
)


def checked_policies(document: Document, namespace: str) -> Document:
    """The policies that a namespace is created with, each as its own path would take it.

    What Pulsar's ``Policies`` has not is dropped, as there. Raises RestError, and NotBuiltError for what would have no
    effect.
    """
    refuse_unbuilt(document, NAMESPACE_FIELDS)
    checked: Document = {key: document[key] for key in OTHER_FIELDS if document.get(key) is not None}
    for key in ("replication_clusters", "allowed_clusters"):
        if key in checked:
            checked[key] = [*texts_of(checked[key], key)]
    if "bundles" in checked:
        checked["bundles"] = check_bundles(checked["bundles"])
    if "deleted" in checked:
        checked["deleted"] = boolean_of(checked["deleted"], "deleted")
    if "auth_policies" in checked:
        nobody: Document = {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}}
        checked["auth_policies"] = nobody | object_of(checked["auth_policies"], "auth_policies")
    if "properties" in checked:
        properties = object_of(checked["properties"], "properties")
        checked["properties"] = {key: text_of(value, key) for key, value in properties.items()}
    for policy in POLICIES:
        value = document.get(policy.key)
        if value is not None:
            checked[policy.key] = policy.check(value)
    quotas = document.get("backlog_quota_map")
    if quotas is not None:
        given = object_of(quotas, "backlog_quota_map")
        checked["backlog_quota_map"] = {kind: check_quota(quota, namespace) for kind, quota in given.items()}
        unknown = sorted(set(given) - set(QUOTA_TYPES))
        if unknown:
            raise RestError(400, f"backlog_quota_map: expected {' or '.join(QUOTA_TYPES)}, not {', '.join(unknown)}")
    return checked


async def _set(request: Request, policy: Policy, value: Json) -> Response:
    def change(document: Document) -> Document:
        if policy.key == "retention_policies" and not is_quota_within_retention(_quotas(Policies(document)), value):
            raise RestError(412, "Retention Quota must exceed configured backlog quota for namespace.")
        return {**document, policy.key: value}

    return await _change(request, change, policy.missing)


async def _change(request: Request, change: Callable[[Document], Document], missing: str) -> Response:
    broker, namespace = context_of(request).broker, namespace_of(request)
    try:
        await broker.resources.namespaces.update(namespace, change, missing)
    except NotFoundError as error:
        # Pulsar says so only where authentication is on; it is the more helpful of the two.
        if not await broker.resources.tenants.exists(namespace.partition("/")[0]):
            raise NotFoundError("Tenant does not exist") from error
        raise
    await _follow(broker, namespace)
    return no_content()


async def _follow(broker: Broker, namespace: str) -> None:
    try:
        async with asyncio.timeout(FOLLOW_S_MAX):
            await broker.policies_changed(namespace)
    except TimeoutError:
        _log.info("%s: topics still adopt the changed policies after %g s", namespace, FOLLOW_S_MAX)


def _routes_of(policy: Policy) -> list[Route]:
    async def read(request: Request) -> Response:
        broker = context_of(request).broker
        policies = await broker.resources.namespaces.get(namespace_of(request))
        value = policies.document.get(policy.key)
        if value is None:
            value = policy.unset if policy.setting is None else policy.setting(broker)
        return nothing_set() if value is None else json_response(value)

    async def write(request: Request) -> Response:
        namespace_of(request)
        value = await json_body(request)
        if value is None and not policy.takes_nothing:
            raise RestError(400, NO_BODY)
        return await _set(request, policy, policy.removed if value is None else policy.check(value))

    async def remove(request: Request) -> Response:
        return await _set(request, policy, policy.removed)

    path, name = f"/admin/v2/namespaces/{{tenant}}/{{namespace}}/{policy.path}", policy_name(policy.path)
    return [
        Route(path, read, methods=["GET"], needs=reading(name)),
        Route(path, write, methods=[policy.set_method], needs=writing(name)),
        Route(path, remove, methods=["DELETE"], needs=writing(name)),
    ]


async def get_backlog_quotas(request: Request) -> Response:
    """Quota type -> quota."""
    policies = await context_of(request).broker.resources.namespaces.get(namespace_of(request))
    return json_response(_quotas(policies))


async def set_backlog_quota(request: Request) -> Response:
    """Set the quota of ``backlogQuotaType``."""
    kind, namespace = quota_type(request), namespace_of(request)
    quota = check_quota(await json_body(request), namespace)

    def change(document: Document) -> Document:
        if kind == SIZE_QUOTA and not is_quota_within_retention({kind: quota}, document.get("retention_policies")):
            raise RestError(
                412,
                "Backlog Quota exceeds configured retention quota for namespace. "
                "Please increase retention quota and retry",
            )
        return {**document, "backlog_quota_map": {**_quotas(Policies(document)), kind: quota}}

    return await _change(request, change, _NO_NAMESPACE)


async def remove_backlog_quota(request: Request) -> Response:
    """Remove the quota of ``backlogQuotaType``."""
    kind = quota_type(request)

    def change(document: Document) -> Document:
        quotas = _quotas(Policies(document))
        return {**document, "backlog_quota_map": {key: value for key, value in quotas.items() if key != kind}}

    return await _change(request, change, _NO_NAMESPACE)


def quota_type(request: Request) -> str:
    """Which quota the query names; raises RestError."""
    kind = request.query_params.get("backlogQuotaType") or QUOTA_TYPES[0]
    if kind not in QUOTA_TYPES:
        # What Pulsar's HTTP software says of a parameter that it can not read.
        raise RestError(404, f"backlogQuotaType={kind}: expected {' or '.join(QUOTA_TYPES)}")
    return kind


def _quotas(policies: Policies) -> Document:
    value = policies.document.get("backlog_quota_map")
    return dict(value) if isinstance(value, dict) else {}


_PATH = "/admin/v2/namespaces/{tenant}/{namespace}"

ROUTES = [
    *(route for policy in POLICIES for route in _routes_of(policy)),
    Route(f"{_PATH}/backlogQuotaMap", get_backlog_quotas, methods=["GET"], needs=reading(PolicyName.BACKLOG)),
    Route(f"{_PATH}/backlogQuota", set_backlog_quota, methods=["POST"], needs=writing(PolicyName.BACKLOG)),
    Route(f"{_PATH}/backlogQuota", remove_backlog_quota, methods=["DELETE"], needs=writing(PolicyName.BACKLOG)),
]
