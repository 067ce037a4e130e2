"""Whether a namespace in another cluster is as it is here, asked of that cluster's administration.

Asked for with ``compareTopicPartitions=true`` (Pulsar's own tool does, unless told otherwise) before messages are
copied there: what is found here is told to who asks, and not later by a replicator that stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from geminga.broker.geo.core.alike import NON_PARTITIONED, NamespaceTopics, made_by, mismatches
from geminga.broker.peers.topics import topic_path
from geminga.model.errors import ConflictError, PreconditionFailedError, UnavailableError
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.core.coercion import Json
    from geminga.broker.peers.http_client import PeerAnswer

    Ask = Callable[[str], Awaitable[PeerAnswer]]

#: Topics that a cluster is asked for at the same time: the others would wait for their turn within the time of their
#: request, and so would who wants to copy something there.
COUNTS_AT_ONCE: Final = 16


async def require_alike(ask: Ask, cluster: str, namespace: str, here: NamespaceTopics) -> None:
    """Raise ConflictError, which says what differs, unless it is; UnavailableError where ``cluster`` does not tell.

    ``ask``: the answer of that cluster to a GET of a path. A namespace that does not live there is copied there by
    nobody, and nothing is compared.
    """
    answer = await ask(f"/admin/v2/namespaces/{namespace}")
    if answer.status == HTTPStatus.NOT_FOUND:
        raise ConflictError(
            f"Failed to check auto-topic creation policy for namespace '{namespace}' between local cluster and remote "
            f"cluster '{here.cluster}' -> '{cluster}'. Please ensure the namespace exists on the remote side."
        )
    policies = _object(_good(answer, cluster, f"policies of {namespace}"))
    if cluster not in (*_texts(policies.get("replication_clusters")), *_texts(policies.get("allowed_clusters"))):
        return
    found = mismatches(namespace, here, await _topics_there(ask, cluster, namespace, here, policies))
    if found:
        more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
        raise ConflictError(found[0] + more)


async def require_same_partitions(ask: Ask, cluster: str, topic: str, partitions: int) -> None:
    """Raise PreconditionFailedError where a topic that has ``partitions`` here has others there.

    One that is not there is made so by the first replicator. Raises UnavailableError where ``cluster`` does not tell.
    """
    found = await _count(ask, cluster, topic)
    if found is not None and found != partitions:
        raise PreconditionFailedError(
            f"There is an exists topic {topic} with different partitions {found} on the remote cluster {cluster}, you "
            f"want to create it with partitions {partitions}"
        )


async def _topics_there(
    ask: Ask, cluster: str, namespace: str, here: NamespaceTopics, policies: Mapping[str, Json]
) -> NamespaceTopics:
    """The other cluster's, as far as topics that are here, too."""
    path = f"/admin/v2/persistent/{namespace}"
    whole = _texts(_good(await ask(f"{path}/partitioned?includeSystemTopic=true"), cluster, "partitioned topics"))
    single = _texts(_good(await ask(f"{path}?includeSystemTopic=true"), cluster, "topics"))
    partitions = dict.fromkeys((name for name in single if not TopicName.parse(name).is_partition), 0)
    counted = [name for name in whole if name in here.partitions]
    for start in range(0, len(counted), COUNTS_AT_ONCE):
        some = counted[start : start + COUNTS_AT_ONCE]
        counts = await asyncio.gather(*(_count(ask, cluster, name) for name in some))
        # One that went meanwhile will be made anew.
        partitions |= {name: count for name, count in zip(some, counts, strict=True) if count is not None}
    keys = _object(_good(await ask("/admin/v2/brokers/configuration/runtime"), cluster, "its configuration"))
    broker = f"{keys.get('allowAutoTopicCreationType') or NON_PARTITIONED}", f"{keys.get('defaultNumPartitions')}"
    if not broker[1].isdecimal():
        raise UnavailableError(f"cluster {cluster}: its defaultNumPartitions is {broker[1]}, which is no number")
    made = made_by(policies.get("autoTopicCreationOverride"), broker[0], int(broker[1]))
    return NamespaceTopics(cluster, partitions, *made)


async def _count(ask: Ask, cluster: str, topic: str) -> int | None:
    """None: there is no such topic."""
    path = f"{topic_path(TopicName.parse(topic))}/partitions?checkAllowAutoCreation=false"
    answer = await ask(path)
    if answer.status == HTTPStatus.NOT_FOUND:
        return None
    count = _object(_good(answer, cluster, f"partitions of {topic}")).get("partitions")
    return count if isinstance(count, int) else 0


def _good(answer: PeerAnswer, cluster: str, what: str) -> Json:
    if not answer.is_good:
        raise UnavailableError(f"cluster {cluster} does not tell {what}: {answer.reason}")
    return answer.json()


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _texts(value: Json) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
