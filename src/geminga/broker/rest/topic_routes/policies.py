"""Policies of a topic, one by one: read, set, remove.

Reading one that is not set here answers 200 without a body; with ``applied=true`` what holds is given: the topic's,
else the topic's for all clusters, else the namespace's, else the broker's. ``isGlobal=true`` asks for, and sets, those
for all clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import PolicyName, reading, writing
from geminga.broker.administration.services import AdministeredTopics
from geminga.broker.core.coercion import BodyError, number_of, shown
from geminga.broker.peers.topics import policies_topic
from geminga.broker.policies.core.deletion_rows import BACKLOG_QUOTAS
from geminga.broker.policies.core.rate_rows import SUBSCRIPTION_DISPATCH_RATE
from geminga.broker.policies.core.rates import dispatch_rate_of
from geminga.broker.policies.core.record_rows import REPLICATION_CLUSTERS_LEVEL
from geminga.broker.policies.core.row import Nothing, PolicyRow, Rest, TopicLevel, served
from geminga.broker.policies.core.rows import ROWS
from geminga.broker.policies.core.storage_rows import SHADOW_TOPICS
from geminga.broker.policies.core.values import check_dispatch_rate, check_quota
from geminga.broker.policies.rules import AGE_QUOTA, SIZE_QUOTA, Levels, Quota
from geminga.broker.resources.documents import Document, Json
from geminga.broker.resources.topic_policies import NO_TOPIC_POLICIES
from geminga.broker.rest.calls.filter_names import check_filters_known
from geminga.broker.rest.calls.owners import is_authoritative
from geminga.broker.rest.calls.requests import (
    NO_BODY,
    RestError,
    context_of,
    flag,
    json_body,
    json_response,
    no_content,
    nothing_set,
    refuse_other_types,
    subscription_name,
    topic_of,
)
from geminga.broker.rest.calls.routing import TOPIC_PATH, Route, policy_routes
from geminga.broker.rest.calls.targets import is_partitioned, require_topic
from geminga.broker.rest.namespace_routes.policies import quota_type
from geminga.broker.rest.namespace_routes.replication import (
    clusters_in,
    require_allowed,
    require_known,
    require_no_peers,
    require_usable,
)
from geminga.broker.rest.topic_routes.shadows import check_shadows
from geminga.model.errors import PreconditionFailedError
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.rest.calls.context import RestContext

_SINGLE_RATE: Final = f"{TOPIC_PATH}/{{form_subscription}}/dispatchRate"
_SINGLE: Final = "subscriptionPolicies"
_REPLICATION: Final = f"{TOPIC_PATH}/replication"


async def whose(request: Request) -> TopicName | None:
    """Whose owner answers: that of the events, who keeps all policies of the namespace.

    Where that is a broker of another make, the topic's own, as in Pulsar; of a partitioned topic anybody.
    """
    topics, name = context_of(request).topics, topic_of(request)
    events, elsewhere = policies_topic(name), topics.elsewhere
    if elsewhere is None:
        return events
    if is_authoritative(request) and await elsewhere.is_here(name):
        # Sent by who keeps to Pulsar's rule.
        return None
    if not await elsewhere.is_at_another_make(events):
        return events
    return None if await is_partitioned(topics, name) else name


async def _existing_topic(request: Request) -> TopicName:
    topics, name = context_of(request).topics, topic_of(request)
    if name.is_partition:
        raise PreconditionFailedError("Not allowed to set/get topic policy for a partition")
    if not await _is_loaded_elsewhere(topics, name):
        await require_topic(topics, name)
    return name


async def _is_loaded_elsewhere(topics: AdministeredTopics, name: TopicName) -> bool:
    """Nothing is stored of a topic that is not persistent: there is one while a broker has it."""
    if name.is_persistent or topics.elsewhere is None or await topics.registry.exists(name):
        return False
    if await topics.resources.namespaces.find(name.namespace) is None:
        return False
    return str(name) in await topics.elsewhere.non_persistent(name.namespace)


def _is_global(request: Request) -> bool:
    """Whether policies for all clusters are asked for, which count less than the topic's others."""
    return flag(request, "isGlobal")


async def _document(request: Request, name: TopicName) -> Document:
    found = await context_of(request).policies.topics.get(name, is_exact=True) or NO_TOPIC_POLICIES
    return dict(found.for_all if _is_global(request) else found.document)


async def _levels(request: Request, name: TopicName) -> Levels:
    """What holds; for all clusters: what would where the topic has nothing else."""
    levels = await context_of(request).policies.levels_of(name)
    return levels._replace(topic={}) if _is_global(request) else levels


