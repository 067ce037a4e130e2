"""Policies of a namespace, one by one: read, set, remove.

Each is a field of the namespace's ``Policies`` document. Reading one that is not set answers 204 without a body, as
Pulsar does; setting answers 204 when the change is stored and the topics that this broker has loaded follow it. Other
brokers hear of it through the metadata store's watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from geminga.broker.policies.rules import SUBSCRIPTION_TYPES
from geminga.broker.resources.documents import Document, Json
from geminga.broker.resources.policies import Policies
from geminga.broker.rest.core.unbuilt import DELAY_FIELDS, NAMESPACE_FIELDS, refuse_unbuilt
from geminga.broker.rest.requests import RestError, context_of, json_body, json_response, namespace_of, no_content
from geminga.broker.schema.core.compatibility import Strategy
from geminga.broker.service import Broker
from geminga.runtime import get_logger

_log = get_logger(__name__)

SCHEMA_STRATEGIES = tuple(strategy.value for strategy in Strategy)
#: Largest values of these policies: Pulsar keeps them as Java ints, sizes as longs.
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
#: Seconds that an answer waits for the loaded topics to follow: many may have to recover their deduplication. Those
#: that are not done go on by themselves.
FOLLOW_S_MAX = 10.0
QUOTA_TYPES = ("destination_storage", "message_age")
#: Limits of a quota and their largest values.
QUOTA_LIMITS = {"limit": LONG_MAX, "limitSize": LONG_MAX, "limitTime": INT_MAX}
QUOTA_POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy: its path, the field that holds it, how it is set and what may be set."""

    path: str
    key: str
    #: Returns the value to store; raises :class:`RestError`.
    check: Callable[[Json], Json]
    set_method: str = "POST"
    #: What is answered, and stored, where nothing is set; None: 204 without a body.
    unset: Json = None


def _boolean(value: Json) -> Json:
    if not isinstance(value, bool):
        raise RestError(400, "the body must be true or false")
    return value


def check_ttl(value: Json) -> Json:
    """Seconds after which messages expire; raises RestError."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT_MAX:
        raise RestError(412, "the body must be whole seconds, 0 or more (0: never expire)")
    return value


def _expiration(value: Json) -> Json:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT_MAX:
        raise RestError(412, "the body must be whole minutes, 0 or more (0: never)")
    return value


def check_limit(value: Json) -> Json:
    """A whole number, 0 for none; raises RestError."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT_MAX:
        raise RestError(412, f"the body must be a whole number, 0 (no limit) to {INT_MAX}")
    return value


def _strategy(value: Json) -> Json:
    if value not in SCHEMA_STRATEGIES:
        raise RestError(400, f"the body must be one of {', '.join(SCHEMA_STRATEGIES)}")
    return value


def _object(value: Json) -> Document:
    if not isinstance(value, dict):
        raise RestError(400, "the body must be a JSON object")
    return value


def check_retention(value: Json) -> Json:
    """Pulsar's ``RetentionPolicies``, without what else the body holds; raises RestError."""
    document = _object(value)
    minutes, size = document.get("retentionTimeInMinutes", 0), document.get("retentionSizeInMB", 0)
    if not _is_limit(minutes, INT_MAX) or not _is_limit(size, LONG_MAX):
        raise RestError(
            412,
            "retentionTimeInMinutes and retentionSizeInMB must be whole numbers, "
            f"-1 (no limit) to {INT_MAX} and {LONG_MAX}",
        )
    # Pulsar's rule: one of the two alone would keep nothing, since either limit ends retention.
    if (minutes == 0) != (size == 0):
        raise RestError(412, "retention needs both a time and a size, or neither: 0 with the other set keeps nothing")
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size}


