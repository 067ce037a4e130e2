"""Brokers that report and balance over one metadata store; owners are a table, and who carries what is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from geminga import sim
from geminga.broker.core.coercion import Document
from geminga.broker.load.balancer import LoadBalancer
from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.members import namespace_of
from geminga.broker.load_rules.reports import BundleStats, HostUsage, LoadRates, Usage, report_path, sum_of
from geminga.metadata import MemoryMetadata, MemoryMetadataStore, MetadataFaults
from geminga.model.errors import MetadataError, UnavailableError
from geminga.runtime import Runtime, wait_ms


class LoadedBroker:
    """One of them; a ``LoadPeers``."""

    def __init__(self, cluster: LoadedCluster, name: str, config: LoadConfig) -> None:
        self.id = f"{name}:8080"
        self.cluster = cluster
        self.store = MemoryMetadataStore(cluster.runtime, cluster.server, cluster.faults)
        self.reports = 0
        self.is_away = False
        self.is_deaf = False
        #: What was not expected, and raised to be so when it is asked what it carries.
        self.broken: list[str] = []
        self.stats_error: Exception | None = None
        self._value: bytes | None = None
        self.balancer = LoadBalancer(
            cluster.runtime, self.store, config, self, self.read_stats, self.usage, cluster="standalone", part=self
        )

    def broke(self, what: str, error: BaseException) -> None:
        """It goes on."""
        self.broken.append(f"{what}: {error}")

    # ---- what it carries

    async def read_stats(self) -> Mapping[str, BundleStats]:
        """As the balancer asks for them."""
        if self.stats_error is not None:
            raise self.stats_error
        return self.stats()

    def stats(self) -> Mapping[str, BundleStats]:
        """Of the bundles that it owns."""
        return {name: one for name, one in self.cluster.stats.items() if self.cluster.owners.get(name) == self.id}

    def usage(self) -> HostUsage:
        """A percent of CPU for 1,000 messages a second."""
        return HostUsage(cpu=Usage(sum_of(one.rates for one in self.stats().values()).messages / 1000, 100.0))

    # ---- LoadPeers

    @property
    def is_member(self) -> bool:
        """Until it goes away."""
        return not self.is_away

    @property
    def is_leader(self) -> bool:
        """Whom the table names."""
        return self.cluster.leader == self.id and not self.is_away

    @property
    def document(self) -> Document:
        """No more than tools need."""
        return {"webServiceUrl": f"http://{self.id}"}

    def report(self, value: bytes) -> None:
        """Written when the loop comes to it, by who pumps."""
        self.reports += 1
        self._value = value
        self.cluster.unwritten.append(self)

    async def write(self) -> None:
        """What it said last."""
        if self._value is not None:
            await self.store.put(report_path(self.id), self._value, expected_version=None)

    async def unload(self, bundle: str, destination: str) -> None:
        """The table changes, unless the owner does not answer."""
        owner = self.cluster.owners[bundle]
        if self.cluster.brokers[owner].is_deaf:
            raise UnavailableError("no answer")
        self.cluster.moved.append(bundle)
        self.cluster.owners[bundle] = destination

    async def split(self, bundle: str, *, unload: bool) -> None:
        """In the middle; each half carries half."""
        del unload
        namespace, _, hashes = bundle.rpartition("/")
        lower, upper = (int(text, 16) for text in hashes.split("_"))
        middle = lower + (upper - lower) // 2
        stats, owner = self.cluster.stats.pop(bundle), self.cluster.owners.pop(bundle)
        half = BundleStats(LoadRates(*(rate / 2 for rate in stats.rates)), *(count // 2 for count in stats[1:]))
        for first, last in ((lower, middle), (middle, upper)):
            name = f"{namespace}/0x{first:08x}_0x{last:08x}"
            self.cluster.stats[name], self.cluster.owners[name] = half, owner
        self.cluster.split.append(bundle)

    async def bundle_count(self, namespace: str) -> int:
        """Of the table."""
        return sum(namespace_of(bundle) == namespace for bundle in self.cluster.stats)


class LoadedCluster:
    """The table, and who is there."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.server = MemoryMetadata()
        self.faults = MetadataFaults()
        self.store = MemoryMetadataStore(runtime, self.server)
        self.brokers: dict[str, LoadedBroker] = {}
        self.leader = ""
        self.stats: dict[str, BundleStats] = {}
        self.owners: dict[str, str] = {}
        self.moved: list[str] = []
        self.split: list[str] = []
        self.unwritten: list[LoadedBroker] = []

    def join(self, name: str, config: LoadConfig) -> LoadedBroker:
        """A broker more; the first one leads."""
        made = LoadedBroker(self, name, config)
        self.brokers[made.id] = made
        self.leader = self.leader or made.id
        made.balancer.start()
        return made

    async def run(self, seconds: float) -> None:
        """Let time pass, second by second; reports are written on the way."""
        for _ in range(int(seconds)):
            await wait_ms(1000)
            while self.unwritten:
                broker = self.unwritten.pop()
                try:
                    await broker.write()
                except MetadataError:
                    self.unwritten.insert(0, broker)
                    break

    def carried(self) -> dict[str, float]:
        """Messages a second, by broker."""
        return {
            name: sum_of(one.rates for one in broker.stats().values()).messages for name, broker in self.brokers.items()
        }

    async def close(self) -> None:
        """All brokers end."""
        for broker in self.brokers.values():
            await broker.balancer.close()
            await broker.store.close()
        await self.store.close()


def run_cluster(story: Callable[[LoadedCluster], Awaitable[None]], seed: int = 7) -> None:
    """A story on a simulated node."""

    async def told(node: sim.SimNode) -> None:
        cluster = LoadedCluster(node.runtime)
        await story(cluster)
        await cluster.close()

    async def scenario(world: sim.SimWorld) -> None:
        await world.node("brokers").run(told)

    sim.run(scenario, seed=seed)
