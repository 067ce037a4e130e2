"""The composition root of ``geminga broker``: a broker on the bookies and in the metadata store of a cluster.

Start: ZooKeeper -> registered bookies -> what every broker begins with (``broker_server``) -> registered among the
cluster's brokers, and only then are topics served. Stop is the reverse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from geminga.app.broker_server import Addresses, Peers, Storage
from geminga.app.cluster_config import BrokerProcessConfig
from geminga.app.event_loop import loop_factory
from geminga.app.host_usage import HostMeter
from geminga.app.member_broker import MemberBrokerServer
from geminga.app.process import Place, serve
from geminga.app.process_life import end_at_once, keep_freed_memory, raise_open_files
from geminga.broker.load.balancer import LoadBalancer
from geminga.broker.load.chooser import LoadChooser
from geminga.broker.load.cluster_peers import ClusterPeers
from geminga.broker.load.core.reports import BrokerReport, Rates
from geminga.broker.load.measuring import LoadMeter, TopicCounters
from geminga.broker.rest.stats import totals_out
from geminga.broker.service import Broker
from geminga.metadata.copying import refuse_unfinished
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.ports import MetadataStore
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.runtime import Runtime, get_logger
from geminga.runtime.ports import FatalHandler

_log = get_logger(__name__)


class ClusterBrokerServer(MemberBrokerServer):
    """One broker on the running loop."""

    def __init__(self, config: BrokerProcessConfig, *, on_fatal: FatalHandler) -> None:
        super().__init__(config.config, session_timeout_ms=config.session_timeout_ms, on_fatal=on_fatal)
        self._process_config = config
        self._load: LoadBalancer | None = None

    async def _open_storage(self) -> Storage:
        runtime = self._open_runtime()
        config = self._process_config
        metadata = await self._connect(runtime, config.metadata)
        await refuse_unfinished(metadata, str(config.metadata))
        ledgers = metadata if config.ledgers == config.metadata else await self._connect(runtime, config.ledgers)
        pool = await self._follow_bookies(runtime, ledgers, asks_unlisted=True)
        return Storage(
            runtime,
            metadata,
            pool,
            ledger_metadata=ledgers,
            peers=await self._balanced_peers(runtime, metadata),
            metadata_url=str(config.metadata),
        )

    async def _balanced_peers(self, runtime: Runtime, metadata: MetadataStore) -> Peers:
        config = self._config.load
        if config is None or not config.is_enabled:
            return self._peers(runtime, metadata)
        peers = self._peers(runtime, metadata, LoadChooser(self._assign))
        membership = peers.membership
        among = ClusterPeers(membership, peers.topics(membership.ownership, lambda: membership.endpoints))
        clock = runtime.clock.monotonic
        meter = HostMeter(clock, lambda: config.usage_interval_minutes * 60, config.nic_speed_gbps)
        bundles = LoadMeter(clock, lambda: membership.ownership.owned, self._topics)
        cluster = self._config.server.cluster_name
        self._load = LoadBalancer(runtime, metadata, config, among, bundles, meter, cluster=cluster)
        await self._load.read_rules()
        self._sources.append(self._load.metrics)
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
        for topic in self.broker.administered.registry.loaded.values():
            messages_out, bytes_out = totals_out(topic)
            totals = Rates(topic.messages_in, messages_out, topic.bytes_in, bytes_out)
            consumers = sum(len(one.consumers) for one in topic.subscriptions.values())
            yield TopicCounters(str(topic.name), topic.name.namespace, totals, len(topic.producers), consumers)

    async def _connect(self, runtime: Runtime, address: ZooKeeperAddress) -> ZooKeeperMetadataStore:
        store = await ZooKeeperMetadataStore.open(
            runtime, address, session_timeout_ms=self._process_config.session_timeout_ms
        )
        self._closers.append(("metadata store", store.close))
        return store


def run_broker(config: BrokerProcessConfig, *, json_line: bool) -> None:
    """Run until SIGTERM or SIGINT; raises what kept it from starting (GemingaError, OSError)."""
    raise_open_files()
    keep_freed_memory()
    for warning in config.config.warnings:
        _log.warning("%s", warning)

    place = Place("metadataStoreUrl", str(config.metadata), "metadata in")

    def server() -> ClusterBrokerServer:
        return ClusterBrokerServer(config, on_fatal=end_at_once)

    with asyncio.Runner(loop_factory=loop_factory(config.config.server.event_loop)) as runner:
        runner.run(serve(config.config, server, place, json_line=json_line))
