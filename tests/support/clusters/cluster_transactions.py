"""Whole clusters with transactions: coordinators, topics and subscriptions of a transaction at different brokers.

The cluster and all that happens to it are those of :mod:`support.clusters.cluster_story`; coordinators' bundles are
unloaded, split, raced for and taken away with the others, and who could not know that its session ended is usurped as
their coordinator, too. What must hold: a transaction whose commit was answered is seen whole, one whose commit was
never asked for, or whose abort was answered, not at all, any other whole or not at all; what was taken from a topic is
in one transaction that counts, and what was acknowledged in another one comes again; nobody has a coordinator open
without a node of its session; in the end no transaction is open, nothing is held back, and nothing is left in a
subscription.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any, Final

import geminga.client as gc
from geminga.broker.composition.service import Broker
from geminga.broker.ownership.core.bundles import Bundle, topic_hash
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.model.errors import GemingaError
from geminga.model.topic_name import SYSTEM_NAMESPACE, TopicName
from geminga.runtime import spawn
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from geminga.transaction.coordinator import TransactionCoordinator
from support.clusters.cluster_checks import Excuses, check_bundles, check_cuts, check_lookups, check_owners, own_ranges
from support.clusters.cluster_faults import LABELS as FAULTS
from support.clusters.cluster_faults import Faults
from support.clusters.cluster_movers import TIMEOUTS_S, Movers, Told, text_of, told
from support.clusters.cluster_story import LOOK_S, ROUNDS_S, SETTLED_S
from support.clusters.cluster_traffic import CLIENTS
from support.clusters.cluster_world import BOOKIES, BROKERS, NAMES, TOPICS, ClusterWorld
from support.clusters.two_brokers import where
from support.worlds.client_world import CLIENT

COORDINATORS: Final = 4
CHANGES_S: Final = 15.0
READS_MAX: Final = 40
READ_AGAIN_S: Final = 0.5
LABELS: Final = (
    *FAULTS,
    *(
        f"cluster.transaction {what}"
        for what in (
            "begun",
            "committed",
            "aborted",
            "left open",
            "failed",
            "ended twice",
            "coordinator raced",
            "outlived its program",
        )
    ),
)


class TransactionFaults(Faults):
    """Whoever is asked for topics is asked for coordinators, too."""

    async def jump(self) -> None:
        """By little: when a transaction is over is a time of day, of the clock of whoever has its coordinator."""
        name = self.rng.choice((*BROKERS, *CLIENTS, *BOOKIES, "metadata"))
        self.world.node(name).clock.jump(self.rng.choice((-2000, 2000)))

    async def _serve(self, broker: str, names: list[TopicName], node: SimNode) -> None:
        for number in range(COORDINATORS):
            name = COORDINATORS_TOPIC.with_partition(number)
            try:
                await self.cluster.members[broker].ownership.owner_of(name, is_authoritative=True)
                await self.cluster.brokers[broker].use_transactions().coordinators.find(number)
                self.world.points.hits["cluster.transaction coordinator raced"] += 1
            except GemingaError:
                continue
        await super()._serve(broker, names, node)


class TransactionStory:
    """See the module."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.cluster = ClusterWorld(world, has_peers=True, coordinators=COORDINATORS, namespaces=[SYSTEM_NAMESPACE])
        self.cluster.keeps = True
        self.excuses = Excuses(self.cluster)
        self.faults = TransactionFaults(self.cluster, self.excuses)
        self.is_calm = False
        self.is_over = False

    async def run(self) -> None:
        await self.cluster.start()
        until_s = self.world.now + CHANGES_S
        self.movers = Movers(self.cluster, until_s, lambda: self.is_calm)
        watching = spawn(self._watch(), name="who has what open")
        working = spawn(self.movers.run(), name="movers")
        await self.faults.run(until_s)
        await self.faults.calm_down()
        self.is_calm = True
        try:
            async with asyncio.timeout(2 * SETTLED_S):
                await working
        except TimeoutError as error:
            raise AssertionError(f"clients did not follow: {sorted(self.movers.finished)} are done") from error
        await self.movers.leave_open(COORDINATORS)
        # Whoever had a coordinator may be gone by their time-outs.
        for broker in self.faults.rng.sample(BROKERS, 2):
            self.cluster.crash(broker)
            if self.faults.rng.random() < 0.5:
                await self.world.sleep(self.faults.span_s())
            await self.cluster.boot(broker)
        await self.world.sleep(ROUNDS_S + max(TIMEOUTS_S))
        self.is_over = True
        await watching
        await self._check()

    async def _watch(self) -> None:
        while not self.is_over:
            check_owners(self.cluster, self.excuses)
            check_coordinators(self.cluster, self.excuses)
            await self.world.sleep(LOOK_S)

    # ---- what must hold in the end

    async def _check(self) -> None:
        check_bundles(self.cluster)
        check_cuts(self.cluster, self.faults.cuts)
        await check_lookups(self.cluster)
        await self._check_nothing_left()
        seen = {topic: await self._read(topic) for topic in TOPICS}
        for topic, found in seen.items():
            for one in found.values():
                self.movers.book.check_visible(topic, one)
            if self.cluster.deduplicates:
                twice = [one for one, count in Counter(found.values()).items() if count > 1]
                assert not twice, f"{topic}: {twice} are there twice"
        self._check_whole({(topic, one) for topic, found in seen.items() for one in found.values()})
        self._check_taken(seen)
        check_owners(self.cluster, self.excuses)
        check_coordinators(self.cluster, self.excuses)

    def _check_whole(self, seen: set[tuple[str, Told]]) -> None:
        book = self.movers.book
        lost = book.receipts - seen
        assert not lost, f"lost: {lost}"
        for one in book.tries.values():
            there = [each in seen for each in one.sent]
            told = f"{one} has {sum(there)} of {len(there)} messages"
            assert all(there) or not any(there), told
            assert all(there) or one.counts is not True, f"{told}, and it was committed"

    def _check_taken(self, seen: dict[str, dict[str, Told]]) -> None:
        """Each message that can be seen in a topic that is taken from is in one transaction that counts."""
        movers = self.movers
        taken: dict[str, set[str]] = {}
        for topic in movers.outputs:
            for one in seen[topic].values():
                taken.setdefault(one.origin, set()).add(one.label)
        for topic in movers.inputs:
            for place, one in seen[topic].items():
                labels = taken.pop(place, set())
                assert len(labels) == 1, f"{one} at {place} was taken in {sorted(labels)}"
        assert not taken, f"taken was what is not there: {taken}"

    async def _check_nothing_left(self) -> None:
        for broker in BROKERS:
            await self.world.node(broker).run(partial(self._check_broker, broker))
        for name in NAMES:
            await self._at_owner(name, self._check_topic)
        for number in range(COORDINATORS):
            await self._at_owner(COORDINATORS_TOPIC.with_partition(number), self._check_coordinator)

    async def _check_broker(self, broker: str, _: SimNode) -> None:
        """Where it is open already, nothing is to be asked first."""
        for number, coordinator in _open_coordinators(self.cluster.brokers[broker]).items():
            left = [str(each) for each in coordinator.state.open.values()]
            assert not left, f"coordinator {number} at {broker} has {left} open"
        for name in NAMES:
            if str(name) in self.cluster.brokers[broker].topics:
                await self._check_topic(self.cluster.brokers[broker], name)

    async def _at_owner(self, name: TopicName, check: Any) -> None:
        """What is loaded only now has some time to ask what became of what it holds."""
        told = f"{name} is served nowhere"
        for _ in range(READS_MAX):
            for broker in BROKERS:

                async def ask(_: SimNode, broker: str = broker) -> None:
                    await self.cluster.members[broker].ownership.owner_of(name, is_authoritative=True)
                    await check(self.cluster.brokers[broker], name)

                try:
                    await self.world.node(broker).run(ask)
                    return
                except (GemingaError, NodeCrashedError):
                    pass
                except AssertionError as error:
                    told = str(error)
                await self.world.sleep(READ_AGAIN_S)
        raise AssertionError(told)

    async def _check_topic(self, broker: Broker, name: TopicName) -> None:
        topic: Any = await broker.registry.get(name, create=True)
        ledger = topic.ledger
        assert ledger.extent.readable_position == ledger.extent.last_confirmed_position, (
            f"{name} is held back: {self._held(topic)}"
        )
        base = str(name).partition("-partition-")[0]
        for sub in topic.subscriptions.values():
            assert not sub.transactions.acks.is_holding, f"{name} holds acknowledgments for nobody"
            if base in self.movers.inputs:
                assert not sub.cursor.backlog_count, f"{name} has a backlog of {sub.cursor.backlog_count}"

    def _held(self, topic: Any) -> str:
        """By which transactions, and who has their coordinators, for who reads of a failure."""
        buffer = topic.transaction_buffer
        open_at = {number: broker for broker, one in self.cluster.brokers.items() for number in _open_coordinators(one)}
        told = (
            []
            if buffer is None
            else [f"{txn_id}" for txn_id in (buffer.state.open if buffer.state is not None else ())]
        )
        tries = [self.movers.book.tries.get(text.strip("()").replace(",", ".")) for text in told]
        return f"{told} {tries}, coordinators are open at {open_at}"

    async def _check_coordinator(self, broker: Broker, name: TopicName) -> None:
        number = name.partition
        coordinator = await broker.use_transactions().coordinators.find(number)
        left = [str(each) for each in coordinator.state.open.values()]
        assert not left, f"coordinator {number}, opened at last, has {left} open"

    async def _read(self, topic: str) -> dict[str, Told]:
        """All that a reader sees."""
        found: dict[str, Told] = {}

        async def read(node: SimNode) -> None:
            async with gc.connect(f"pulsar://{self.cluster.url}", runtime=node.runtime, **CLIENT) as client:
                for name in [str(one) for one in NAMES if str(one).partition("-partition-")[0] == topic]:
                    async with client.create_reader(name, gc.MessageId.earliest) as reader:
                        while await reader.has_message_available():
                            message = await reader.read_next(5000)
                            place = where(name, message.message_id())
                            found[text_of(place)] = told(message.data())

        node = self.world.node("reader")
        node.start()
        await node.run(read)
        return found