def _is_limit(value: Json, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= most


def check_subscription_types(value: Json) -> Json:
    """Pulsar's names of subscription types, each once and in Pulsar's order; raises RestError."""
    if not isinstance(value, list) or not all(isinstance(name, str) and name in SUBSCRIPTION_TYPES for name in value):
        raise RestError(400, f"the body must be a list of {', '.join(SUBSCRIPTION_TYPES)}")
    return [name for name in SUBSCRIPTION_TYPES if name in value]


def _topic_creation(value: Json) -> Json:
    document = _object(value)
    if not isinstance(document.get("allowAutoTopicCreation"), bool):
        raise RestError(406, "allowAutoTopicCreation must be true or false")
    topic_type, partitions = document.get("topicType"), document.get("defaultNumPartitions")
    if document["allowAutoTopicCreation"]:
        if topic_type not in ("partitioned", "non-partitioned"):
            raise RestError(406, "topicType must be partitioned or non-partitioned")
        if topic_type == "partitioned" and (not isinstance(partitions, int) or partitions < 1):
            raise RestError(406, "defaultNumPartitions must be a whole number, 1 or more")
        if topic_type == "non-partitioned" and partitions not in (None, 0, -1):
            raise RestError(406, "defaultNumPartitions goes with topicType partitioned only")
    return document


def _subscription_creation(value: Json) -> Json:
    document = _object(value)
    if not isinstance(document.get("allowAutoSubscriptionCreation"), bool):
        raise RestError(406, "allowAutoSubscriptionCreation must be true or false")
    return document


def check_delayed_delivery(value: Json) -> Document:
    """Pulsar's ``DelayedDeliveryPolicies``; raises RestError."""
    document = _object(value)
    tick, is_active = document.get("tickTime"), document.get("active")
    is_tick = isinstance(tick, int) and not isinstance(tick, bool) and 1 <= tick <= LONG_MAX
    if not isinstance(is_active, bool) or not is_tick:
        raise RestError(412, "delayed delivery needs active (true or false) and tickTime (milliseconds, 1 or more)")
    refuse_unbuilt(document, DELAY_FIELDS)
    return {"tickTime": tick, "active": is_active, "maxDeliveryDelayInMillis": 0}


POLICIES = (
    Policy("deduplication", "deduplicationEnabled", _boolean),
    Policy("deduplicationSnapshotInterval", "deduplicationSnapshotIntervalSeconds", check_limit),
    Policy("messageTTL", "message_ttl_in_seconds", check_ttl),
    Policy("delayedDelivery", "delayed_delivery_policies", check_delayed_delivery),
    Policy("retention", "retention_policies", check_retention),
    Policy("subscriptionExpirationTime", "subscription_expiration_time_minutes", _expiration),
    Policy("schemaCompatibilityStrategy", "schema_compatibility_strategy", _strategy, "PUT"),
    Policy("schemaValidationEnforced", "schema_validation_enforced", _boolean),
    Policy("isAllowAutoUpdateSchema", "is_allow_auto_update_schema", _boolean),
    Policy("autoTopicCreation", "autoTopicCreationOverride", _topic_creation),
    Policy("autoSubscriptionCreation", "autoSubscriptionCreationOverride", _subscription_creation),
    Policy("maxTopicsPerNamespace", "max_topics_per_namespace", check_limit),
    Policy("maxProducersPerTopic", "max_producers_per_topic", check_limit),
    Policy("maxConsumersPerTopic", "max_consumers_per_topic", check_limit),
    Policy("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer", check_limit),
    Policy("maxUnackedMessagesPerSubscription", "max_unacked_messages_per_subscription", check_limit),
    # An empty list and none set are the same: what the broker enables.
    Policy("subscriptionTypesEnabled", "subscription_types_enabled", check_subscription_types, unset=[]),
    Policy("maxConsumersPerSubscription", "max_consumers_per_subscription", check_limit),
    Policy("maxSubscriptionsPerTopic", "max_subscriptions_per_topic", check_limit),
)


#: Members of Pulsar's ``Policies`` that no path above sets, and that are kept as they are given.
OTHER_FIELDS = (
    *("auth_policies", "replication_clusters", "allowed_clusters", "bundles", "deleted", "properties"),
    "schema_auto_update_compatibility_strategy",
)


def checked_policies(document: Document) -> Document:
    """The policies that a namespace is created with, each as its own path would take it.

    What Pulsar's ``Policies`` has not is dropped, as there. Raises RestError, and NotBuiltError for what would have no
    effect.
    """
    refuse_unbuilt(document, NAMESPACE_FIELDS)
    checked: Document = {key: document[key] for key in OTHER_FIELDS if document.get(key) is not None}
    for policy in POLICIES:
        value = document.get(policy.key)
        if value is not None:
            checked[policy.key] = policy.check(value)
    quotas = document.get("backlog_quota_map")
    if quotas is not None:
        checked["backlog_quota_map"] = {kind: check_quota(quota) for kind, quota in _object(quotas).items()}
        unknown = sorted(set(_object(quotas)) - set(QUOTA_TYPES))
        if unknown:
            raise RestError(400, f"backlog_quota_map: expected {' or '.join(QUOTA_TYPES)}, not {', '.join(unknown)}")
    return checked


async def _set(request: Request, key: str, value: Json) -> None:
    context = context_of(request)
    namespace = namespace_of(request)
    await context.broker.resources.namespaces.set_policy(namespace, key, value)
    await _follow(context.broker, namespace)


async def _follow(broker: Broker, namespace: str) -> None:
    try:
        async with asyncio.timeout(FOLLOW_S_MAX):
            await broker.policies_changed(namespace)
    except TimeoutError:
        _log.info("%s: topics still adopt the changed policies after %g s", namespace, FOLLOW_S_MAX)


def _routes_of(policy: Policy) -> list[Route]:
    async def read(request: Request) -> Response:
        policies = await context_of(request).broker.resources.namespaces.get(namespace_of(request))
        value = policies.document.get(policy.key)
        if value is None:
            value = policy.unset
        return no_content() if value is None else json_response(value)

    async def write(request: Request) -> Response:
        await _set(request, policy.key, policy.check(await json_body(request)))
        return no_content()

    async def remove(request: Request) -> Response:
        await _set(request, policy.key, policy.unset)
        return no_content()

    path = f"/admin/v2/namespaces/{{tenant}}/{{namespace}}/{policy.path}"
    return [
        Route(path, read, methods=["GET"]),
        Route(path, write, methods=[policy.set_method]),
        Route(path, remove, methods=["DELETE"]),
    ]


async def get_backlog_quotas(request: Request) -> Response:
    """Quota type -> quota."""
    policies = await context_of(request).broker.resources.namespaces.get(namespace_of(request))
    return json_response(_quotas(policies))


async def set_backlog_quota(request: Request) -> Response:
    """Set the quota of ``backlogQuotaType``."""
    kind, quota = quota_type(request), check_quota(await json_body(request))
    await _change_quotas(request, lambda quotas: {**quotas, kind: quota})
    return no_content()


async def remove_backlog_quota(request: Request) -> Response:
    """Remove the quota of ``backlogQuotaType``."""
    kind = quota_type(request)
    await _change_quotas(request, lambda quotas: {key: value for key, value in quotas.items() if key != kind})
    return no_content()


async def _change_quotas(request: Request, change: Callable[[Document], Document]) -> None:
    context = context_of(request)
    namespace = namespace_of(request)

    def apply(document: Document) -> Document:
        return {**document, "backlog_quota_map": change(_quotas(Policies(document)))}

    await context.broker.resources.namespaces.update(namespace, apply)
    await _follow(context.broker, namespace)


def check_quota(value: Json) -> Document:
    """Pulsar's ``BacklogQuota``, without what else the body holds; raises RestError."""
    quota = _object(value)
    if quota.get("policy") not in QUOTA_POLICIES:
        raise RestError(400, f"policy must be one of {', '.join(QUOTA_POLICIES)}")
    for key, most in QUOTA_LIMITS.items():
        number = quota.get(key)
        if number is not None and not _is_limit(number, most):
            raise RestError(400, f"{key} must be a whole number, -1 (no limit) to {most}")
    return {key: quota[key] for key in (*QUOTA_LIMITS, "policy") if quota.get(key) is not None}


def quota_type(request: Request) -> str:
    """Which quota the query names; raises RestError."""
    kind = request.query_params.get("backlogQuotaType", QUOTA_TYPES[0])
    if kind not in QUOTA_TYPES:
        raise RestError(400, f"backlogQuotaType={kind}: expected {' or '.join(QUOTA_TYPES)}")
    return kind


def _quotas(policies: Policies) -> Document:
    value = policies.document.get("backlog_quota_map")
    return dict(value) if isinstance(value, dict) else {}


_PATH = "/admin/v2/namespaces/{tenant}/{namespace}"

ROUTES = [
    *(route for policy in POLICIES for route in _routes_of(policy)),
    Route(f"{_PATH}/backlogQuotaMap", get_backlog_quotas, methods=["GET"]),
    Route(f"{_PATH}/backlogQuota", set_backlog_quota, methods=["POST"]),
    Route(f"{_PATH}/backlogQuota", remove_backlog_quota, methods=["DELETE"]),
]