async def _change(request: Request, name: TopicName, change: Callable[[Document], Document]) -> None:
    await context_of(request).policies.topics.update(name, change, is_global=_is_global(request))


async def _set(request: Request, row: PolicyRow[Any], level: TopicLevel, value: Json) -> Response:
    name = await _existing_topic(request)
    await _change(request, name, lambda document: level.changed(document, value))
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


def routes_of(row: PolicyRow[Any], level: TopicLevel, rest: Rest) -> list[Route]:
    """What a row's level is read, set and removed by."""

    async def read(request: Request) -> Response:
        name = await _existing_topic(request)
        value = level.reported(await _document(request, name))
        if value is None and flag(request, "applied"):
            value = (await _levels(request, name)).merged(row)
        if value is None:
            value = rest.unset
        return nothing_set(rest.unset_status) if value is None else json_response(level.shown(value))

    async def write(request: Request) -> Response:
        await _existing_topic(request)
        if rest.fixed is not None:
            refuse_other_types(request)
        value = await _value(request, rest.parameter) if rest.fixed is None else rest.fixed
        if value is None and rest.nothing is Nothing.CHANGES_NOTHING:
            return no_content()
        if value is None and rest.nothing is Nothing.IS_REFUSED:
            raise RestError(400, NO_BODY)
        if value is not None or rest.nothing is Nothing.IS_CHECKED:
            value = (rest.check or row.check)(value)
            if row.bound is not None:
                row.bound(value, context_of(request).policies.settings)
            check_filters_known(row, value, context_of(request).config.entry_filters_directory)
        if row is SHADOW_TOPICS:
            await check_shadows(context_of(request).topics, topic_of(request), value)
        return await _set(request, row, level, value)

    async def remove(request: Request) -> Response:
        return await _set(request, row, level, None)

    return policy_routes(f"{TOPIC_PATH}/{rest.path}", row.policy, read, write, remove, set_by=rest.set_by)


