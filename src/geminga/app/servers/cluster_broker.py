"""The composition root of ``geminga broker``: a broker on the bookies and in the metadata store of a cluster.

Start: ZooKeeper -> registered bookies -> what every broker begins with (``broker_server``) -> registered among the
cluster's brokers, and only then are topics served. Stop is the reverse.
"""

from __future__ import annotations

import asyncio
from itertools import chain

from geminga.app.configuration.cluster_config import BrokerProcessConfig
from geminga.app.lifecycle.event_loop import loop_factory
from geminga.app.lifecycle.host_usage import HostMeter
from geminga.app.lifecycle.process_life import end_at_once, keep_freed_memory, raise_open_files
from geminga.app.servers.broker_server import Storage
from geminga.app.servers.member_broker import MemberBrokerServer
from geminga.app.servers.process import DataLocation, serve
from geminga.app.storage.shared_configuration import divided, note
from geminga.broker.load.ports import UsageSource
from geminga.metadata.copying import refuse_unfinished
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.measured import SHARED_STORE_NAME, MeasuredMetadataStore
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

    async def _open_storage(self) -> Storage:
        runtime = self._open_runtime()
        config = self._process_config
        own = MeasuredMetadataStore(await self._connect(runtime, config.metadata), runtime.clock)
        await refuse_unfinished(own, str(config.metadata))
        metadata: MetadataStore = own
        measured = [own]
        if config.is_configuration_apart:
            measured.append(await self._connect_shared(runtime, config.configuration))
            name, urls = config.config.server.cluster_name, (str(config.metadata), str(config.configuration))
            metadata = await divided(own, measured[-1], *urls, cluster=name)
        await note(own, str(config.configuration) if config.is_configuration_apart else "")
        is_one = config.ledgers == config.metadata
        # Of ledgers nothing is in the store that is shared, and nothing waits for it.
        ledgers: MetadataStore = own if is_one else await self._connect(runtime, config.ledgers)
        pool = await self._follow_bookies(runtime, ledgers, asks_unlisted=True)
        return Storage(
            runtime,
            metadata,
            pool,
            ledger_metadata=ledgers,
            labelled=tuple(chain.from_iterable(each.sources() for each in measured)),
            peers=await self._balanced_peers(runtime, metadata, self._meter(runtime)),
            metadata_url=str(config.metadata),
            configuration_url=str(config.configuration) if config.is_configuration_apart else "",
        )

    def _meter(self, runtime: Runtime) -> UsageSource | None:
        config = self._config.load
        if config is None or not config.is_enabled:
            return None
        return HostMeter(runtime.clock.monotonic, lambda: config.usage_interval_minutes * 60, config.nic_speed_gbps)

    async def _connect_shared(self, runtime: Runtime, address: ZooKeeperAddress) -> MeasuredMetadataStore:
        shared = MeasuredMetadataStore(await self._connect(runtime, address), runtime.clock, SHARED_STORE_NAME)
        await refuse_unfinished(shared, str(address))
        return shared

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

    location = DataLocation("metadataStoreUrl", str(config.metadata), "metadata in")

    def server() -> ClusterBrokerServer:
        return ClusterBrokerServer(config, on_fatal=end_at_once)

    with asyncio.Runner(loop_factory=loop_factory(config.config.server.event_loop)) as runner:
        runner.run(serve(config.config, server, location, json_line=json_line))
