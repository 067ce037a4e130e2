"""The composition root of ``geminga broker``: a broker on the bookies and in the metadata store of a cluster.

Start: ZooKeeper -> registered bookies -> what every broker begins with (``broker_server``) -> registered among the
cluster's brokers, and only then are topics served. Stop is the reverse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from geminga import __version__
from geminga.app.broker_server import BrokerServer, Peers, Storage
from geminga.app.cluster_config import BrokerProcessConfig
from geminga.app.core.descriptors import LIMIT_ASSUMED, plan_descriptors
from geminga.app.event_loop import loop_factory
from geminga.app.process import Place, serve
from geminga.app.process_life import end_at_once, raise_open_files
from geminga.bookkeeper import BookKeeper
from geminga.bookkeeper.remote import RegisteredBookies, RemoteBookiePool
from geminga.broker.core.coercion import Json
from geminga.broker.ownership.membership import Membership
from geminga.broker.peers.http_client import PeerHttp
from geminga.broker.peers.topics import PeerTopics
from geminga.broker.policies.client_event_reader import ClientEventReader
from geminga.broker.resources import Resources
from geminga.client import Client, connect
from geminga.metadata.copying import refuse_unfinished
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.ports import MetadataStore
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.model.bookie_port import Availability
from geminga.model.limits import FRAME_PADDING_BYTES
from geminga.runtime import Runtime, descriptor_limit, get_logger, real_runtime
from geminga.runtime.ports import FatalHandler

#: How long a start waits for as many bookies as a ledger needs; then it serves what can be served.
BOOKIES_WAIT_S: Final = 10.0
#: How long this broker waits at most before it looks again for a topic of another one.
CLIENT_BACKOFF_MS: Final = 5_000

_log = get_logger(__name__)


class ClusterBrokerServer(BrokerServer):
    """One broker on the running loop."""

    def __init__(self, config: BrokerProcessConfig, *, on_fatal: FatalHandler) -> None:
        server = config.config.server
        plan = plan_descriptors(
            descriptor_limit(),
            open_logs=0,
            web_connections_max=server.http_connections_max or LIMIT_ASSUMED,
            has_files=False,
        )
        super().__init__(config.config, plan)
        self._process_config = config
        self._on_fatal = on_fatal
        self._client: Client | None = None

    async def _open_storage(self) -> Storage:
        runtime = real_runtime(self._on_fatal)
        self.runtime = runtime
        self._closers.append(("threads", runtime.threads.close))
        self._closers.append(("disk", runtime.disk.close))
        config = self._process_config
        metadata = await self._connect(runtime, config.metadata)
        await refuse_unfinished(metadata, str(config.metadata))
        ledgers = metadata if config.ledgers == config.metadata else await self._connect(runtime, config.ledgers)
        pool = RemoteBookiePool(runtime, frame_bytes_max=self._frame_bytes_max())
        self._closers.append(("bookies' connections", pool.close))
        registered = await RegisteredBookies.follow(ledgers, pool)
        self._closers.append(("bookies' list", registered.close))
        await self._wait_for_bookies(pool)
        return Storage(
            runtime,
            metadata,
            pool,
            ledger_metadata=ledgers,
            peers=self._peers(runtime, metadata),
            metadata_url=str(config.metadata),
        )

    def _peers(self, runtime: Runtime, metadata: MetadataStore) -> Peers:
        resources = Resources(metadata)

        async def policies_of(namespace: str) -> Mapping[str, Json] | None:
            found = await resources.find_namespace_policies(namespace)
            return None if found is None else found.document

        membership = Membership(
            runtime,
            metadata,
            policies_of,
            session_timeout_ms=self._process_config.session_timeout_ms,
            version=__version__,
        )
        self._closers.append(("client of the cluster", self._close_client))

        def client() -> Client:
            if self._client is None:
                # This broker sends it on to where the topic is.
                url = membership.endpoints.default.broker_url
                self._client = connect(url, runtime=runtime, maximum_backoff_ms=CLIENT_BACKOFF_MS)
            return self._client

        return Peers(membership, ClientEventReader(client), partial(PeerTopics, PeerHttp(runtime)))

    async def _close_client(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _connect(self, runtime: Runtime, address: ZooKeeperAddress) -> ZooKeeperMetadataStore:
        store = await ZooKeeperMetadataStore.open(
            runtime, address, session_timeout_ms=self._process_config.session_timeout_ms
        )
        self._closers.append(("metadata store", store.close))
        return store

    def _frame_bytes_max(self) -> int:
        return self._config.broker.message_bytes_max + FRAME_PADDING_BYTES

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


def run_broker(config: BrokerProcessConfig, *, json_line: bool) -> None:
    """Run until SIGTERM or SIGINT; raises what kept it from starting (GemingaError, OSError)."""
    raise_open_files()
    for warning in config.config.warnings:
        _log.warning("%s", warning)

    place = Place("metadataStoreUrl", str(config.metadata), "metadata in")

    def server() -> ClusterBrokerServer:
        return ClusterBrokerServer(config, on_fatal=end_at_once)

    with asyncio.Runner(loop_factory=loop_factory(config.config.server.event_loop)) as runner:
        runner.run(serve(config.config, server, place, json_line=json_line))
