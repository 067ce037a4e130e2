"""Deleting a namespace with everything in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from geminga.broker.administration.services import AdministeredTopics
from geminga.broker.registry.namespaces import TopicMode
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.model.errors import ConflictError, NotFoundError, PreconditionFailedError, TopicNotFoundError
from geminga.model.topic_name import SYSTEM_NAMESPACE, TopicName

if TYPE_CHECKING:
    from geminga.broker.resources import Policies
    from geminga.broker.rest.calls.context import RestContext

#: How often a deletion by force marks a namespace that another broker serves again since it refused an unforced one.
MARKS_MAX: Final = 10


def home_elsewhere(context: RestContext, namespace: str, policies: Policies) -> str:
    """The cluster that is to delete a namespace of policies that clusters share; empty: this one.

    As in Pulsar 4.2.4 a namespace goes when it lives in one cluster. Raises PreconditionFailedError.
    """
    clusters = policies.replication_clusters
    if len(clusters) > 1 or len(policies.allowed_clusters) > 1 or (context.shares_configuration and not clusters):
        raise PreconditionFailedError(
            f"Cannot delete the global namespace {namespace}. There are still more than one replication clusters "
            "configured or replication clusters is empty."
        )
    if not context.shares_configuration or clusters[0] == context.cluster:
        # Where nothing is shared these policies are this cluster's own, and so is what is left here.
        return ""
    return clusters[0]


async def topics_of_namespace(
    topics: AdministeredTopics, namespace: str, *, has_system: bool = False
) -> list[TopicName]:
    """Every topic in the namespace, partitions one by one; ``has_system``: also the broker's own."""
    names = await topics.registry.list(namespace, mode=TopicMode.ALL, has_system=has_system)
    return [TopicName.parse(name) for name in names]


async def partitioned_topics_of_namespace(topics: AdministeredTopics, namespace: str) -> list[TopicName]:
    """Every partitioned topic of the namespace, of both domains."""
    resources = topics.resources.partitioned_topics
    names = [*await resources.list(namespace), *await resources.list(namespace, "non-persistent")]
    return [TopicName.parse(name) for name in names]


async def delete_partitioned(topics: AdministeredTopics, name: TopicName) -> None:
    """Delete a partitioned topic of a namespace that goes, by force; one that is gone meanwhile is as good."""
    try:
        await topics.partitions.delete(name, force=True, is_namespace_going=True)
    except (TopicNotFoundError, NotFoundError):
        if await topics.resources.partitioned_topics.find_stored(name) is not None:
            raise


async def delete_topic(topics: AdministeredTopics, name: TopicName) -> None:
    """The same of a topic without partitions or of one partition, here or at the broker that serves it."""
    try:
        if topics.elsewhere is not None and not await topics.elsewhere.is_here(name):
            await topics.elsewhere.delete(name, force=True)
        else:
            await topics.registry.delete(name, force=True, is_namespace_going=True)
    except (TopicNotFoundError, NotFoundError):
        if await topics.registry.exists(name):
            raise


async def delete_empty_namespace(topics: AdministeredTopics, namespace: str) -> None:
    """Raises ConflictError if it has topics, also those that come while it is looked at; then nothing is deleted, and
    it is served: also one that a deletion which was cut short left marked. NotFoundError if it is not there, or another
    deletion was under way here, whose end is waited for."""
    async with topics.partitions.deletion_of(namespace):
        await _delete_empty(topics, namespace)


async def _delete_empty(topics: AdministeredTopics, namespace: str) -> None:
    for is_second in (False, True):
        if is_second:
            await _mark_deleted(topics, namespace, True)
        await _require_empty(topics, namespace)
    await _delete_all(topics, namespace, is_forced=False)


async def _require_empty(topics: AdministeredTopics, namespace: str) -> None:
    """Raises ConflictError; the namespace is served then."""
    if await topics_of_namespace(topics, namespace) or await partitioned_topics_of_namespace(topics, namespace):
        if (await topics.resources.namespaces.get(namespace)).is_deleted:
            await _mark_deleted(topics, namespace, False)
        raise ConflictError("Cannot delete non empty namespace")


async def delete_namespace_and_topics(topics: AdministeredTopics, namespace: str) -> None:
    """Delete all topics by force, then the namespace.

    The namespace is marked as deleted first, so that clients that reconnect do not bring topics back. Cut short, it
    is finished by the next call; refused on another broker meanwhile, an unforced one that has it served again is made
    up for. Raises ConflictError if its policies are changed meanwhile, or it has the coordinators of transactions;
    TopicNotServedError, with nothing done, if a broker has one of its topics that can not be asked;
    NotFoundError as :func:`delete_empty_namespace`.
    """
    async with topics.partitions.deletion_of(namespace):
        await _delete_all(topics, namespace, is_forced=True)


async def _delete_all(topics: AdministeredTopics, namespace: str, *, is_forced: bool) -> None:
    steps = topics.steps()
    if namespace == SYSTEM_NAMESPACE and await topics.resources.partitioned_topics.find_stored(COORDINATORS_TOPIC):
        raise ConflictError(f"{namespace} has the cluster's transaction coordinators, and stays")
    for name in await topics_of_namespace(topics, namespace, has_system=True) if topics.elsewhere is None else ():
        await steps.next()
        await topics.registry.require_here(name)
    for mark in range(1, MARKS_MAX + 1):
        marked = await _mark_deleted(topics, namespace, True)
        try:
            await _delete_marked(topics, namespace, marked.version, is_forced=is_forced)
        except (ConflictError, NotFoundError, TopicNotFoundError):
            found = await topics.resources.namespaces.find(namespace)
            is_served_again = (
                found is not None
                and found.version != marked.version
                and {**found.document, "deleted": True} == marked.document
            )
            if not is_forced or not is_served_again or mark == MARKS_MAX:
                raise
        else:
            return


async def _delete_marked(topics: AdministeredTopics, namespace: str, version: int, *, is_forced: bool) -> None:
    steps = topics.steps()
    partitioned = await partitioned_topics_of_namespace(topics, namespace)
    own = None if is_forced else await topics_of_namespace(topics, namespace, has_system=True)
    if own is not None:
        # Another broker may serve it again, and what clients made there is not this one's to delete.
        await _require_empty(topics, namespace)
    for name in partitioned:
        await steps.next()
        await delete_partitioned(topics, name)
    # Policies are events in a topic of the namespace and go with it, schemas all together: that no topic writes what
    # is deleted next is why one that is there can always be deleted.
    for name in await topics_of_namespace(topics, namespace, has_system=True) if own is None else own:
        await steps.next()
        await delete_topic(topics, name)
    await topics.registry.delete_logs(namespace)
    await topics.forget_namespace(namespace)
    # While it is marked nothing new comes, and what is cut short here is finished by the next call.
    await topics.resources.remove_remains(namespace)
    await topics.resources.namespaces.delete(namespace, expected_version=version)


async def _mark_deleted(topics: AdministeredTopics, namespace: str, is_deleted: bool) -> Policies:
    """The policies that say so; on return nothing goes by what was remembered before."""
    policies = await topics.resources.namespaces.set_policy(namespace, "deleted", is_deleted)
    topics.forget_policies(namespace)
    await topics.partitions.until_done(namespace)
    await topics.registry.until_loaded(*(f"{domain}://{namespace}/" for domain in ("persistent", "non-persistent")))
    return policies
