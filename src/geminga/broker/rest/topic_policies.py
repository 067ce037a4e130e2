"""Policies of a topic, one by one: read, set, remove.

Reading one that is not set here answers 200 without a body; with ``applied=true`` what holds is given: the topic's,
else the namespace's, else the broker's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import PolicyName, reading, writing
from geminga.broker.access.core.policy_names import policy_name
from geminga.broker.core.coercion import BodyError, number_of, shown
from geminga.broker.policies.rules import AGE_QUOTA, SIZE_QUOTA, Quota, TopicRules
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.core.unbuilt import NON_PERSISTENT_POLICIES, refuse_parameter
from geminga.broker.rest.namespace_policies import quota_type
from geminga.broker.rest.policy_values import (
    check_boolean,
    check_delayed_delivery,
    check_quota,
    check_retention,
    check_subscription_types,
    check_ttl,
    limit_check,
)
from geminga.broker.rest.requests import (
    RestError,
    context_of,
    flag,
    json_body,
    json_response,
    no_content,
    nothing_set,
    topic_of,
)
from geminga.broker.rest.routing import TOPIC_PATH, Route
from geminga.broker.rest.targets import is_partitioned, missing_topic
from geminga.model.errors import NotBuiltError, PreconditionFailedError
from geminga.model.topic_name import TopicName


class Nothing(Enum):
    """What it means to Pulsar that a policy is set to nothing: by an empty body or null."""

    REMOVES = auto()
    CHANGES_NOTHING = auto()
    IS_REFUSED = auto()


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """One policy: its path, the field that holds it, what may be set, and what holds for a topic."""

    path: str
    key: str
    #: Returns the value to store; raises :class:`RestError`.
    check: Callable[[Json], Json]
    applied: Callable[[TopicRules], Json]
    #: The query parameter that holds the value where Pulsar has it there; empty: the body.
    parameter: str = ""
    nothing: Nothing = Nothing.REMOVES


def _retention_of(rules: TopicRules) -> Json:
    return {
        "retentionTimeInMinutes": rules.retention.time_minutes,
        "retentionSizeInMB": rules.retention.size_mb,
    }


POLICIES = (
    TopicPolicy("retention", "retentionPolicies", check_retention, _retention_of, nothing=Nothing.CHANGES_NOTHING),
    TopicPolicy("messageTTL", "messageTTLInSeconds", check_ttl, lambda rules: rules.ttl_ms // 1000, "messageTTL"),
    TopicPolicy(
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds",
        limit_check("interval must be 0 or more"),
        lambda rules: rules.dedup_snapshot_ms // 1000,
    ),
    TopicPolicy(
        "maxUnackedMessagesOnConsumer",
        "maxUnackedMessagesOnConsumer",
        limit_check("maxUnackedNum must be 0 or more"),
        lambda rules: rules.unacked.per_consumer,
    ),
    TopicPolicy(
        "maxUnackedMessagesOnSubscription",
        "maxUnackedMessagesOnSubscription",
        limit_check("maxUnackedNum must be 0 or more"),
        lambda rules: rules.unacked.per_subscription,
    ),
    TopicPolicy(
        "subscriptionTypesEnabled",
        "subscriptionTypesEnabled",
        # An empty list is none set.
        lambda value: check_subscription_types(value) or None,
        lambda rules: list(rules.subscription_types),
        nothing=Nothing.IS_REFUSED,
    ),
    TopicPolicy("deduplicationEnabled", "deduplicationEnabled", check_boolean, lambda rules: rules.deduplication),
)


async def _existing_topic(request: Request) -> TopicName:
    refuse_parameter(request.query_params, "isGlobal")
    broker, name = context_of(request).broker, topic_of(request)
    if name.is_partition:
        raise PreconditionFailedError("Not allowed to set/get topic policy for a partition")
    if not name.is_persistent:
        raise NotBuiltError(NON_PERSISTENT_POLICIES)
    if not await broker.topic_exists(name) and not await is_partitioned(broker, name):
        raise await missing_topic(broker, name)
    return name


async def _document(request: Request, name: TopicName) -> Document:
    found = await context_of(request).broker.policies.topics.get(name)
    return dict(found.document) if found is not None else {}


async def _set(request: Request, name: TopicName, key: str, value: Json) -> Response:
    await context_of(request).broker.policies.topics.update(name, lambda document: {**document, key: value})
    return no_content()


async def _value(request: Request, parameter: str) -> Json:
    """What is to be set; None: nothing is to be set any more."""
    if not parameter:
        return await json_body(request)
    text = request.query_params.get(parameter, "")
    if not text:
        return None
    try:
        if text == text.strip():
            return number_of(text, parameter)
    except BodyError:
        pass
    # As for a path that does not exist, as in Pulsar.
    raise RestError(404, f"{parameter} must be a whole number, not {shown(text)}")


def _routes_of(policy: TopicPolicy) -> list[Route]:
    async def read(request: Request) -> Response:
        name = await _existing_topic(request)
        value = (await _document(request, name)).get(policy.key)
        if value is None and flag(request, "applied"):
            value = policy.applied(await context_of(request).broker.policies.rules(name))
        if value is None and policy.nothing is Nothing.IS_REFUSED:
            return no_content()
        return nothing_set() if value is None else json_response(value)

    async def write(request: Request) -> Response:
        name, value = await _existing_topic(request), await _value(request, policy.parameter)
        if value is None and policy.nothing is Nothing.CHANGES_NOTHING:
            return no_content()
        if value is not None or policy.nothing is Nothing.IS_REFUSED:
            value = policy.check(value)
        return await _set(request, name, policy.key, value)

    async def remove(request: Request) -> Response:
        return await _set(request, await _existing_topic(request), policy.key, None)

    path, name = f"{TOPIC_PATH}/{policy.path}", policy_name(policy.path)
    return [
        Route(path, read, methods=["GET"], needs=reading(name)),
        Route(path, write, methods=["POST"], needs=writing(name)),
        Route(path, remove, methods=["DELETE"], needs=writing(name)),
    ]


async def get_delayed_delivery(request: Request) -> Response:
    """Whether messages wait for their delivery time, and how exactly."""
    name = await _existing_topic(request)
    document = await _document(request, name)
    is_active, tick = document.get("delayedDeliveryEnabled"), document.get("delayedDeliveryTickTimeMillis")
    if is_active is None:
        if not flag(request, "applied"):
            return nothing_set()
        rules = await context_of(request).broker.policies.rules(name)
        is_active, tick = rules.delays, rules.delay_tick_ms
    return json_response({"tickTime": tick, "active": is_active, "maxDeliveryDelayInMillis": 0})


async def set_delayed_delivery(request: Request) -> Response:
    """Set both."""
    name, body = await _existing_topic(request), await json_body(request)
    if body is None:
        return await _change_delayed_delivery(request, name, None, None)
    value = check_delayed_delivery(body)
    return await _change_delayed_delivery(request, name, value["active"], value["tickTime"])


async def remove_delayed_delivery(request: Request) -> Response:
    """What the namespace says holds again."""
    return await _change_delayed_delivery(request, await _existing_topic(request), None, None)


async def _change_delayed_delivery(request: Request, name: TopicName, is_active: Json, tick: Json) -> Response:
    def apply(document: Document) -> Document:
        return {**document, "delayedDeliveryEnabled": is_active, "delayedDeliveryTickTimeMillis": tick}

    await context_of(request).broker.policies.topics.update(name, apply)
    return no_content()


async def get_quotas(request: Request) -> Response:
    """Quota type -> quota; an empty object if none is set."""
    name = await _existing_topic(request)
    quotas = _quotas(await _document(request, name))
    if not quotas and flag(request, "applied"):
        rules = await context_of(request).broker.policies.rules(name)
        quotas = {
            kind: _quota_document(kind, quota)
            for kind, quota in ((SIZE_QUOTA, rules.size_quota), (AGE_QUOTA, rules.age_quota))
            if quota is not None
        }
    return json_response(quotas)


async def set_quota(request: Request) -> Response:
    """Set the quota of ``backlogQuotaType``."""
    name, kind = await _existing_topic(request), quota_type(request)
    quota = check_quota(await json_body(request), name.namespace)
    await _change_quotas(request, name, lambda quotas: {**quotas, kind: quota})
    return no_content()


async def remove_quota(request: Request) -> Response:
    """Remove the quota of ``backlogQuotaType``."""
    name, kind = await _existing_topic(request), quota_type(request)
    await _change_quotas(request, name, lambda quotas: {k: v for k, v in quotas.items() if k != kind})
    return no_content()


async def _change_quotas(request: Request, name: TopicName, change: Callable[[Document], Document]) -> None:
    def apply(document: Document) -> Document:
        return {**document, "backLogQuotaMap": change(_quotas(document)) or None}

    await context_of(request).broker.policies.topics.update(name, apply)


def _quotas(document: Document) -> Document:
    value = document.get("backLogQuotaMap")
    return dict(value) if isinstance(value, dict) else {}


def _quota_document(kind: str, quota: Quota) -> Document:
    size, seconds = (quota.limit, -1) if kind == SIZE_QUOTA else (-1, quota.limit // 1000)
    return {"limit": size, "limitSize": size, "limitTime": seconds, "policy": quota.action.value}


ROUTES = [
    *(route for policy in POLICIES for route in _routes_of(policy)),
    Route(
        f"{TOPIC_PATH}/delayedDelivery",
        get_delayed_delivery,
        methods=["GET"],
        needs=reading(PolicyName.DELAYED_DELIVERY),
    ),
    Route(
        f"{TOPIC_PATH}/delayedDelivery",
        set_delayed_delivery,
        methods=["POST"],
        needs=writing(PolicyName.DELAYED_DELIVERY),
    ),
    Route(
        f"{TOPIC_PATH}/delayedDelivery",
        remove_delayed_delivery,
        methods=["DELETE"],
        needs=writing(PolicyName.DELAYED_DELIVERY),
    ),
    Route(f"{TOPIC_PATH}/backlogQuotaMap", get_quotas, methods=["GET"], needs=reading(PolicyName.BACKLOG)),
    Route(f"{TOPIC_PATH}/backlogQuota", set_quota, methods=["POST"], needs=writing(PolicyName.BACKLOG)),
    Route(f"{TOPIC_PATH}/backlogQuota", remove_quota, methods=["DELETE"], needs=writing(PolicyName.BACKLOG)),
]
