"""A broker that shares topics, metadata and bookies with others: what every such broker is made of.

Where the metadata are is up to who composes it: a cluster's ZooKeeper, or the process that holds a standalone's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from geminga.app.configuration.config import Config
from geminga.app.lifecycle.core.descriptors import LIMIT_ASSUMED, plan_descriptors
from geminga.app.servers.broker_server import BrokerServer, Peers, Storage
from geminga.app.servers.listeners import Addresses
from geminga.bookkeeper import BookKeeper
from geminga.bookkeeper.remote import RegisteredBookies, RemoteBookiePool, frame_bytes_for
from geminga.bookkeeper.remote.kept_connection import TlsOfBookies
from geminga.broker.composition.service import Broker
from geminga.broker.load.balancer import LoadBalancer
from geminga.broker.load.chooser import LoadChooser
from geminga.broker.load.measuring import LoadMeter, TopicCounters
from geminga.broker.load.ports import UsageSource
from geminga.broker.load_rules.reports import BrokerReport, LoadRates
from geminga.broker.ownership.core.choosing import Chooser
from geminga.broker.ownership.membership import Membership
from geminga.broker.peers.client_tables import ClientTables
from geminga.broker.peers.cluster_peers import ClusterPeers
from geminga.broker.peers.http_client import PeerHttp
from geminga.broker.peers.links import PLAIN, PeerLinks
from geminga.broker.peers.topics import PeerTopics
from geminga.broker.resources import Resources
from geminga.broker.statistics.topics import totals_out
from geminga.client import Client, ClientArguments, connect
from geminga.metadata.ports import MetadataStore
from geminga.model.bookie_port import Availability
from geminga.model.errors import ConfigurationError
from geminga.runtime import Runtime, descriptor_limit, real_runtime
from geminga.runtime.ports import FatalHandler
from geminga.version import __version__

if TYPE_CHECKING:
    from geminga.runtime.tls.following import FollowedContext

#: How long a start waits for as many bookies as a ledger needs; then it serves what can be served.
BOOKIES_WAIT_S: Final = 10.0
#: How long this broker waits at most before it looks again for a topic of another one.
CLIENT_BACKOFF_MS: Final = 5_000


def links_of(config: Config) -> PeerLinks:
    """How other brokers are spoken to, which are configured as this one; raises ConfigurationError."""
    links = PLAIN if config.links is None else config.links.links()
    tls = config.tls
    if links.uses_tls and (tls is None or tls.broker_port is None or tls.web_port is None):
        raise ConfigurationError(
            "brokerClientTlsEnabled=true: brokers reach each other by their ports with TLS; expected "
            "brokerServicePortTls=6651 and webServicePortTls=8443"
        )
    if not links.uses_tls and tls is not None and (tls.replaces_broker_port or tls.replaces_web_port):
        raise ConfigurationError(
            "brokerServicePort= or webServicePort= is set to nothing: brokers reach each other by their plain ports; "
            "expected brokerClientTlsEnabled=true"
        )
    return links


class MemberBrokerServer(BrokerServer):
    """One broker on the running loop; whoever composes it opens its metadata in ``_open_storage``."""

    def __init__(self, config: Config, *, session_timeout_ms: int, on_fatal: FatalHandler) -> None:
        plan = plan_descriptors(
            descriptor_limit(),
            open_logs=0,
            web_connections_max=config.server.http_connections_max or LIMIT_ASSUMED,
            has_files=False,
        )
        super().__init__(config, plan, on_fatal)
        self._session_timeout_ms = session_timeout_ms
        self._client: Client | None = None
        self._load: LoadBalancer | None = None
        #: Of connections to bookies; None: they are plain.
        self._followed: FollowedContext | None = None

    def broke(self, what: str, error: BaseException) -> None:
        """What this broker has to do with the others failed: it goes on, and does it again when it is due."""
        if self.broker is None:
            self._fatal(what, error)
        else:
            self.broker.broke(what, error)

    def _open_runtime(self) -> Runtime:
        runtime = self.runtime = real_runtime(self._fatal)
        self._closers.append(("threads", runtime.threads.close))
        self._closers.append(("disk", runtime.disk.close))
        return runtime

    async def _follow_bookies(
        self, runtime: Runtime, metadata: MetadataStore, *, asks_unlisted: bool
    ) -> RemoteBookiePool:
        """Those registered in ``metadata``, once there are enough, or after a while. See :class:`RemoteBookiePool`."""
        pool = RemoteBookiePool(
            runtime,
            frame_bytes_max=frame_bytes_for(self._config.broker.message_bytes_max),
            asks_unlisted=asks_unlisted,
            tls=self._tls_of_bookies(),
        )
        self._closers.append(("bookies' connections", pool.close))
        registered = await RegisteredBookies.follow(metadata, pool)
        self._closers.append(("bookies' list", registered.close))
        await self._wait_for_bookies(pool)
        return pool

    def _tls_of_bookies(self) -> TlsOfBookies | None:
        """How bookies of other processes are spoken to; None: without TLS. Raises ConfigurationError."""
        config = self._config.bookie_tls
        if config is None:
            return None
        self._followed = config.used()
        self._followed.follow(config.refresh_s)
        self._closers.append(("certificates", self._forget_certificates))
        return self._followed.context

    def look_at_files(self) -> None:
        """Those towards bookies, too."""
        super().look_at_files()
        if self._followed is not None:
            self._followed.look(again=True)

    async def _forget_certificates(self) -> None:
        if self._followed is not None:
            self._followed.close()

    def _peers(self, runtime: Runtime, metadata: MetadataStore, chooser: Chooser | None = None) -> Peers:
        resources = Resources(metadata)
        links = links_of(self._config)

        membership = Membership(
            runtime,
            metadata,
            resources.policies_document,
            keep_cuts=resources.namespaces.keep_cuts,
            session_timeout_ms=self._session_timeout_ms,
            version=__version__,
            chooser=chooser,
            part=self,
        )
        self._closers.append(("client of the cluster", self._close_client))
        self._sources.append(membership.metrics)

        def client() -> Client:
            if self._client is None:
                # This broker sends it on to where the topic is.
                url = links.broker_url(membership.endpoints.default)
                arguments: ClientArguments = {
                    **links.client_arguments,
                    "maximum_backoff_ms": CLIENT_BACKOFF_MS,
                    "description": "broker",
                }
                self._client = connect(url, runtime=runtime, **arguments)
            return self._client

        topics = partial(PeerTopics, PeerHttp(runtime, links), client, membership.brokers.is_of_another_make)
        return Peers(membership, ClientTables(client), topics)

    async def _balanced_peers(self, runtime: Runtime, metadata: MetadataStore, meter: UsageSource | None) -> Peers:
        """With its load managed; ``meter``: how busy it is, None: it is not managed."""
        config = self._config.load
        if config is None or meter is None:
            return self._peers(runtime, metadata)
        peers = self._peers(runtime, metadata, LoadChooser(self._assign))
        membership = peers.membership
        among = ClusterPeers(membership, peers.topics(membership.ownership, lambda: membership.endpoints))
        clock = runtime.clock.monotonic
        bundles = LoadMeter(clock, lambda: membership.ownership.owned, self._topics)
        cluster = self._config.server.cluster_name
        self._load = LoadBalancer(runtime, metadata, config, among, bundles, meter, cluster=cluster, part=self)
        await self._load.read_rules()
        self._load_rows, self._bundle_rows = self._load.rows, self._load.bundle_rows
        return peers

    async def _listen(self, broker: Broker, storage: Storage) -> Addresses:
        addresses = await super()._listen(broker, storage)
        if self._load is not None:
            self._load.start()
            self._closers.append(("load", self._load.close))
        return addresses

    async def _settings_changed(self) -> None:
        await super()._settings_changed()
        if self._load is not None:
            self._load.settings_changed()

    def _assign(self, bundle: str, reports: Mapping[str, BrokerReport]) -> str | None:
        assert self._load is not None
        return self._load.assign(bundle, reports)

    def _topics(self) -> Iterator[TopicCounters]:
        assert self.broker is not None
        # They come and go while these are read.
        for topic in list(self.broker.administered.registry.loaded.values()):
            messages_out, bytes_out = totals_out(topic)
            totals = LoadRates(topic.publishing.messages_in, messages_out, topic.publishing.bytes_in, bytes_out)
            consumers = sum(len(one.consumers) for one in topic.subscriptions.values())
            yield TopicCounters(str(topic.name), topic.name.namespace, totals, len(topic.producers), consumers)

    async def _close_client(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _wait_for_bookies(self, pool: RemoteBookiePool) -> None:
        """As many as the default ensemble has: what is asked of a broker that is ready should not fail for that."""
        wanted = self._config.managed_ledger.ensemble_size
        changed = asyncio.Event()

        def hear(_bookie_id: str, _now: Availability) -> None:
            changed.set()

        pool.watch(hear)
        try:
            async with asyncio.timeout(BOOKIES_WAIT_S):
                while len(pool.available()) < wanted:
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            pass  # the shortage is told, and the broker goes on once there are enough

    async def _start_beside(self, storage: Storage, bookkeeper: BookKeeper) -> None:
        """Auto-recovery is a process of its own, or runs in a bookie's."""
