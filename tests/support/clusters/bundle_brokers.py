"""Brokers that own bundles by ephemeral nodes, and what happens to their nodes, sessions and watches.

As :mod:`support.clusters.two_brokers`, with :class:`BundleOwnership` in the place of the table: nobody gives or takes
but the brokers themselves, by what the metadata store tells them, late, twice, or not at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from geminga import sim
from geminga.broker.composition.service import Broker
from geminga.broker.core.coercion import Json, encode_document
from geminga.broker.ownership.bundle_ownership import ROUND_MS, BundleOwnership
from geminga.broker.ownership.core.bundles import Bundle, Bundles, topic_hash
from geminga.broker.ownership.core.local_policies import (
    bundles_in,
    decode_local_policies,
    local_policies_path,
    with_bundles,
)
from geminga.broker.ownership.core.owner_data import OWNERS_PATH, owner_path
from geminga.broker.ownership.endpoints import Endpoints
from geminga.broker.ownership.namespace_bundles import BUNDLES_AGE_MS_MAX
from geminga.broker.ownership.ports import HERE, Elsewhere, Owner, Ownership
from geminga.broker.resources import Resources
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from support.clusters.two_brokers import CHANGES_S, NAMES, TOPICS, Cluster, Where, follow
from support.worlds.ownership import endpoints_of

SECOND: Final = "public/second"
SECOND_TOPICS: Final = tuple(f"persistent://{SECOND}/{name}" for name in ("three", "four"))
#: Topics are closed in this time once their broker knows that they are not its any more.
GRACE_S: Final = 2.0
#: ... and once nobody told it: a round, or what it remembers of the cut is old.
UNTOLD_S: Final = (ROUND_MS + BUNDLES_AGE_MS_MAX) / 1000 + GRACE_S
LATE_MS_MAX: Final = 3000
#: What is split at random has more hashes than that.
SPLIT_RANGE_MIN: Final = 1 << 26
#: Bundles of one namespace at most; more cuts would only make the story thinner.
CUTS_MAX: Final = 12


class BundleCluster(Cluster):
    """Two or three brokers, one namespace or two."""

    def __init__(self, world: sim.SimWorld) -> None:
        rng = world.rng("bundles")
        super().__init__(world, names=("a", "b", "c")[: rng.choice([2, 3])])
        self.has_second = rng.random() < 0.5
        self.topics = (*TOPICS, *SECOND_TOPICS) if self.has_second else TOPICS
        self.all_names = (*NAMES, *(TopicName.parse(text) for text in SECOND_TOPICS)) if self.has_second else NAMES
        self.ownerships: dict[str, BundleOwnership] = {}
        #: Until when a broker may have open what is not its any more, by name.
        self.excused: dict[str, float] = {}

    async def _set_up(self, node: sim.SimNode) -> None:
        await super()._set_up(node)
        if self.has_second:
            await self.brokers["a"].resources.namespaces.create(SECOND, {"replication_clusters": ["c"]})

    def ownership_of(self, node: sim.SimNode, metadata: MemoryMetadataStore) -> Ownership:
        me, resources = node.name, Resources(metadata)
        rng = self.world.rng("place", me)
        faults = metadata.faults
        faults.watch_lost_percent, faults.watch_twice_percent, faults.watch_late_percent = 20, 20, 30
        faults.watch_late_ms_max = LATE_MS_MAX

        async def policies_of(namespace: str) -> Mapping[str, Json] | None:
            found = await resources.find_namespace_policies(namespace)
            return None if found is None else found.document

        async def place(_: Bundle) -> Owner:
            # Registrations may be out of date: also one that is down is chosen.
            chosen = rng.choice(self.names)
            return HERE if chosen == me else Elsewhere(Endpoints(endpoints_of(chosen)), is_owner=False)

        ownership = BundleOwnership(
            metadata, node.runtime.clock, lambda: Endpoints(endpoints_of(me)), policies_of, place
        )
        self.ownerships[me] = ownership
        return ownership

    def begin_ownership(self, broker: Broker) -> None:
        assert isinstance(broker.ownership, BundleOwnership)
        broker.ownership.start()

    def crash(self, name: str) -> None:
        super().crash(name)
        self.ownerships.pop(name, None)

    def excuse(self, broker: str, seconds: float) -> None:
        self.excused[broker] = max(self.excused.get(broker, 0), self.world.now + seconds)

    # ---- what is true, by the server

    def bundles(self, namespace: str) -> Bundles | None:
        node = self.server.tree.get(local_policies_path(namespace))
        return None if node is None else bundles_in(namespace, decode_local_policies(namespace, node.value))

    def own_ranges(self, broker: str, namespace: str) -> list[tuple[int, int]]:
        """Of the nodes of its session."""
        tree, session = self.server.tree, self.stores[broker].session
        found = []
        for text in tree.children(f"{OWNERS_PATH}/{namespace}"):
            node = tree.get(f"{OWNERS_PATH}/{namespace}/{text}", session=session)
            if node is not None and node.stat.is_own:
                lower, _, upper = text.partition("_")
                found.append((int(lower, 16), int(upper, 16)))
        return found

    def check_owners(self) -> None:
        """Nobody has a topic open without a node for it, but who can not know yet; and so no two have."""
        for name in self.all_names:
            value = topic_hash(str(name))
            for broker, one in self.brokers.items():
                topic = one.topics.get(str(name))
                if topic is None or topic.is_closing or self.excused.get(broker, 0) > self.world.now:
                    continue
                ranges = self.own_ranges(broker, name.namespace)
                assert any(Bundle(name.namespace, *ends).has_hash(value) for ends in ranges), (
                    f"{name} is open at {broker}, whose session has {ranges}"
                )

    async def stored(self) -> dict[Where, bytes]:
        found: dict[Where, bytes] = {}
        for name in self.all_names:
            found |= await self._stored_somewhere(name)
        return found

    async def _stored_somewhere(self, name: TopicName) -> dict[Where, bytes]:
        for _ in range(100):
            for broker in self.names:
                try:
                    return await self.world.node(broker).run(lambda _, broker=broker: self._stored(broker, name))
                except GemingaError:
                    await self.world.sleep(0.2)
        raise AssertionError(f"{name} is served nowhere")


class BundleChanges:
    """What happens to bundles, sessions and brokers."""

    def __init__(self, cluster: BundleCluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.rng = cluster.world.rng("bundle changes")
        self.kinds: list[tuple[str, Callable[[str], Awaitable[None]]]] = [
            ("released", self.release),
            ("released", self.release),
            ("expired", self.expire),
            ("expired", self.expire),
            ("stalled", self.stall),
            ("crashed", self.crash),
            ("robbed", self.rob),
            ("cut", self.cut),
            ("split", self.split),
            ("split", self.split),
            ("uncertain", self.be_uncertain),
        ]

    async def run(self) -> None:
        while self.world.now < CHANGES_S:
            await self.world.sleep(self.rng.uniform(0, 1.2))
            label, change = self.rng.choice(self.kinds)
            self.world.points.hits[f"bundle.{label}"] += 1
            self.cluster.check_owners()
            await change(self.rng.choice(self.cluster.names))
            self.cluster.check_owners()
        for store in self.cluster.stores.values():
            store.faults.unknown_before_percent = store.faults.unknown_after_percent = 0
        await self.world.sleep(UNTOLD_S)
        self.cluster.check_owners()

    async def release(self, broker: str) -> None:
        ownership = self.cluster.ownerships[broker]
        owned = ownership.owned
        chosen = self.rng.sample(owned, self.rng.randrange(len(owned) + 1))

        async def release_all(_: sim.SimNode) -> None:
            await ownership.release(chosen)

        await self.world.node(broker).run(release_all)

    async def expire(self, broker: str) -> None:
        self.cluster.excuse(broker, GRACE_S)
        self.cluster.stores[broker].expire_session(self.rng.choice([0, 100, 6000]))
        await self.world.sleep(self.rng.choice([0, 0.05, GRACE_S]))

    async def stall(self, broker: str) -> None:
        """It stands still, its session ends, others take what it had, and it wakes up."""
        node, store = self.world.node(broker), self.cluster.stores[broker]
        seconds = self.rng.uniform(0, 3)
        self.cluster.excuse(broker, seconds + GRACE_S)
        self.world.pause(node)
        await self.world.sleep(seconds / 2)
        store.expire_session(self.rng.choice([0, 500]))
        await self.world.sleep(seconds / 2)
        self.world.resume(node)

    async def crash(self, broker: str) -> None:
        self.cluster.crash(broker)
        await self.world.sleep(self.rng.uniform(0, 1.0))
        self.cluster.check_owners()
        await self.cluster.boot(broker)

    async def rob(self, broker: str) -> None:
        """A node goes though its session lives, as by an operator's hand."""
        owned = self.cluster.ownerships[broker].owned
        if not owned:
            return
        self.cluster.excuse(broker, UNTOLD_S)
        other = self.cluster.stores[self.rng.choice(self.cluster.names)]
        path = owner_path(self.rng.choice(owned))
        tree = self.cluster.server.tree
        if tree.exists(path) and tree.is_alive(other.session):
            faults = self.cluster.stores[broker].faults
            before = faults.watch_lost_percent
            faults.watch_lost_percent = self.rng.choice([before, 100])
            self.cluster.server.notify(tree.delete(path, expected_version=None, session=other.session))
            faults.watch_lost_percent = before

    async def cut(self, broker: str) -> None:
        """Somebody else cuts a namespace otherwise, with what nobody expects in its local policies."""
        namespace = self.rng.choice([name.namespace for name in self.cluster.all_names])
        bundles = self.cluster.bundles(namespace)
        store = self.cluster.stores[broker]
        if (
            bundles is None
            or len(bundles.boundaries) > CUTS_MAX
            or not self.cluster.server.tree.is_alive(store.session)
        ):
            return
        bundle = self.rng.choice(bundles.all())
        after = bundles.with_split(bundle, [bundle.lower + (bundle.upper - bundle.lower) // 2])
        for name in self.cluster.names:
            self.cluster.excuse(name, UNTOLD_S)
        path = local_policies_path(namespace)
        tree = self.cluster.server.tree
        outcome = tree.put(
            path,
            encode_document(with_bundles({"later": 1}, after)),
            expected_version=None,
            session=store.session,
            now_ms=0,
        )
        self.cluster.server.notify(outcome.notifications)

    async def split(self, broker: str) -> None:
        """Its owner splits a bundle, while it may lose it."""
        ownership = self.cluster.ownerships[broker]
        owned = [bundle for bundle in ownership.owned if bundle.upper - bundle.lower > SPLIT_RANGE_MIN]
        if not owned:
            return
        bundle = self.rng.choice(owned)
        key = self.rng.randrange(bundle.lower + 1, bundle.upper)

        async def split_it(_: sim.SimNode) -> None:
            try:
                await ownership.split(bundle, [key])
                self.world.points.hits["bundle.was split"] += 1
            except GemingaError:
                pass

        splitting = self.world.node(broker).run(split_it)
        if self.rng.random() < 0.3:
            self.cluster.excuse(broker, GRACE_S)
            await self.world.sleep(self.rng.uniform(0, 0.2))
            self.cluster.stores[broker].expire_session(0)
        await splitting

    async def be_uncertain(self, broker: str) -> None:
        """Writes of a broker end without an answer, done or not."""
        faults = self.cluster.stores[broker].faults
        faults.unknown_before_percent = faults.unknown_after_percent = self.rng.choice([0, 10])


async def bundle_brokers(world: sim.SimWorld) -> None:
    """One story; raises where a promise was broken."""
    cluster = BundleCluster(world)
    await cluster.start()
    await follow(cluster, BundleChanges(cluster).run, cluster.topics)