async def get_quotas(request: Request) -> Response:
    """Quota type -> quota; an empty object if none is set."""
    name = await _existing_topic(request)
    quotas = _quotas(await _document(request, name))
    if not quotas and flag(request, "applied"):
        found = (await _levels(request, name)).value(BACKLOG_QUOTAS)
        quotas = {
            kind: _quota_document(kind, quota)
            for kind, quota in ((SIZE_QUOTA, found.size), (AGE_QUOTA, found.age))
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

    await _change(request, name, apply)


def _quotas(document: Document) -> Document:
    value = document.get("backLogQuotaMap")
    return dict(value) if isinstance(value, dict) else {}


def _quota_document(kind: str, quota: Quota) -> Document:
    size, seconds = (quota.limit, -1) if kind == SIZE_QUOTA else (-1, quota.limit // 1000)
    return {"limit": size, "limitSize": size, "limitTime": seconds, "policy": quota.action.value}


async def get_clusters(request: Request) -> Response:
    """Clusters that have the topic's messages; no body if the topic names none. ``applied``: else its namespace's."""
    name = await _existing_topic(request)
    value = REPLICATION_CLUSTERS_LEVEL.reported(await _document(request, name))
    if value is None and flag(request, "applied"):
        policies = await context_of(request).resources.namespaces.get(name.namespace)
        value = policies.document.get("replication_clusters") or [context_of(request).cluster]
    return nothing_set() if value is None else json_response(value)


async def set_clusters(request: Request) -> Response:
    """This cluster and others, to which the topic's messages are copied from now on."""
    name, local = await _existing_topic(request), context_of(request).cluster
    clusters = clusters_in(await json_body(request))
    if local not in clusters and not _is_global(request):
        raise PreconditionFailedError(
            "Can not remove local cluster from the local topic-level replication clusters policy"
        )
    context = context_of(request)
    if _is_global(request):
        await _require_namespace_wide(context, name.namespace, clusters)
    await require_known(context, clusters)
    await require_no_peers(context, clusters)
    await require_usable(context, name.namespace, clusters)
    policies = await context.resources.namespaces.get(name.namespace)
    allowed = policies.document.get("allowed_clusters")
    require_allowed(allowed if isinstance(allowed, list) else [], name.namespace, clusters)
    present = REPLICATION_CLUSTERS_LEVEL.reported(await _document(request, name))
    known = present if isinstance(present, list) else policies.replication_clusters
    await _require_partitions(context, name, [cluster for cluster in clusters if cluster not in (local, *known)])
    await _change(request, name, lambda document: REPLICATION_CLUSTERS_LEVEL.changed(document, [*clusters]))
    return no_content()


async def _require_namespace_wide(context: RestContext, namespace: str, clusters: Sequence[str]) -> None:
    """Raise PreconditionFailedError (412) where a policy for all clusters would not come to all that it names."""
    reached = (await context.resources.namespaces.get(namespace)).replication_clusters
    if len(reached) < 2:
        raise PreconditionFailedError(
            "Please do not use the global topic level policy when namespace-level replication is not enabled, because "
            "the global level policy relies on namespace-level replication"
        )
    if not set(clusters) <= set(reached):
        raise PreconditionFailedError(
            "The policies at the global topic level will only be copied to the clusters included in the namespace "
            "level replication. Therefore, please do not set the policies including other clusters"
        )


async def _require_partitions(context: RestContext, name: TopicName, clusters: Sequence[str]) -> None:
    """Raise PreconditionFailedError (412) where the topic has others over there, UnavailableError if nobody tells.

    As in Pulsar nobody is asked by a broker that makes no topics there.
    """
    if not clusters or context.ask_cluster is None or not context.config.creates_topics_elsewhere:
        return
    found = await context.resources.partitioned_topics.find(name)
    if found is None:
        return
    from geminga.broker.geo.alike import require_same_partitions  # with the first that asks

    for cluster in clusters:
        await require_same_partitions(partial(context.ask_cluster, cluster), cluster, str(name), found.partitions)


async def remove_clusters(request: Request) -> Response:
    """Those of the namespace hold."""
    name = await _existing_topic(request)
    await _change(request, name, lambda document: REPLICATION_CLUSTERS_LEVEL.changed(document, None))
    return no_content()


async def get_single_rate(request: Request) -> Response:
    """The dispatch rate of one subscription, whether there is such a one or not."""
    name = await _existing_topic(request)
    value = _single_rate(await _document(request, name), subscription_name(request))
    if value is None and flag(request, "applied"):
        value = (await _levels(request, name)).merged(SUBSCRIPTION_DISPATCH_RATE)
    return nothing_set(200) if value is None else json_response(value)


async def set_single_rate(request: Request) -> Response:
    """Set it; nothing, and what limits nothing, changes nothing, as in Pulsar."""
    name = await _existing_topic(request)
    value = await json_body(request)
    rate = None if value is None else check_dispatch_rate(value)
    if dispatch_rate_of(rate) is not None:
        await _change_single_rate(request, name, rate)
    return no_content()


async def remove_single_rate(request: Request) -> Response:
    """Remove it: what holds for all subscriptions holds for this one."""
    await _change_single_rate(request, await _existing_topic(request), None)
    return no_content()


async def _change_single_rate(request: Request, name: TopicName, value: Json) -> None:
    subscription = subscription_name(request)

    def apply(document: Document) -> Document:
        present = document.get(_SINGLE)
        policies: Document = dict(present) if isinstance(present, dict) else {}
        own = policies.pop(subscription, None)
        own = {**(own if isinstance(own, dict) else {}), "dispatchRate": value}
        if any(item is not None for item in own.values()):
            policies[subscription] = own
        return {**document, _SINGLE: policies or None}

    await _change(request, name, apply)


def _single_rate(document: Document, subscription: str) -> Json:
    policies = document.get(_SINGLE)
    own = policies.get(subscription) if isinstance(policies, dict) else None
    return own.get("dispatchRate") if isinstance(own, dict) else None


async def remove_all(request: Request) -> Response:
    """Remove every policy that the topic has of its own; also what was left by one that is gone."""
    await context_of(request).policies.topics.forget_topic(topic_of(request))
    return no_content()


ROUTES = [
    *(route for row, level, rest in served((row, row.topic) for row in ROWS) for route in routes_of(row, level, rest)),
    Route("GET", f"{TOPIC_PATH}/backlogQuotaMap", get_quotas, reading(PolicyName.BACKLOG)),
    Route("POST", f"{TOPIC_PATH}/backlogQuota", set_quota, writing(PolicyName.BACKLOG)),
    Route("DELETE", f"{TOPIC_PATH}/backlogQuota", remove_quota, writing(PolicyName.BACKLOG)),
    Route("GET", _SINGLE_RATE, get_single_rate, reading(PolicyName.RATE)),
    Route("POST", _SINGLE_RATE, set_single_rate, writing(PolicyName.RATE)),
    Route("DELETE", _SINGLE_RATE, remove_single_rate, writing(PolicyName.RATE)),
    Route("GET", _REPLICATION, get_clusters, reading(PolicyName.REPLICATION)),
    Route("POST", _REPLICATION, set_clusters, writing(PolicyName.REPLICATION)),
    Route("DELETE", _REPLICATION, remove_clusters, writing(PolicyName.REPLICATION)),
    Route("DELETE", f"{TOPIC_PATH}/policies", remove_all, writing(PolicyName.ALL)),
]
