"""Whether topics of this cluster move to another one, and where that is (blue and green, Pulsar's PIP-188).

The cluster's policies (``/admin/clusters/<cluster>/policies``) have the other one's addresses, and say whether all of
its topics move; the policies of a namespace say so of its own (``migrated``). They are read with the first topic,
and watched: topics follow as they do policies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.broker.policies.core.record_rows import MIGRATED
from geminga.broker.resources.clusters import Clusters, policies_path
from geminga.model.errors import StorageError
from geminga.runtime import Part, get_logger, spawn

if TYPE_CHECKING:
    from geminga.broker.core.coercion import Document
    from geminga.broker.policies.rules import TopicRules
    from geminga.broker.topic.base import Topic
    from geminga.metadata.ports import MetadataStore, Notification
    from geminga.model.topic_name import TopicName

#: Members of Pulsar's ``ClusterUrl``.
URLS: Final = ("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls")

_log = get_logger(__name__)


class MovedTo(NamedTuple):
    """Addresses of the other cluster; empty: there is none of that kind."""

    service_url: str
    service_url_tls: str
    broker_url: str
    broker_url_tls: str


class Moves:
    """See the module; one of a broker."""

    __slots__ = (
        "_cluster",
        "_clusters",
        "_follow",
        "_is_known",
        "_loaded",
        "_lock",
        "_metadata",
        "_part",
        "_policies",
        "_watched",
        "changes",
    )

    def __init__(
        self,
        metadata: MetadataStore,
        clusters: Clusters,
        cluster: str,
        loaded: Mapping[str, Topic],
        follow: Callable[[str], Awaitable[None]],
        part: Part,
    ) -> None:
        """``follow``: loaded topics of a namespace have what their policies say by now."""
        self._metadata = metadata
        self._clusters = clusters
        self._cluster = cluster
        self._loaded = loaded
        self._follow = follow
        self._part = part
        #: As they were read last, and whether that is what is stored now.
        self._policies: Document = {}
        self._is_known = False
        #: How often they changed since they were watched.
        self.changes = 0
        self._watched = False
        self._lock = asyncio.Lock()

    def around(
        self, rules: Callable[[TopicName], Awaitable[TopicRules]]
    ) -> Callable[[TopicName], Awaitable[TopicRules]]:
        """The same rules of topics, once it is known whether they move. Raises StorageError."""

        async def known(name: TopicName) -> TopicRules:
            if not self._is_known:
                await self._read()
            return await rules(name)

        return known

    def place_of(self, rules: TopicRules) -> MovedTo | None:
        """Where a topic with these rules moves to; None: it stays, as where clients have no address."""
        urls = self._policies.get("migratedClusterUrl")
        if not isinstance(urls, dict) or not (self._policies.get("migrated") is True or rules[MIGRATED]):
            return None
        place = MovedTo(*(f"{urls.get(key) or ''}" for key in URLS))
        return place if place.broker_url or place.broker_url_tls else None

    async def _read(self) -> None:
        async with self._lock:
            if not self._watched:
                self._watched = True
                self._metadata.watch_node(policies_path(self._cluster), self._on_change)
            while not self._is_known:
                # Not known until it is read: a topic that loads meanwhile waits, and does not go by what was.
                changes = self.changes
                self._policies = await self._clusters.policies(self._cluster) or {}
                self._is_known = changes == self.changes

    def _on_change(self, _: Notification) -> None:
        self._is_known = False
        self.changes += 1
        spawn(self._apply(), name="topics hear whether they move", part=self._part)

    async def _apply(self) -> None:
        for namespace in sorted({topic.name.namespace for topic in self._loaded.values()}):
            try:
                await self._follow(namespace)
            except StorageError as error:
                _log.warning("topics of %s do not know yet whether they move: %s", namespace, error)
