"""Clusters that share their configuration (``configurationMetadataStoreUrl``), as far as topics are concerned.

How many partitions a topic has is one number for all of them, and its partitions are each cluster's own. So whoever
changes the number asks the others before: what is new is made there first, with its subscriptions, and it goes with
the last cluster that has partitions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from geminga.broker.geo.residence import MAKE_ONLY, other_homes
from geminga.broker.peers.topics import topic_path
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import PARTITION_SUFFIX

if TYPE_CHECKING:
    from geminga.broker.peers.http_client import PeerAnswer
    from geminga.broker.resources import Resources
    from geminga.model.topic_name import TopicName

    #: Cluster, method, path, body.
    AskCluster = Callable[[str, str, str, bytes], Awaitable[PeerAnswer]]


class Sharing:
    """Implements :class:`geminga.broker.registry.ports.SharingClusters`."""

    __slots__ = ("_ask", "_cluster", "_resources")

    def __init__(self, cluster: str, resources: Resources, ask: AskCluster) -> None:
        """``cluster``: this one. ``ask``: the administration of another one; raises UnavailableError."""
        self._cluster = cluster
        self._resources = resources
        self._ask = ask

    async def others(self, namespace: str) -> list[str]:
        """See ``SharingClusters.others``; as it is stored now."""
        policies = await self._resources.namespaces.find(namespace)
        return [] if policies is None else other_homes(policies, self._cluster)

    async def holders(self, name: TopicName) -> list[str]:
        """See ``SharingClusters.holders``."""
        found = []
        for cluster in await self.others(name.namespace):
            path = f"/admin/v2/{name.domain}/{name.namespace}?includeSystemTopic=true"
            answer = await self._ask(cluster, "GET", path, b"")
            if not answer.is_good:
                raise _refusal(cluster, f"tell topics of {name.namespace}", answer)
            names = answer.json()
            if not isinstance(names, list):
                raise UnavailableError(f"cluster {cluster} does not tell topics of {name.namespace}: {names!r:.100}")
            if any(isinstance(each, str) and each.startswith(f"{name}{PARTITION_SUFFIX}") for each in names):
                found.append(cluster)
        return found

    async def make_partitions(self, name: TopicName, partitions: int) -> None:
        """See ``SharingClusters.make_partitions``."""
        path = f"{topic_path(name)}/partitions?updateLocalTopicOnly=true&{MAKE_ONLY}=true"
        for cluster in await self.others(name.namespace):
            answer = await self._ask(cluster, "POST", path, str(partitions).encode())
            if not answer.is_good:
                raise _refusal(cluster, f"make partitions of {name}", answer)


def _refusal(cluster: str, what: str, answer: PeerAnswer) -> UnavailableError:
    return UnavailableError(f"cluster {cluster} shares the configuration and does not {what}: {answer.reason}")