def _open_coordinators(broker: Broker) -> dict[int, TransactionCoordinator]:
    """Nothing is loaded for it."""
    used: Any = broker.late_transactions.used
    return {} if used is None else {number: one for number, one in used.coordinators.open.items() if not one._is_closed}


def check_coordinators(cluster: ClusterWorld, excuses: Excuses) -> None:
    """Nobody has a coordinator open without a node of its session."""
    for number in range(COORDINATORS):
        name = COORDINATORS_TOPIC.with_partition(number)
        value = topic_hash(str(name))
        holders: list[str] = []
        for broker, one in cluster.brokers.items():
            if number not in _open_coordinators(one) or excuses.has(broker):
                continue
            ranges = own_ranges(cluster, broker, SYSTEM_NAMESPACE)
            assert any(Bundle(SYSTEM_NAMESPACE, *ends).has_hash(value) for ends in ranges), (
                f"{cluster.world.now:.3f} s: coordinator {number} is open at {broker}, whose session has {ranges}"
            )
            holders.append(broker)
        assert len(holders) <= 1, f"{cluster.world.now:.3f} s: coordinator {number} is open at {holders}"


async def cluster_transactions(world: SimWorld) -> None:
    """One story; raises where a promise was broken."""
    await TransactionStory(world).run()
