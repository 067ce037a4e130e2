"""Bookies that lose their power or are gone for good, auto-recovery, and brokers that are killed, one after another.

Everything meets in one tree of metadata and one lake, which outlive all processes. Each process has a session of its
own, that ends with it or before it. Calls from brokers to bookies take time, and are lost with either end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookie.registration import forget_cookie, remember_cookie
from geminga.bookkeeper import BookKeeper, BookKeeperConfig, LocalBookiePool, MetadataLiveLedgers
from geminga.broker.composition.service import Broker
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.managed_ledger import ManagedLedgerConfig, ManagedLedgerFactory
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.replication import AutoRecovery, MetadataBookieRegistry, ReplicationConfig
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from geminga.sim.threads import SimThreads
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie
from geminga.wire.bookkeeper.bookie_registration import AVAILABLE_PATH, COOKIES_PATH
from support.clusters.bookie_ensemble import FarBookie
from support.worlds.broker_world import ENDPOINTS, Client
from support.worlds.lake_world import MemoryLakeStore

BOOKIES: Final = tuple(f"b{number}" for number in range(4))
#: Takes the place of the one that is gone for good.
SPARE: Final = "b4"
LEDGERS: Final = ManagedLedgerConfig(
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    max_entries_per_ledger=6,
    min_rollover_minutes=0,
    cursor_max_entries_per_ledger=5,
)
LAKE: Final = {"offload_driver": "filesystem", "offload_threshold_bytes": 0, "offload_directory": "/lake"}
BOOKIE: Final = BookieConfig(
    flush_interval_ms=20_000,
    gc_wait_time_ms=600_000,
    journal_pre_alloc_size_mb=0.01,
    log_size_limit=8192,
    disk_check_interval_ms=60_000,
)
BROKER: Final = BrokerConfig(
    transaction_coordinator_enabled=True,
    deduplication=True,
    deduplication_snapshot_entries=5,
    keep_alive_interval_s=1_000_000,
    handshake_timeout_s=1_000_000,
    delete_inactive_topics=False,
    retention_check_interval_s=60,
)
COORDINATORS: Final = 2
REPAIR: Final = ReplicationConfig(
    auditor_periodic_bookie_check_interval_s=30,
    auditor_periodic_check_interval_s=600,
    open_ledger_rereplication_grace_period_ms=1000,
    lock_release_of_failed_ledger_grace_period_ms=3200,
    rw_rereplicate_backoff_ms=200,
)


class CountedBookie(FarBookie):
    """A bookie that asks the cluster's metadata which ledgers exist, on a disk that is looked at in the end."""

    def __init__(self, world: SimWorld, name: str, server: MemoryMetadata) -> None:
        super().__init__(world, name)
        self.config = BOOKIE
        self.server = server
        self.session: MemoryMetadataStore | None = None

    async def _open(self, node: SimNode) -> None:
        # One that was killed at a named point has it still.
        self.end_session()
        await node.runtime.disk.make_dirs("/data")
        store = self.session = MemoryMetadataStore(node.runtime, self.server)
        ledgers = MetadataLiveLedgers(store, node.name)
        self.bookie = await LocalBookie.open(node.runtime, "/data", self.config, ledgers=ledgers)
        if not await store.exists(f"{COOKIES_PATH}/{node.name}"):
            await remember_cookie(store, cookie_of(node.name), None)
        await store.put(f"{AVAILABLE_PATH}/{node.name}", b"", expected_version=None, ephemeral=True)
        self.bookie.watch(self._availability.set)
        self._availability.set(self.bookie.availability)

    def end_session(self) -> None:
        end_session(self.server, self.session)
        self.session = None

    def crash(self, *, power_loss: bool = True) -> None:
        self.world.crash(self.node, power_loss=power_loss)
        super().crash()
        self.end_session()

    async def on_node(self, call: Callable[[LocalBookie], Coroutine[Any, Any, object]]) -> None:
        """Something that the bookie does by itself; nothing where it is down."""

        async def there(_: SimNode) -> None:
            if self.bookie is not None:
                await call(self.bookie)

        try:
            await self.node.run(there)
        except NodeCrashedError:
            return

    async def stop(self) -> None:
        """In good order: what is in its journal is in its entry logs."""
        await self.on_node(lambda bookie: bookie.close())
        self.crash(power_loss=False)


