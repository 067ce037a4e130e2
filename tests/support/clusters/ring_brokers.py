"""The two brokers of the token ring, what is below them, and everything that happens to them.

Each broker is a node that dies without a word and boots from what is stored. At any time one of them has all topics and
coordinators; the other one may still believe that it has them, and be told late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from geminga import sim
from geminga.bookkeeper import BookKeeperConfig
from geminga.bookkeeper.local_pool import LocalBookiePool
from geminga.broker.composition.service import Broker
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.ownership.ports import HERE
from geminga.broker.resources import ClusterSetup, Resources, initialize_cluster
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.managed_ledger import ManagedLedgerConfig, ManagedLedgerFactory
from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import GemingaError, StorageError
from geminga.model.topic_name import TRANSACTION_SNAPSHOTS, TopicName
from geminga.model.txn_id import TxnId
from geminga.sim import NodeCrashedError
from support.clusters.ring_client import RingClient, Taken
from support.clusters.ring_steps import ObservedBookKeeper, Point, StepBookie, Steps
from support.worlds.ownership import OwnershipTable, TableOwnership, endpoints_of

BROKERS: Final = ("a", "b")
TOPICS: Final = 3
COORDINATORS: Final = 2
NAMESPACE: Final = "public/default"


def topic(index: int) -> str:
    return f"persistent://{NAMESPACE}/account-{index % TOPICS}"


#: What belongs to a broker, in the order in which it changes hands where that takes time.
NAMES: Final = (
    *(COORDINATORS_TOPIC.with_partition(number) for number in range(COORDINATORS)),
    TopicName.parse(f"persistent://{NAMESPACE}/{TRANSACTION_SNAPSHOTS}"),
    *(TopicName.parse(topic(index)) for index in range(TOPICS)),
)


class Rules(NamedTuple):
    """What the brokers of one seed are told to do."""

    config: BrokerConfig
    ledgers: ManagedLedgerConfig
    bookies: int
    metadata_delay_ms: int
    retention: tuple[int, int]
    ttl_s: int


def draw_rules(rng: Any) -> Rules:
    """Small ledgers and few entries between snapshots in some seeds, Pulsar's own figures in others."""
    bookies = rng.choice([1, 1, 1, 3])
    copies = 2 if bookies > 1 else 1
    config = BrokerConfig(
        cluster_name="c",
        transaction_coordinator_enabled=True,
        transaction_buffer_snapshot_max_count=rng.choice([1, 3, 10, 1000]),
        transaction_buffer_snapshot_min_ms=rng.choice([50, 1000, 5000]),
        deduplication=rng.random() < 0.5,
        keep_alive_interval_s=1_000_000,
        delete_inactive_topics=False,
        dispatcher_read_failure_backoff_initial_ms=100,
        dispatcher_read_failure_backoff_max_ms=200,
    )
    ledgers = ManagedLedgerConfig(
        ensemble_size=copies,
        write_quorum=copies,
        ack_quorum=copies,
        # So that logs roll and are trimmed meanwhile.
        max_entries_per_ledger=rng.choice([5, 20, 50_000]),
        min_rollover_minutes=0,
        cursor_max_entries_per_ledger=rng.choice([5, 50_000]),
        mark_delete_rate_limit=rng.choice([2.0, 50.0]),
    )
    return Rules(
        config,
        ledgers,
        bookies,
        rng.choice([0, 0, 3]),
        rng.choice([(0, 0), (0, 0), (-1, -1), (10, 10)]),
        rng.choice([0, 0, 3600]),
    )


class Life:
    """One boot of a broker."""

    def __init__(self, node: sim.SimNode, view: TableOwnership, store: MemoryMetadataStore) -> None:
        self.node = node
        self.boot = node.boot
        self.view = view
        self.store = store
        self.broker: Broker
        self.ledgers: ManagedLedgerFactory
        self.clients: list[RingClient] = []

    @property
    def is_alive(self) -> bool:
        return self.node.boot is self.boot


