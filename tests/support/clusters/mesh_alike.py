"""Clusters whose configuration is one: kept alike by a topic that is copied between them, or in a store that all use.

Administrators of each say things at the same time, to their own brokers, while links, brokers, bookies and owners
change. In the end, when all is healed: every path says the same in all clusters; what it says was said, and nothing
that was answered was said later; what is said then holds everywhere; no start of a broker brings back what was deleted.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any, Final

import geminga.client as gc
from geminga.broker.composition.service import Broker
from geminga.broker.geo.sharing import Sharing
from geminga.broker.resources.configuration_paths import ConfigurationPaths
from geminga.broker.resources.initialization import FIRST_NAMESPACES
from geminga.broker.synchronization.client_topic import ClientEventTopic
from geminga.broker.synchronization.guard import StoredTopics
from geminga.broker.synchronization.paths import COORDINATORS_PATH
from geminga.broker.synchronization.separate import SeparateStores
from geminga.broker.synchronization.stored_records import StoredRecords
from geminga.broker.synchronization.synchronizer import Synchronizer
from geminga.metadata.divided import DividedMetadataStore
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.topic_name import SYSTEM_NAMESPACE, TopicName
from geminga.runtime import spawn
from geminga.sim import SimWorld
from support.clusters.mesh_strikes import Kind, MeshStrikes
from support.clusters.mesh_world import Mesh, MeshCluster
from support.worlds.client_world import CLIENT

EVENTS: Final = TopicName.parse("persistent://public/sync/events")
DEFAULT: Final = "public/default"
NAMESPACE: Final = "acme/both"
TOPIC: Final = f"persistent/{NAMESPACE}/parts"
#: Made in several clusters at once, with other numbers.
TWICE: Final = "twice"
LAST: Final = "/admin/resourcegroups/last"
#: Deleted in a cluster that can not tell it until another one has set it.
AWAY: Final = "/admin/resourcegroups/away"
#: Virtual seconds in which things happen, until the clusters know of each other, and in which all must be well then.
CHANGES_S: Final = 40.0
KNOWN_S: Final = 120.0
HEALED_S: Final = 200.0
#: So much later than what holds nothing may have been said: clocks differ by up to a second, a request that waits for a
#: broker that begins is carried out at its end, and the stamp of a change is lifted behind that which it replaces.
LATER_S: Final = 8.0
LOOK_S: Final = 0.5
#: Of stories of three clusters in which the last one comes while things happen.
LATE_CHANCE: Final = 0.5
#: So long nobody serves the topic of events in a cluster.
AWAY_S: Final = 15.0
#: Counts of what nothing that is said here is: of a cluster's own, without an end, or of the future.
REFUSED: Final = ("unsendable", "skipped")
CLOCKS_MS: Final = (0, 0, -500, 500)


@dataclass(slots=True)
class Word:
    """What an administrator said of a path."""

    value: int | None
    began_s: float
    #: None: nobody knows whether it was done.
    ended_s: float | None = None


class AlikeCluster(MeshCluster):
    """Keeps its configuration alike with others', or shares it."""

    def __init__(self, mesh: Mesh, name: str, common: MemoryMetadata | None) -> None:
        """``common``: the store that all use; None: each has its own."""
        super().__init__(mesh, name)
        self.common = common
        self.configuration = self.server if common is None else common
        self.commons: dict[str, MemoryMetadataStore] = {}
        self.synchronizers: dict[str, Synchronizer] = {}
        self.is_set_up = False
        #: Each cluster's own number.
        self.coordinators = 1 + mesh.names.index(name)
        self.settings = {"configuration_url": "zk:all"} if common is not None else {"is_kept_alike": True}
        self.table.owners[str(EVENTS)] = self.nodes[-1]

    def open_store(self, node: Any) -> Any:
        """As of the base."""
        own = super().open_store(node)
        if self.common is None:
            return own
        store = self.commons[node.name] = MemoryMetadataStore(node.runtime, self.common)
        store.faults.delay_ms_max = self.metadata_delay_ms
        return DividedMetadataStore(own, store, ConfigurationPaths())

    def sharing(self, others: Any, resources: Any) -> Any:
        """As of the base."""
        if self.common is None:
            return SeparateStores(self.name, resources)

        async def call(cluster: str, method: str, path: str, body: bytes) -> Any:
            return await others().answer(cluster, path, method, body)

        return Sharing(self.name, resources, call)

    def setup(self) -> Any:
        """As of the base; of a shared store its operator sets up a cluster, and brokers what is their own."""
        setup = replace(super().setup(), transaction_coordinators=self.coordinators)
        if self.common is None:
            return setup
        names = (SYSTEM_NAMESPACE,) if self.is_set_up else FIRST_NAMESPACES
        self.is_set_up = True
        return replace(setup, begins=names, joins=names)

    def began(self, node: Any, broker: Broker) -> None:
        """As of the base."""
        if self.common is not None:
            return
        synchronizer = self.synchronizers[node.name] = Synchronizer(
            node.runtime,
            broker.metadata,
            ClientEventTopic(EVENTS, self.name, lambda: gc.connect(self.url, runtime=node.runtime, **CLIENT)),
            StoredTopics(
                broker.metadata,
                broker.resources,
                self.name,
                EVENTS,
                broker.partitions.make_for_others,
                broker.policies.rules,
            ),
            cluster=self.name,
            leads=lambda: min(self.brokers, default="") == node.name,
            part=broker,
        )
        synchronizer.start()

    def crash(self, name: str) -> None:
        """As of the base."""
        super().crash(name)
        store = self.commons.pop(name, None)
        if store is not None and self.common is not None:
            self.common.detach(store)
            self.common.end_session(store.session, 0)

    def stored(self, path: str) -> Any:
        """The document at a path of the configuration; None: there is none."""
        node = self.configuration.tree.get(path)
        return json.loads(node.value) if node is not None and node.value else None