class LeaksCluster:
    """See the module; one broker at a time."""

    def __init__(self, world: SimWorld, *, has_lake: bool) -> None:
        self.world = world
        self.server = MemoryMetadata()
        self.lake = MemoryLakeStore()
        self.bookies = {name: CountedBookie(world, name, self.server) for name in (*BOOKIES, SPARE)}
        self.pool = LocalBookiePool(self.bookies)
        self.pool.unavailable.add(SPARE)
        #: Bookies that never come back.
        self.gone: set[str] = set()
        self.ledgers = replace(LEDGERS, **LAKE) if has_lake else LEDGERS
        self.rng = world.rng("leaks cluster")
        self.repairer = world.node("repairer")
        self._repairer_session: MemoryMetadataStore | None = None
        self._repairing: asyncio.Future[None] | None = None
        self._broker_session: MemoryMetadataStore | None = None
        self._ports = 40000

    async def start(self) -> None:
        for name in BOOKIES:
            await self.bookies[name].start()

    def present(self) -> list[CountedBookie]:
        """Those that are there, or come back."""
        return [bookie for name, bookie in self.bookies.items() if name not in {*self.gone, *self.pool.unavailable}]

    # ---- brokers

    async def boot(self, node: SimNode) -> Broker:
        """A broker on this node, with a session of its own."""
        runtime = replace(node.runtime, threads=SimThreads(inline=True))
        self.store = self._broker_session = MemoryMetadataStore(runtime, self.server)
        self.bookkeeper = BookKeeper(runtime, self.store, self.pool, BookKeeperConfig())
        self.factory = ManagedLedgerFactory(
            runtime,
            self.store,
            self.bookkeeper,
            self.ledgers,
            is_shared=True,
            open_lake_store=lambda driver, properties: self.lake,
        )
        resources = Resources(self.store)
        broker = Broker(runtime, self.store, self.factory, BROKER, resources, version="test")
        setup = ClusterSetup("standalone", {"serviceUrl": "http://a:8080"}, transaction_coordinators=COORDINATORS)
        await initialize_cluster(resources, setup)
        await broker.start(ENDPOINTS)
        return broker

    async def client(self, broker: Broker) -> Client:
        self._ports += 1
        client = Client(broker, self._ports)
        await client.connect()
        return client

    def kill_broker(self, node: SimNode) -> None:
        self.world.crash(node, power_loss=False, reason="killed")
        end_session(self.server, self._broker_session)
        self._broker_session = None

    # ---- bookies

    def restart_bookie_later(self, name: str, seconds: float) -> None:
        """It lost its power; it comes back."""
        self.bookies[name].crash()
        self.world.loop.call_later(seconds, lambda: asyncio.ensure_future(self._start_bookie(name)))

    async def _start_bookie(self, name: str) -> None:
        if name not in self.gone and self.bookies[name].bookie is None:
            try:
                await self.bookies[name].start()
            except NodeCrashedError:
                return

    async def lose_bookie(self, name: str) -> None:
        """For good; the spare one joins, and auto-recovery begins, which is killed now and then."""
        self.bookies[name].crash()
        self.gone.add(name)
        self.pool.unavailable.add(name)
        await self.bookies[SPARE].start()
        self.pool.unavailable.discard(SPARE)

    # ---- auto-recovery

    def start_repair(self) -> None:
        self._repairing = asyncio.ensure_future(self.world.restart(self.repairer, self._repair))

    async def _repair(self, node: SimNode) -> None:
        self._repairer_session = store = MemoryMetadataStore(node.runtime, self.server)
        client = BookKeeper(node.runtime, store, self.pool)
        registry = MetadataBookieRegistry(store)
        recovery = AutoRecovery(node.runtime, store, self.pool, client, registry, REPAIR, name=node.name)
        await recovery.start()
        await self.world.sleep(1_000_000)

    async def stop_repair(self) -> None:
        if self._repairing is None:
            return
        self.world.crash(self.repairer, power_loss=False, reason="killed")
        end_session(self.server, self._repairer_session)
        try:
            await self._repairing
        except NodeCrashedError:
            pass
        self._repairing = self._repairer_session = None

    async def forget_lost_bookies(self) -> None:
        """What an operator does when nothing is on them any more."""
        for name in sorted(self.gone):
            await forget_cookie(self.store, cookie_of(name))


def cookie_of(bookie: str) -> BookieCookie:
    return BookieCookie(bookie, ("/data/journal",), ("/data/ledgers",))


def end_session(server: MemoryMetadata, store: MemoryMetadataStore | None) -> None:
    """The process is gone."""
    if store is not None:
        server.end_session(store.session, 0)
        server.detach(store)
