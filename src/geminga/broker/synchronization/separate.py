"""Clusters whose configuration is kept alike by a topic, as far as topics are concerned.

Each has a store of its own, so nobody is asked before a change: what others need of a topic they hold themselves
(``guard.py``). What a broker removes by itself, because nobody uses it here, would go everywhere: it stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from geminga.broker.geo.residence import other_homes

if TYPE_CHECKING:
    from geminga.broker.resources import Resources
    from geminga.model.topic_name import TopicName


class SeparateStores:
    """Implements :class:`geminga.broker.registry.ports.SharingClusters`."""

    __slots__ = ("_cluster", "_resources")

    def __init__(self, cluster: str, resources: Resources) -> None:
        """``cluster``: this one."""
        self._cluster = cluster
        self._resources = resources

    async def others(self, namespace: str) -> Sequence[str]:
        """See ``SharingClusters.others``."""
        policies = await self._resources.namespaces.find(namespace)
        return [] if policies is None else other_homes(policies, self._cluster)

    async def holders(self, name: TopicName) -> Sequence[str]:
        """See ``SharingClusters.holders``: whoever has partitions keeps their number."""
        del name
        return []

    async def make_partitions(self, name: TopicName, partitions: int) -> None:
        """See ``SharingClusters.make_partitions``: each makes its own before it takes over their number."""
        del name, partitions
