"""What happens to a simulated cluster: to its brokers, bookies, clients, metadata, and to who owns what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from geminga.broker.ownership.bundle_ownership import ROUND_MS, BundleOwnership
from geminga.broker.ownership.core.bundles import Bundle
from geminga.broker.ownership.core.owner_data import owner_path
from geminga.broker.ownership.ports import Elsewhere, Owner
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn
from geminga.sim import NodeCrashedError, SimNode
from support.clusters.cluster_bookie_faults import SPANS_S, BookieFaults
from support.clusters.cluster_checks import Excuses
from support.clusters.cluster_metadata_node import LATE_MS_MAX, SESSION_MS, TOLD_S
from support.clusters.cluster_traffic import CLIENTS
from support.clusters.cluster_world import BOOKIES, BROKERS, NAMES, NAMESPACE, ClusterWorld

#: What is split has more hashes than that, and so many bundles there are at most.
SPLIT_RANGE_MIN: Final = 1 << 26
BUNDLES_MAX: Final = 12
#: All kinds; a story has a few, half or all of them.
KINDS: Final = (
    "broker crashed",
    "broker stopped",
    "broker stalled",
    "broker cut from metadata",
    "broker cut from bookies",
    "broker cut from broker",
    "client cut off",
    "client crashed",
    "client stalled",
    "connections reset",
    "session expired",
    "metadata stalled",
    "writes uncertain",
    "clock jumped",
    "bookie crashed",
    "bookie stalled",
    "disk slow",
    "disk failed",
    "disk full",
    "bundles unloaded",
    "bundle split",
    "bundles split at once",
    "bundle sent",
    "bundle robbed",
    "ownership raced",
)
#: As they are counted.
LABELS: Final = tuple(
    f"cluster.{kind}"
    for kind in (*KINDS, "watches lost", "bundle was split", "split struck", "broker usurped", "bundle went there")
)
#: In so many seconds a split is done where nothing is slow: what strikes it does so within.
SPLIT_S: Final = 0.01


class Faults(BookieFaults):
    """Each kind is counted as ``cluster.`` and its name."""

    def __init__(self, cluster: ClusterWorld, excuses: Excuses) -> None:
        super().__init__(cluster)
        self.network = cluster.world.network
        self.excuses = excuses
        #: Where bundles begin that a split answered with; nothing puts them together again.
        self.cuts: set[int] = set()
        kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "broker crashed": self.crash_broker,
            "broker stopped": self.stop_broker,
            "broker stalled": self.stall_broker,
            "broker cut from metadata": self.cut_from_metadata,
            "broker cut from bookies": self.cut_from_bookies,
            "broker cut from broker": self.cut_from_broker,
            "client cut off": self.cut_client,
            "client crashed": self.crash_client,
            "client stalled": self.stall_client,
            "connections reset": self.reset,
            "session expired": self.expire,
            "metadata stalled": self.stall_metadata,
            "writes uncertain": self.be_uncertain,
            "clock jumped": self.jump,
            "bookie crashed": self.crash_bookie,
            "bookie stalled": self.stall_bookie,
            "disk slow": self.slow_disk,
            "disk failed": self.fail_disk,
            "disk full": self.fill_disk,
            "bundles unloaded": self.unload,
            "bundle split": self.split,
            "bundles split at once": self.split_at_once,
            "bundle sent": self.send,
            "ownership raced": self.race,
            "bundle robbed": self.rob,
        }
        # Few kinds, so that stories go far in one direction; and all.
        count = self.rng.choice((4, 8, len(KINDS)))
        self.kinds = [(label, kinds[label]) for label in self.rng.sample(KINDS, count)]
        self.pause_s = self.rng.choice((0.3, 1.0, 2.0))
        self.has_bad_watches = self.rng.random() < 0.7

    async def run(self, until_s: float) -> None:
        if self.has_bad_watches:
            self.world.points.hits["cluster.watches lost"] += 1
            for faults in self.cluster.metadata.faults.values():
                faults.watch_lost_percent, faults.watch_twice_percent, faults.watch_late_percent = 20, 20, 30
                faults.watch_late_ms_max = LATE_MS_MAX
        while self.world.now < until_s:
            await self.world.sleep(self.rng.uniform(0, self.pause_s))
            label, strike = self.rng.choice(self.kinds)
            self.world.points.hits[f"cluster.{label}"] += 1
            await strike()

    async def calm_down(self) -> None:
        """Nobody disturbs any more, and all are there."""
        for faults in self.cluster.metadata.faults.values():
            faults.unknown_before_percent = faults.unknown_after_percent = 0
        self.network.heal()
        self.network.refuse(self.cluster.metadata.node, refuse=False)
        for node in self.world.nodes.values():
            self.world.resume(node)
        for bookie in self.cluster.bookies.values():
            bookie.node.disk.clear_faults()
        while self.cluster.away:
            await self.world.sleep(0.1)

    def _up(self) -> list[str]:
        return [name for name in BROKERS if name in self.cluster.brokers and name not in self.cluster.away]

    def _broker(self) -> str | None:
        up = self._up()
        return self.rng.choice(up) if up else None

    # ---- brokers

    async def crash_broker(self) -> None:
        if (name := self._broker()) is not None:
            self.cluster.crash(name)
            self._come_back(name)

    async def stop_broker(self) -> None:
        """In good order; others take its bundles."""
        if (name := self._broker()) is not None:
            self.cluster.away.add(name)
            spawn(self._stop(name), name=f"{name} stops")

    async def _stop(self, name: str) -> None:
        await self.cluster.stop(name)
        self._come_back(name)

    def _come_back(self, name: str) -> None:
        self.cluster.away.add(name)
        # What was cut off for its former life may heal while it starts, and it waits for that life's session.
        spawn(self._boot(name, self.span_s()), name=f"{name} comes back")

    async def _boot(self, name: str, seconds: float) -> None:
        await self.world.sleep(seconds)
        await self.cluster.boot(name)
        self.cluster.away.discard(name)

    async def stall_broker(self) -> None:
        if (name := self._broker()) is not None:
            seconds = self.span_s()
            self.excuses.give(name, seconds + TOLD_S)
            self.world.pause(self.world.node(name), seconds)
            self._usurp_later(name, seconds)

    def _usurp_later(self, name: str, seconds: float) -> None:
        """While a broker can not know that its session ended, another one is asked for what it serves."""
        since_s = SESSION_MS / 1000 + 0.3
        if seconds > since_s:
            self.later(self.rng.uniform(since_s, seconds), self._usurp, name)

    def _usurp(self, name: str) -> None:
        others = [other for other in self._up() if other != name]
        if name not in self.cluster.brokers or not others:
            return
        open_there = [one for one in NAMES if str(one) in self.cluster.brokers[name].topics]
        self.world.points.hits["cluster.broker usurped"] += 1
        other = self.rng.choice(others)
        self.world.node(other).run(partial(self._serve, other, open_there))

    async def _serve(self, broker: str, names: list[TopicName], _: SimNode) -> None:
        for name in names:
            try:
                await self.cluster.members[broker].ownership.owner_of(name, is_authoritative=True)
                await self.cluster.brokers[broker].registry.get(name, create=True)
            except GemingaError:
                continue

    def _cut(self, one: SimNode, others: list[SimNode], seconds: float) -> None:
        for other in others:
            self.network.partition(one, other, one_way=self.rng.random() < 0.2)
            self.later(seconds, self.network.heal, one, other)

    async def cut_from_metadata(self) -> None:
        if (name := self._broker()) is not None:
            seconds = self.span_s()
            self.excuses.give(name, seconds + TOLD_S)
            self._cut(self.world.node(name), [self.cluster.metadata.node], seconds)
            self._usurp_later(name, seconds)

    async def cut_from_bookies(self) -> None:
        if (name := self._broker()) is not None:
            chosen = self.rng.sample(BOOKIES, self.rng.choice((1, 2, len(BOOKIES))))
            self._cut(self.world.node(name), [self.world.node(one) for one in chosen], self.span_s())

    async def cut_from_broker(self) -> None:
        one, other = self.rng.sample(BROKERS, 2)
        self._cut(self.world.node(one), [self.world.node(other)], self.span_s())

    async def race(self) -> None:
        """All are asked for topics at once, by somebody who says that they are the ones."""
        names = self.rng.sample(NAMES, 3)
        for broker in self._up():
            self.world.node(broker).run(partial(self._serve, broker, names))

    def _race(self, broker: str) -> None:
        if broker in self._up():
            self.world.node(broker).run(partial(self._serve, broker, list(NAMES)))

    async def unload(self) -> None:
        """Under load; the next to ask decides who is next."""
        if (name := self._broker()) is None:
            return
        ownership = self.cluster.members[name].ownership
        owned = ownership.owned
        chosen = self.rng.sample(owned, self.rng.randrange(len(owned) + 1))

        async def release(_: SimNode) -> None:
            await ownership.release(chosen)

        self.world.node(name).run(release)

    async def send(self) -> None:
        """A bundle is unloaded with a destination: the leader is told, then the owner lets go, and it is asked for."""
        leaders = [one for one in self._up() if self._leads(one)]
        owners = [one for one in self._up() if self.cluster.members[one].ownership.owned]
        if not leaders or not owners:
            return
        owner = self.rng.choice(owners)
        member, placement = self.cluster.members[owner], self.cluster.members[leaders[0]].placement
        bundle, destination = self.rng.choice(member.ownership.owned), self.rng.choice(self._up())
        there = self.cluster.members[destination]
        assert placement is not None
        placement.send(bundle, there.broker_id)
        names = [name for name in NAMES if bundle.has(name)]

        async def release() -> None:
            try:
                await self.world.node(owner).run(lambda _: member.ownership.release([bundle]))
                for name in names:
                    # As clients do that were sent away.
                    await self._ask(owner, name)
            except (GemingaError, NodeCrashedError):
                return
            if bundle in there.ownership.owned:
                self.world.points.hits["cluster.bundle went there"] += 1

        spawn(release(), name=f"send {bundle} to {destination}")

    def _leads(self, name: str) -> bool:
        election = self.cluster.members[name].election
        return election is not None and election.is_leader

    async def _ask(self, asked: str, name: TopicName) -> None:
        """Follow one lookup from broker to broker. Raises GemingaError, NodeCrashedError."""
        is_authoritative = False
        for _ in BROKERS:
            if asked not in self.cluster.members:
                return
            owner = await self.world.node(asked).run(partial(self._owner_at, asked, name, is_authoritative))
            if not isinstance(owner, Elsewhere) or owner.is_owner:
                return
            asked = owner.endpoints.default.broker_url.removeprefix("pulsar://").partition(":")[0]
            is_authoritative = owner.is_chosen

    async def _owner_at(self, asked: str, name: TopicName, is_authoritative: bool, _: SimNode) -> Owner:
        return await self.cluster.members[asked].ownership.owner_of(name, is_authoritative=is_authoritative)

    async def split(self) -> None:
        """Sometimes twice at once, elsewhere or at the same key, while other things happen to the bundle."""
        if (name := self._broker()) is not None:
            self._begin_split(name)

    async def split_at_once(self) -> None:
        """By all brokers, each one of its own; one of them is struck in the middle, or nobody is told of anything."""
        up = self._up()
        is_told, cuts = self.rng.random() < 0.5, self.rng.choice((1, 2, None))
        if not is_told:
            for name in up:
                faults = self.cluster.metadata.faults[name]
                self.later(SPLIT_S, setattr, faults, "watch_lost_percent", faults.watch_lost_percent)
                faults.watch_lost_percent = 100
        begun = [name for name in self.rng.sample(up, len(up)) if self._begin_split(name, cuts)]
        if not begun:
            return
        self.later(self.rng.uniform(SPLIT_S, 1), self._race, self.rng.choice(BROKERS))
        struck = begun[0]
        strike = self.rng.choice((None, self._crash, self._stall, self.cluster.metadata.expire, self._be_uncertain))
        if strike is not None:
            self.world.points.hits["cluster.split struck"] += 1
            self.excuses.give(struck, max(SPANS_S) * 1.3 + TOLD_S)
            self.later(self.rng.uniform(0, SPLIT_S), strike, struck)

    def _begin_split(self, name: str, cuts: int | None = None) -> bool:
        """``cuts``: so many, once; None: as it comes. Whether there was something to split."""
        ownership = self.cluster.members[name].ownership
        owned = [bundle for bundle in ownership.owned if bundle.upper - bundle.lower > SPLIT_RANGE_MIN]
        if not owned or len(owned) > BUNDLES_MAX:
            return False
        bundle = self.rng.choice(owned)
        for _ in range(self.rng.choice((1, 2)) if cuts is None else 1):
            count = self.rng.choice((1, 2)) if cuts is None else cuts
            keys = {self.rng.randrange(bundle.lower + 1, bundle.upper) for _ in range(count)}
            self.world.node(name).run(partial(self._split, ownership, bundle, sorted(keys)))
        return True

    def _crash(self, name: str) -> None:
        if name in self._up():
            self.cluster.crash(name)
            self._come_back(name)

    def _stall(self, name: str) -> None:
        if name in self._up():
            seconds = self.span_s()
            self.world.pause(self.world.node(name), seconds)
            self._usurp_later(name, seconds)

    def _be_uncertain(self, name: str) -> None:
        faults = self.cluster.metadata.faults[name]
        faults.unknown_before_percent = faults.unknown_after_percent = 40
        self.later(SPLIT_S, self._be_certain, name)

    def _be_certain(self, name: str) -> None:
        faults = self.cluster.metadata.faults[name]
        faults.unknown_before_percent = faults.unknown_after_percent = 0

    async def _split(self, ownership: BundleOwnership, bundle: Bundle, keys: list[int], _: SimNode) -> None:
        try:
            parts = await ownership.split(bundle, keys)
            self.cuts.update(part.lower for part in parts if part.namespace == NAMESPACE)
            self.world.points.hits["cluster.bundle was split"] += 1
        except GemingaError:
            return

    # ---- clients

    async def cut_client(self) -> None:
        client = self.world.node(self.rng.choice(CLIENTS))
        chosen = self.rng.sample(BROKERS, self.rng.choice((1, 2, 3)))
        self._cut(client, [self.world.node(name) for name in chosen], self.span_s())

    async def crash_client(self) -> None:
        self.world.crash(self.world.node(self.rng.choice(CLIENTS)), reset_peers=self.rng.random() < 0.5)

    async def stall_client(self) -> None:
        self.world.pause(self.world.node(self.rng.choice(CLIENTS)), self.span_s())

    async def reset(self) -> None:
        self.network.reset_connections(self.world.node(self.rng.choice((*BROKERS, *CLIENTS, *BOOKIES, "metadata"))))

    # ---- metadata and clocks

    async def expire(self) -> None:
        """Sometimes with no new session for a while: what it had must be closed all the same."""
        if (name := self._broker()) is None:
            return
        node, metadata = self.world.node(name), self.cluster.metadata
        if self.rng.random() < 0.5 and any(
            one.peer.host == metadata.node.name for one in self.network.connections(node)
        ):
            seconds = self.span_s()
            for other in BROKERS:
                if other != name:
                    self.excuses.give(other, seconds + TOLD_S)
            self.network.refuse(metadata.node)
            self.later(seconds, partial(self.network.refuse, metadata.node, refuse=False))
        self.excuses.give(name, TOLD_S)
        metadata.expire(name)

    async def stall_metadata(self) -> None:
        seconds = self.span_s()
        for name in BROKERS:
            self.excuses.give(name, seconds + TOLD_S)
        self.world.pause(self.cluster.metadata.node, seconds)

    async def be_uncertain(self) -> None:
        """Writes end without an answer, done or not."""
        faults = self.cluster.metadata.faults[self.rng.choice(BROKERS)]
        faults.unknown_before_percent = faults.unknown_after_percent = self.rng.choice((0, 10))

    async def jump(self) -> None:
        name = self.rng.choice((*BROKERS, *CLIENTS, *BOOKIES, "metadata"))
        self.world.node(name).clock.jump(self.rng.choice((-3_600_000, -2000, 2000, 3_600_000)))

    # ---- an operator's hand

    async def rob(self) -> None:
        """A bundle's node goes though its session lives, and its owner is not told."""
        if (name := self._broker()) is None:
            return
        tree = self.cluster.metadata.state.tree
        store = self.cluster.metadata
        session = store.session_of(self.cluster.stores[name], name)
        owned = [one for one in self.cluster.members[name].ownership.owned if store.is_own(owner_path(one), session)]
        if owned:
            self.excuses.give(name, ROUND_MS / 1000 + TOLD_S)
            faults = store.faults[name]
            before, faults.watch_lost_percent = faults.watch_lost_percent, 100
            path = owner_path(self.rng.choice(owned))
            store.state.notify(tree.delete(path, expected_version=None, session=session))
            faults.watch_lost_percent = before
