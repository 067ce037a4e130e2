"""Other clusters, as a broker's process reaches them: to copy to, to ask, to have one configuration with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from geminga.app.configuration.config import Config
    from geminga.broker.composition.service import Broker
    from geminga.broker.geo.clusters import OtherClusters
    from geminga.broker.ownership.membership import Membership
    from geminga.broker.peers.http_client import PeerAnswer
    from geminga.broker.registry.ports import SharingClusters
    from geminga.broker.resources import Resources
    from geminga.broker.synchronization.synchronizer import Synchronizer
    from geminga.client import Client, ClientArguments
    from geminga.runtime import Runtime

#: How long is waited at most before the topic of the configuration is looked for again.
TOPIC_BACKOFF_MS: Final = 5_000


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

    def sharing(self, shared_store: str) -> SharingClusters:
        """Those whose configuration is this one's, too: in the same store, or, where there is none, by a topic."""
        name, resources = self._config.server.cluster_name, self._resources
        if shared_store:
            from geminga.broker.geo.sharing import Sharing

            return Sharing(name, resources, self._call)
        from geminga.broker.synchronization.separate import SeparateStores

        return SeparateStores(name, resources)

    async def ask(self, cluster: str, path: str) -> PeerAnswer:
        """The answer of a cluster's administration to a GET. Raises UnavailableError, MetadataError."""
        return await self.open().answer(cluster, path)

    async def _call(self, cluster: str, method: str, path: str, body: bytes) -> PeerAnswer:
        return await self.open().answer(cluster, path, method, body)

    async def close(self) -> None:
        """Links to them end."""
        if self._clusters is not None:
            await self._clusters.close()


def synchronizer_of(broker: Broker, config: Config, membership: Membership | None) -> Synchronizer:
    """What keeps the configuration alike with that of other clusters.

    ``membership``: of a broker that is one of several; None: it leads. Raises ConfigurationError.
    """
    # Loaded by who was told a topic for it.
    from geminga.broker.peers.links import PLAIN
    from geminga.broker.synchronization.client_topic import ClientEventTopic
    from geminga.broker.synchronization.guard import StoredTopics
    from geminga.broker.synchronization.synchronizer import Synchronizer
    from geminga.client import connect
    from geminga.model.topic_name import TopicName

    cluster = config.server.cluster_name
    name = TopicName.parse(config.server.configuration_sync_topic)
    links = PLAIN if config.links is None else config.links.links()

    def client() -> Client:
        arguments: ClientArguments = {
            **links.client_arguments,
            "maximum_backoff_ms": TOPIC_BACKOFF_MS,
            "description": "configuration",
        }
        # This broker sends it on to where the topic is.
        return connect(links.broker_url(broker.endpoints.default), runtime=broker.runtime, **arguments)

    def leads() -> bool:
        if membership is None:
            return True
        return membership.election is not None and membership.election.is_leader

    guard = StoredTopics(
        broker.metadata,
        broker.resources,
        cluster,
        name,
        lambda topic, partitions: broker.partitions.make_for_others(topic, partitions),
        lambda topic: broker.policies.rules(topic),
    )
    return Synchronizer(
        broker.runtime,
        broker.metadata,
        ClientEventTopic(name, cluster, client),
        guard,
        cluster=cluster,
        leads=leads,
        part=broker,
    )