class AlikeStory:
    """See the module."""

    def __init__(self, world: SimWorld, *, by_topic: bool) -> None:
        self.world = world
        self.by_topic = by_topic
        self.rng = world.rng("alike")
        common = None if by_topic else MemoryMetadata()
        self.mesh = Mesh(
            world,
            ("k", "l", "m")[: self.rng.choice([2, 2, 3])],
            made=lambda mesh, name: AlikeCluster(mesh, name, common),
            clocks_ms=CLOCKS_MS,
        )
        self.strikes = MeshStrikes(world, self.rng, (EVENTS,))
        self.words: dict[str, list[Word]] = {}
        self.number = 0
        #: A cluster that comes in the midst; it knows nothing before.
        self.late = (
            self.clusters[-1] if by_topic and len(self.clusters) > 2 and self.rng.random() < LATE_CHANCE else None
        )
        self.came_late = False
        #: When somebody last changed a `public/default` of his own.
        self.own_until_s = 0.0
        own = self.strikes
        self.kinds: list[Kind] = [
            *((kind, change) for kind, change in own.kinds if kind != "clock"),
            ("uncertain", own.be_uncertain),
            ("cut", self._cut),
            ("away", self._be_away),
            *[("said", self._say)] * 8,
        ]

    @property
    def clusters(self) -> list[AlikeCluster]:
        """All of them."""
        return [cluster for cluster in self.mesh.clusters.values() if isinstance(cluster, AlikeCluster)]

    @property
    def label(self) -> str:
        """Of the points."""
        return "alike" if self.by_topic else "shared"

    async def run(self) -> None:
        await self._begin()
        until_s = self.world.now + CHANGES_S
        await asyncio.gather(
            *(spawn(self._change(cluster, until_s), name=f"changes of {cluster.name}") for cluster in self.clusters)
        )
        self.came_late, self.late = self.late is not None, None
        self.world.network.heal()
        await self._settle("when all is healed")
        self._check_words()
        for path in (*self.words, LAST):
            if not path.endswith((DEFAULT, TWICE)):
                await self._say_surely(path)
        await self._settle("after the last words")
        self._check_words()
        await self._begin_again()
        await self._settle("after a cluster began again")
        self._check_words()
        if self.by_topic:
            await self._delete_while_away()
            await self._settle("after a cluster was away that had deleted something")
            self._check_words()

    # ---- what happens

    async def _begin(self) -> None:
        names = [*self.mesh.names]
        for cluster in self._present():
            await cluster.start()
        for cluster in self._present() if self.by_topic else self.clusters[:1]:
            await self._introduce(cluster)
        first = self.clusters[0]
        await self._insist(first, "PUT", "tenants/acme", {"allowedClusters": names})
        await self._insist(first, "PUT", f"namespaces/{NAMESPACE}", {"replication_clusters": names})
        await self._insist(first, "PUT", f"{TOPIC}/partitions", 1)
        await self._settle("at the beginning", KNOWN_S)

    def _present(self) -> list[AlikeCluster]:
        return [cluster for cluster in self.clusters if cluster is not self.late]

    async def _introduce(self, cluster: AlikeCluster) -> None:
        names = [*self.mesh.names]
        for other in self.clusters:
            document = {"serviceUrl": other.web_url, "brokerServiceUrl": other.url}
            method = "PUT" if cluster.stored(f"/admin/clusters/{other.name}") is None else "POST"
            await self._insist(cluster, method, f"clusters/{other.name}", document)
        await self._insist(cluster, "POST", "tenants/public", {"allowedClusters": names})
        await self._insist(cluster, "PUT", f"namespaces/{EVENTS.namespace}", {"replication_clusters": names})

    async def _insist(self, cluster: AlikeCluster, method: str, path: str, value: object = None) -> None:
        until_s = self.world.now + HEALED_S
        while True:
            status = await cluster.administer(method, path, value)
            if 200 <= status < 300:
                return
            assert self.world.now < until_s, f"{method} {path} at {cluster.name}: {status}"
            await self.world.sleep(LOOK_S)

    async def _change(self, cluster: AlikeCluster, until_s: float) -> None:
        if cluster is self.late:
            self.world.points.hits["alike.late"] += 1
            await self.world.sleep(CHANGES_S / 2)
            await cluster.start()
            await self._introduce(cluster)
        while self.world.now < until_s:
            await self.strikes.change(cluster, self.label, self.kinds)

    async def _cut(self, cluster: MeshCluster) -> None:
        other = self.rng.choice([name for name in self.mesh.names if name != cluster.name])
        pairs = self.mesh.pairs_of(cluster.name, other)
        for one, far in pairs:
            self.world.network.partition(one, far)
        await self.world.sleep(self.rng.choice([0.2, 2.0, 6.0]))
        for one, far in pairs:
            self.world.network.heal(one, far)

    async def _be_away(self, cluster: MeshCluster) -> None:
        await cluster.table.give([EVENTS], None)
        await self.world.sleep(self.rng.uniform(0, AWAY_S))
        await cluster.table.give([EVENTS], self.rng.choice(cluster.nodes))

    async def _say(self, cluster: MeshCluster) -> None:
        assert isinstance(cluster, AlikeCluster)
        path = self.rng.choice(
            [
                "/admin/resourcegroups/a",
                "/admin/resourcegroups/b",
                f"/admin/policies/{NAMESPACE}",
                f"/admin/policies/{NAMESPACE}",
                f"/admin/policies/{DEFAULT}",
                f"/admin/partitioned-topics/{NAMESPACE}/persistent/parts",
                f"/admin/partitioned-topics/{NAMESPACE}/persistent/{TWICE}",
            ]
        )
        await self._say_of(cluster, path)

    async def _say_surely(self, path: str, at: AlikeCluster | None = None, *, is_deletion: bool = False) -> None:
        cluster = self.rng.choice(self.clusters) if at is None else at
        until_s = self.world.now + HEALED_S
        while not await self._say_of(cluster, path, is_deletion=is_deletion):
            assert self.world.now < until_s, f"nobody at {cluster.name} hears what is said of {path}"
            await self.world.sleep(LOOK_S)

    async def _say_of(self, cluster: AlikeCluster, path: str, *, is_deletion: bool | None = None) -> bool:
        """Whether it was done."""
        self.number += 1
        value: int | None = self.number
        place = path.split("/")[2]
        if place == "resourcegroups":
            rest = f"resourcegroups/{path.rpartition('/')[2]}"
            if self.rng.random() < 0.3 if is_deletion is None else is_deletion:
                method, body, value = "DELETE", None, None
            else:
                method, body = "PUT", {"publishRateInMsgs": value}
        elif path.endswith(DEFAULT):
            return await self._change_default(cluster, path)
        elif path.endswith(TWICE):
            value = self.rng.randrange(1, 5)
            method, rest, body = "PUT", f"persistent/{NAMESPACE}/{TWICE}/partitions", value
        elif place == "policies":
            method, rest, body = "POST", f"namespaces/{NAMESPACE}/messageTTL", value
        else:
            found = cluster.stored(path)
            value = (0 if found is None else int(found["partitions"])) + 1
            method, rest, body = "POST", f"{TOPIC}/partitions", value
        word = Word(value, self.world.now)
        self.words.setdefault(path, []).append(word)
        status = await cluster.administer(method, rest, body)
        if 200 <= status < 300:
            word.ended_s = self.world.now
            return True
        if 400 <= status < 500:
            self.words[path].remove(word)  # refused
        return False

    async def _change_default(self, cluster: AlikeCluster, path: str) -> bool:
        """Of a cluster's own; or it is deleted for good, where it lives in one."""
        deletions = self.words.setdefault(path, [])
        if self.by_topic and not deletions and self.rng.random() < 0.8:
            await cluster.administer("POST", f"namespaces/{DEFAULT}/messageTTL", self.number)
            self.own_until_s = self.world.now
            return True
        if not self.by_topic:
            await cluster.administer("POST", f"namespaces/{DEFAULT}/replication", [cluster.name])
        word = Word(None, self.world.now)
        deletions.append(word)
        if 200 <= await cluster.administer("DELETE", f"namespaces/{DEFAULT}") < 300:
            word.ended_s = self.world.now
        return True

    async def _begin_again(self) -> None:
        cluster = self.rng.choice(self.clusters)
        for node in cluster.nodes:
            cluster.crash(node)
        for node in cluster.nodes:
            await cluster.boot(node)

    async def _delete_while_away(self) -> None:
        """What is told of last was said first."""
        cluster, other = self.rng.sample(self.clusters, 2)
        await self._say_surely(AWAY)
        await self._settle("before a cluster is away")
        await cluster.table.give([EVENTS], None)
        # Which waits for the topic, and what is said behind it for that.
        await self._say_surely(LAST, cluster)
        await self.world.sleep(2 * LOOK_S)
        await self._say_surely(AWAY, cluster, is_deletion=True)
        # When it was is noted by a broker that leads: who ends before that, and finds no topic again, notes it then.
        await self.world.sleep(2 * LOOK_S)
        if self.rng.random() < 0.5:
            await self.strikes.crash(cluster)
        await self.world.sleep(LATER_S + self.rng.uniform(1, 6))
        await self._say_surely(AWAY, other)
        await cluster.table.give([EVENTS], self.rng.choice(cluster.nodes))

    # ---- what must hold

    def _value(self, cluster: AlikeCluster, path: str) -> int | None:
        found = cluster.stored(path)
        if found is None:
            return None
        key = {"resourcegroups": "publishRateInMsgs", "policies": "message_ttl_in_seconds"}
        value = found.get(key.get(path.split("/")[2], "partitions"), 0)
        return int(value) if value is not None else 0

    async def _settle(self, when: str, patience_s: float = HEALED_S) -> None:
        until_s = self.world.now + patience_s
        while left := [*self._different(), *await self._waiting()]:
            assert self.world.now < until_s, f"{when}, left after {patience_s} s: {left[:5]}"
            await self.world.sleep(LOOK_S)

    def _different(self) -> list[str]:
        found = []
        for path in (f"/admin/policies/{NAMESPACE}", f"/admin/partitioned-topics/{NAMESPACE}/persistent/parts",
                     *self.words):  # fmt: skip
            if path.endswith(DEFAULT):  # each has its own, until one deletes it
                found += [f"{path} is in {name} again" for name in self._kept_default(path)]
                continue
            values = [self._value(cluster, path) for cluster in self._present()]
            if len(set(values)) > 1 or (path not in self.words and values[0] is None):
                found.append(f"{path} is {values}")
        return found

    async def _waiting(self) -> list[str]:
        """What is told, or followed, only now; clusters that do not know of each other yet."""
        found = []
        for cluster in self._present() if self.by_topic else ():
            others = {other.name for other in self._present()} - {cluster.name}
            told = await StoredRecords(cluster.stores[cluster.nodes[0]]).told()
            if not others <= told.clusters:
                found.append(f"{cluster.name} told {sorted(told.clusters)} how everything came to be")
            found += [
                f"{name} of {cluster.name} has {one.metrics()} waiting"
                for name, one in cluster.synchronizers.items()
                if name == min(cluster.brokers, default="") and one.metrics()["geminga_configuration_sync_waiting"]
            ]
        return found

    def _check_words(self) -> None:
        for path, words in self.words.items():
            value = self._value(self.clusters[0], path)
            if path.endswith(DEFAULT):
                self._check_default(path, words)
                continue
            if path.endswith(("/parts", TWICE)):
                least = max((word.value or 0 for word in words if word.ended_s is not None), default=0)
                assert value is not None or not least, f"{path} is gone"
                value = value or 0
                assert value >= least, f"{path} says {value} partitions, after {least} were made"
                self._check_partitions(path.rpartition("/")[2], value)
                continue
            same = [word for word in words if word.value == value]
            assert same or not words, f"{path} says {value}, which nobody said: {words}"
            if any(word.ended_s is None for word in same) or not same:
                continue  # nobody knows when
            last_s = max(word.ended_s for word in same if word.ended_s is not None)
            later = [word for word in words if word.ended_s is not None and word.began_s > last_s + LATER_S]
            assert not later, f"{path} says {value} of {last_s}, and was told {later} later"
        for cluster in self.clusters:
            assert cluster.stored(f"/admin/policies/{SYSTEM_NAMESPACE}") is not None
            found = self._value(cluster, COORDINATORS_PATH)
            assert found == cluster.coordinators or not self.by_topic, f"{cluster.name} has {found} coordinators"
            for name, one in cluster.synchronizers.items():
                refused = {key: one.metrics()[f"geminga_configuration_sync_{key}_total"] for key in REFUSED}
                assert not any(refused.values()), f"{name} tells, or is told, what nobody takes: {refused}"

    def _check_default(self, path: str, words: list[Word]) -> None:
        """Nobody takes it from another one that has its own; what was deleted stays so."""
        for name in self._kept_default(path):
            raise AssertionError(f"{path} was deleted, and is in {name} again")
        for cluster in self.clusters:
            found = cluster.stored(path)
            if found is not None and self.by_topic and not words:
                assert found["replication_clusters"] == [cluster.name], f"{cluster.name} lost {path}: {found}"

    def _kept_default(self, path: str) -> list[str]:
        """Clusters in which it is though it was deleted for certain, but for who came with one."""
        surely = [
            word for word in self.words[path] if word.ended_s is not None and word.began_s > self.own_until_s + LATER_S
        ]
        return [
            cluster.name
            for cluster in self.clusters
            if surely and cluster.stored(path) and not (self.came_late and cluster is self.clusters[-1])
        ]

    def _check_partitions(self, name: str, count: int) -> None:
        """More are there, wherever the topic is, before anybody hears of them."""
        if self.by_topic or name == TWICE:
            return
        for cluster in self.clusters:
            names = set(cluster.server.tree.children(f"/managed-ledgers/{NAMESPACE}/persistent"))
            missing = {f"{name}-partition-{number}" for number in range(1, count)} - names
            assert not missing, f"{missing} are not in {cluster.name}"


async def mesh_alike(world: SimWorld) -> None:
    """One story of clusters whose configuration a topic keeps alike; raises where a promise was broken."""
    await AlikeStory(world, by_topic=True).run()


async def mesh_shared(world: SimWorld) -> None:
    """The same of clusters whose configuration is in one store."""
    await AlikeStory(world, by_topic=False).run()