class RingBrokers:
    """See the module."""

    def __init__(self, world: sim.SimWorld, on_message: Callable[[Taken, RingClient], None]) -> None:
        self.world = world
        self.rng = world.rng("brokers")
        self.rules = draw_rules(world.rng("rules"))
        self.server = MemoryMetadata()
        self.steps = Steps(self._strike)
        self.bookies = {f"bookie-{number}": StepBookie(self.steps) for number in range(self.rules.bookies)}
        self.table = OwnershipTable(BROKERS)
        self.lives: dict[str, Life] = {}
        #: What struck, in order: to be recovered from, outside of the node that it struck.
        self._struck: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        #: Strikes that are not over.
        self.under_way = 0
        self.struck: list[Point] = []
        #: The mover of a transaction, told when its client dies.
        self.kill_client: Callable[[TxnId | None], bool] = lambda _: False
        self._on_message = on_message
        self._ports = 40_000
        self.steps.is_loading = self._is_loading

    # ---- life

    async def start(self) -> None:
        await self._boot("a", first=True)
        await self._boot("b")

    async def _boot(self, name: str, *, first: bool = False) -> None:
        node = self.world.node(name)
        node.start()
        view = self.table.brokers[name] = TableOwnership(self.table, name)
        await node.run(lambda node: self._boot_on(node, view, first))

    async def _boot_on(self, node: sim.SimNode, view: TableOwnership, first: bool) -> None:
        rules, runtime = self.rules, node.runtime
        faults = MetadataFaults(delay_ms_max=rules.metadata_delay_ms)
        life = Life(node, view, MemoryMetadataStore(runtime, self.server, faults))
        bookkeeper = ObservedBookKeeper(runtime, life.store, LocalBookiePool(self.bookies), BookKeeperConfig())
        bookkeeper.names = self.steps.names
        life.ledgers = ManagedLedgerFactory(runtime, life.store, bookkeeper, rules.ledgers, is_shared=True)
        resources = Resources(life.store)
        life.broker = Broker(runtime, life.store, life.ledgers, rules.config, resources, version="test", ownership=view)
        if first:
            setup = ClusterSetup("c", {"serviceUrl": "http://a:8080"}, transaction_coordinators=COORDINATORS)
            await initialize_cluster(resources, setup)
            minutes, mebibytes = rules.retention
            retention = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": mebibytes}
            await resources.namespaces.set_policy(NAMESPACE, "retention_policies", retention)
            if rules.ttl_s:
                await resources.namespaces.set_policy(NAMESPACE, "message_ttl_in_seconds", rules.ttl_s)
        self.lives[node.name] = life
        await life.broker.start(endpoints_of(node.name))

    def died(self, name: str, *, is_power_lost: bool = True) -> None:
        """A broker is gone, right now."""
        life = self.lives.pop(name, None)
        if is_power_lost:
            self.world.crash(self.world.node(name))
        if life is not None:
            for client in life.clients:
                client.lose()
            self.server.detach(life.store)
            self.server.end_session(life.store.session, 0)

    @property
    def owner(self) -> str | None:
        """Who has the topics."""
        return self.table.default

    @property
    def life(self) -> Life | None:
        """The owner's."""
        return None if self.owner is None else self.lives.get(self.owner)

    @property
    def is_in_doubt(self) -> bool:
        """Whether a broker may believe what is not so."""
        return bool(self.under_way) or any(life.view.beliefs for life in self.lives.values())

    async def client(self) -> RingClient | None:
        """Connected to the owner, or to one that believes so; None: nobody is there."""
        name = self.owner
        stale = [each for each, life in self.lives.items() if life.view.beliefs]
        if stale and self.rng.random() < 0.3:
            name = stale[0]
        life = None if name is None else self.lives.get(name)
        if life is None or not life.is_alive:
            return None
        self._ports += 1
        delay_s = self.rng.choice([0, 0, 0.002, 0.02])
        client = RingClient(life.broker, life.node, self._ports, delay_s=delay_s, on_message=self._on_message)
        life.clients = [each for each in life.clients if not each.is_closed]
        life.clients.append(client)
        await client.connect()
        return client

    def _is_loading(self, name: str) -> bool:
        life = self.life
        full = f"persistent://{NAMESPACE}/{name.rpartition('/')[2]}"
        return life is not None and full not in life.broker.topics

    # ---- faults

    def arm(self, point: Point, after: int) -> None:
        """Strike when the step was passed so many times more."""
        if point.what == "broker":
            if self.owner is not None:
                self.world.crash_at(point.step, after + 1)
        else:
            self.steps.armed[point] = after

    def is_armed(self, point: Point) -> bool:
        """Whether it has yet to strike."""
        return point in self.steps.armed or self.world.points.is_armed(point.step)

    def disarm(self, point: Point) -> None:
        """It is not to strike any more."""
        self.steps.armed.pop(point, None)
        self.world.points.disarm(point.step)

    def _strike(self, point: Point, txn_id: TxnId | None) -> bool:
        """Right now, where the step is taken."""
        if point.step.startswith("client's"):
            self._note(point, self._nothing)
            return True
        name = self._acting()
        if name is None or (self.under_way and self.rng.random() < 0.5):
            return False
        kind = point.what
        if kind.startswith("broker"):
            self._note(point, lambda: self.come_back(name))
            self.died(name)
        elif kind.startswith("bookie"):
            bookie = self.rng.choice(sorted(self.bookies))
            self.bookies[bookie].go_down(StorageError(f"{bookie} is down"))
            self._note(point, lambda: self.bring_back(bookie))
        elif kind == "client":
            if not self.kill_client(txn_id):
                return False
            self._note(point, self._nothing)
        elif kind == "taken over":
            if name != self.owner or self.under_way:
                return False
            self._note(point, self.seize)
        else:
            if name != self.owner or self.under_way:
                return False
            self._note(point, self.let_go)
        return True

    def _acting(self) -> str | None:
        """The broker whose code is running."""
        boot = sim.boot.CURRENT_BOOT.get()
        if boot is None or not boot.alive:
            return None
        life = self.lives.get(boot.node.name)
        return boot.node.name if life is not None and life.boot is boot else None

    def client_step(self, step: str) -> bool:
        """A client takes this step; whether it dies there."""
        self.steps.passed[step] += 1
        return bool(self.steps.armed) and self.steps.at(step, None, whats=("client",)) is not None

    def struck_at_point(self, point: Point, name: str) -> None:
        """A crash point of the product struck: the node is down already."""
        self._note(point, lambda: self.come_back(name))
        self.died(name, is_power_lost=False)

    def _note(self, point: Point, recover: Callable[[], Awaitable[None]]) -> None:
        self.struck.append(point)
        self.under_way += 1
        self._struck.put_nowait(recover)

    async def recover(self) -> None:
        """What struck is recovered from, one after the other."""
        while True:
            recover = await self._struck.get()
            try:
                await recover()
            except (NodeCrashedError, GemingaError):
                pass
            self.under_way -= 1

    async def _nothing(self) -> None:
        """A client comes back by itself."""

    async def bring_back(self, bookie: str) -> None:
        await self.world.sleep(self.rng.choice([0.01, 0.3, 1.0]))
        self.bookies[bookie].come_back()

    async def come_back(self, name: str) -> None:
        """It boots again, or the other one takes over before."""
        await self.world.sleep(self.rng.choice([0, 0.1, 0.6]))
        if name == self.owner and self.rng.random() < 0.6:
            other = BROKERS[name == BROKERS[0]]
            if other not in self.lives:
                await self.ensure(other)
            self.table.default = other
            await self._tell_given(other)
        await self.ensure(name)

    async def ensure(self, name: str) -> None:
        """It runs. A crash while it boots is one more."""
        while name not in self.lives or not self.lives[name].is_alive:
            self.died(name)
            try:
                await self._boot(name)
            except (NodeCrashedError, GemingaError):
                await self.world.sleep(0.1)

    async def seize(self) -> None:
        """The other broker takes all of it; who had it hears of that later, one thing after the other."""
        before = self.owner
        assert before is not None
        other = BROKERS[before == BROKERS[0]]
        await self.ensure(other)
        view = self.lives[before].view if before in self.lives else None
        if view is not None:
            view.beliefs.update({str(name): HERE for name in NAMES})
        node = self.world.node(before)
        is_stalled = self.rng.random() < 0.3
        if is_stalled:
            self.world.pause(node)
        self.table.default = other
        await self._tell_given(other)
        await self.world.sleep(self.rng.choice([0, 0.05, 0.5, 1.5]))
        if is_stalled:
            self.world.resume(node)
            await self.world.sleep(self.rng.choice([0, 0.1]))
        if view is not None and before in self.lives and self.lives[before].view is view:
            view.beliefs.clear()
            await self._at(before, lambda: view.tell_taken(lambda _: True))

    async def let_go(self) -> None:
        """In good order: to the other broker, or only out of memory, or a clean restart."""
        before, roll = self.owner, self.rng.random()
        assert before is not None
        if roll < 0.35:
            name = TopicName.parse(topic(self.rng.randrange(TOPICS)))
            await self._at(before, lambda: self.lives[before].broker.registry.unload(name))
        elif roll < 0.7:
            other = BROKERS[before == BROKERS[0]]
            await self.ensure(other)
            self.table.default = None
            try:
                await self._at(before, lambda: self.lives[before].view.tell_taken(lambda _: True))
                await self.world.sleep(self.rng.choice([0, 0.1]))
            except NodeCrashedError:
                pass
            self.table.default = other
            await self._tell_given(other)
        else:
            await self.stop(before)
            await self.ensure(before)

    async def stop(self, name: str) -> None:
        """Cleanly."""

        async def close() -> None:
            life = self.lives[name]
            await life.broker.close()
            await life.ledgers.close()

        await self._at(name, close)
        self.died(name)

    async def _tell_given(self, name: str) -> None:
        await self._at(name, lambda: self.lives[name].view.tell_given(lambda _: True))

    async def _at(self, name: str, what: Callable[[], Awaitable[Any]]) -> Any:
        """Run it where the broker lives."""
        if name not in self.lives or not self.lives[name].is_alive:
            return None
        return await self.world.node(name).run(lambda _: what())

    async def run_at_owner(self, what: Callable[[Broker], Awaitable[Any]]) -> Any:
        life = self.life
        assert life is not None
        return await life.node.run(lambda _: what(life.broker))
