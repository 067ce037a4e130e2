"""Which topics and subscriptions a path means."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.administration.services import AdministeredTopics
from geminga.broker.rest.calls.requests import RestError, context_of, namespace_of, path_text, topic_of
from geminga.model.errors import NotAllowedError, NotFoundError, SubscriptionNotFoundError, TopicNotFoundError
from geminga.model.topic_name import PARTITION_SUFFIX, TopicName

if TYPE_CHECKING:
    from geminga.broker.rest.calls.context import RestContext
    from geminga.broker.subscription.subscription import Subscription
    from geminga.broker.topic.base import Topic
    from geminga.broker.topic.persistent import PersistentTopic

#: Names encoded at once.
NAMES_PER_STEP: Final = 2000
#: Partitions of a topic from which on those that nobody used are left out where they have nothing to tell: each would
#: have to be loaded for that.
UNUSED_LOADED_MAX: Final = 1000


async def partitions_or_self(
    topics: AdministeredTopics, name: TopicName, *, used: bool = False
) -> AsyncIterator[TopicName]:
    """The partitions of a partitioned topic, or the topic itself; in turns of the loop, until the broker stops.

    ``used``: those that nobody ever used have nothing to tell, and are left out where there are many. Raises
    TopicNotServedError, before the first of them, where one is another broker's.
    """
    found = None if name.is_partition else await topics.resources.partitioned_topics.find(name)
    if found is None:
        yield name
        return
    steps = topics.steps()
    for index in range(found.partitions):
        await steps.next()
        await topics.registry.require_here(name.with_partition(index))
    used = used and found.partitions > UNUSED_LOADED_MAX
    for index in range(found.partitions):
        await steps.next()
        partition = name.with_partition(index)
        if not used or await topics.partitions.is_used(partition):
            yield partition


async def names_response(topics: AdministeredTopics, names: list[str]) -> Response:
    """Names as a JSON array, encoded in turns of the loop."""
    steps = topics.steps()
    parts = []
    for start in range(0, len(names), NAMES_PER_STEP):
        await steps.next()
        parts.append(json.dumps(names[start : start + NAMES_PER_STEP], separators=(",", ":"))[1:-1])
    return Response(f"[{','.join(parts)}]", media_type="application/json")


async def is_partitioned(topics: AdministeredTopics, name: TopicName) -> bool:
    """Whether ``name`` is that of a partitioned topic."""
    return not name.is_partition and await topics.resources.partitioned_topics.find(name) is not None


async def refuse_partitioned(topics: AdministeredTopics, name: TopicName, refusal: str) -> None:
    """Raise :class:`NotAllowedError` (405) if ``name`` is a partitioned topic."""
    if await is_partitioned(topics, name):
        raise NotAllowedError(refusal)


def refuse_partition_name(name: TopicName) -> None:
    """Raise :class:`RestError` (412) for the name of a partition where that of a whole topic belongs."""
    if PARTITION_SUFFIX in name.local_name:
        raise RestError(412, f"Partitioned Topic Name should not contain '{PARTITION_SUFFIX}'")


async def missing_topic(topics: AdministeredTopics, name: TopicName) -> NotFoundError | TopicNotFoundError:
    """Why there is no such topic, in Pulsar's words."""
    if await topics.resources.namespaces.find(name.namespace) is None:
        return NotFoundError(f"Namespace not found{name.missing_hint}")
    if name.is_partition:
        if await topics.resources.partitioned_topics.find(name.partitioned_topic) is not None:
            return TopicNotFoundError("Topic partitions were not yet created")
        return TopicNotFoundError(f"Partitioned Topic not found: {name} has zero partitions")
    return TopicNotFoundError(f"Topic {name} not found")


async def missing_namespace(context: RestContext, namespace: str, missing: str) -> NotFoundError:
    """Why there is no such namespace: its tenant is missing, or ``missing``."""
    # Pulsar says so only where authentication is on; it is the more helpful of the two.
    is_tenant = await context.resources.tenants.exists(namespace.partition("/")[0])
    return NotFoundError(missing if is_tenant else "Tenant does not exist")


async def require_namespace(topics: AdministeredTopics, name: TopicName) -> None:
    """Raise :class:`NotFoundError` if the topic's namespace is not there."""
    if await topics.resources.namespaces.find(name.namespace) is None:
        raise NotFoundError(f"Namespace not found{name.missing_hint}")


async def require_topic(topics: AdministeredTopics, name: TopicName) -> None:
    """Raise what :func:`missing_topic` gives unless the topic is there, partitioned or not; it is not loaded."""
    if not await topics.registry.exists(name) and not await is_partitioned(topics, name):
        raise await missing_topic(topics, name)


async def require_named(request: Request) -> None:
    """Raise NotFoundError if the cluster, namespace or topic that the path names is not there; RestError (412)."""
    context, named = context_of(request), request.path_params
    if "topic" in named:
        await require_topic(context.topics, topic_of(request))
    elif "namespace" in named:
        namespace = namespace_of(request)
        if await context.resources.namespaces.find(namespace) is None:
            raise await missing_namespace(context, namespace, "Namespace does not exist")
    elif "cluster" in named:
        await context.resources.clusters.get(path_text(request, "cluster"))


async def existing_topic(topics: AdministeredTopics, name: TopicName) -> Topic:
    """The loaded topic; raises what :func:`missing_topic` gives (404)."""
    # A non-persistent topic would be made by being looked at.
    if not name.is_persistent and await is_partitioned(topics, name):
        raise TopicNotFoundError(f"Topic {name} not found")
    try:
        return await topics.registry.get(name, create=False, is_for_client=False)
    except TopicNotFoundError as error:
        raise await missing_topic(topics, name) from error


async def persistent_topic(topics: AdministeredTopics, name: TopicName, what: str = "This") -> PersistentTopic:
    """The loaded topic; raises what is raised for a missing one, NotAllowedError (405) for a non-persistent one."""
    topic = await existing_topic(topics, name)
    # It is there since the topic is; who lists names has no need of it.
    from geminga.broker.topic.persistent import PersistentTopic

    if not isinstance(topic, PersistentTopic):
        raise NotAllowedError(f"{what} on a non-persistent topic is not allowed")
    return topic


async def subscription_of(
    topics: AdministeredTopics, name: TopicName, subscription: str, what: str = ""
) -> Subscription:
    """The subscription; raises SubscriptionNotFoundError (404), also for what a non-persistent topic has, unless
    ``what`` is to be done is not allowed there (405)."""
    topic = await (persistent_topic(topics, name, what) if what else existing_topic(topics, name))
    from geminga.broker.subscription.subscription import Subscription

    found = topic.subscriptions.get(subscription)
    if not isinstance(found, Subscription):
        raise no_subscription(name, subscription)
    return found


def no_subscription(name: TopicName, subscription: str) -> SubscriptionNotFoundError:
    """The error that says so."""
    return SubscriptionNotFoundError(f"Subscription {subscription} not found for topic {name}")
