"""Other clusters, as a broker's process reaches them: to copy to, to ask, to share a configuration with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminga.app.configuration.config import Config
    from geminga.broker.geo.clusters import OtherClusters
    from geminga.broker.geo.sharing import Sharing
    from geminga.broker.peers.http_client import PeerAnswer
    from geminga.broker.resources import Resources
    from geminga.runtime import Runtime


class LateClusters:
    """Loaded with the first topic that may be copied, or the first question."""

    __slots__ = ("_clusters", "_config", "_resources", "_runtime")

    def __init__(self, runtime: Runtime, resources: Resources, config: Config) -> None:
        self._runtime = runtime
        self._resources = resources
        self._config = config
        self._clusters: OtherClusters | None = None

    def open(self) -> OtherClusters:
        """Where topics may be copied to."""
        if self._clusters is None:
            from geminga.broker.geo.clusters import OtherClusters
            from geminga.broker.peers.links import PLAIN

            links = PLAIN if self._config.links is None else self._config.links.links()
            self._clusters = OtherClusters(self._runtime, self._resources, self._config.broker, links=links)
        return self._clusters

    def sharing(self) -> Sharing:
        """Those whose configuration is in the same store."""
        from geminga.broker.geo.sharing import Sharing

        return Sharing(self._config.server.cluster_name, self._resources, self._call)

    async def ask(self, cluster: str, path: str) -> PeerAnswer:
        """The answer of a cluster's administration to a GET. Raises UnavailableError, MetadataError."""
        return await self.open().answer(cluster, path)

    async def _call(self, cluster: str, method: str, path: str, body: bytes) -> PeerAnswer:
        return await self.open().answer(cluster, path, method, body)

    async def close(self) -> None:
        """Links to them end."""
        if self._clusters is not None:
            await self._clusters.close()
