"""Tokens that are moved between topics in transactions, through faults at every step: none appears, none disappears.

Three topics in a ring, of any kind of subscription and acknowledgment; movers take tokens from each and publish them
to the next, in one transaction with the acknowledgment (:mod:`support.clusters.ring_movers`). Two brokers, their
bookies and the clients are struck at named points (:mod:`support.clusters.ring_steps`), each seed at others. A story
ends when so many faults struck and so many messages were moved; then the sum of all is compared, and nothing may be
open or held back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final, NamedTuple

from geminga import sim
from geminga.broker.composition.service import Broker
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn
from support.clusters.ring_brokers import COORDINATORS, TOPICS, RingBrokers, topic
from support.clusters.ring_client import Lost, Refused, Taken
from support.clusters.ring_movers import TIMEOUT_MS, Account, Book, Mover, Sub
from support.clusters.ring_steps import LEDGER_POINTS, POINTS, Point

TOKENS: Final = 30
#: What a seed is at least.
FAULTS_MIN: Final = 20
ACKNOWLEDGED_MIN: Final = 200
#: Virtual seconds in which it must get there.
STORY_S: Final = 400.0
#: Points armed at a time, and virtual seconds that one waits for its step to be taken.
ARMED_MAX: Final = 3
ARMED_S: Final = 2.0
#: Attempts of a client to take all that is left.
DRAINS_MAX: Final = 4
#: Virtual seconds after the last fault by which every end was heard by all: the longest pause between attempts, and a
#: time-out.
SETTLED_S: Final = TIMEOUT_MS / 1000 + 12


class Told(NamedTuple):
    """What one seed did."""

    faults: int
    #: In transactions whose commit was answered.
    acknowledged: int
    #: Faults by point.
    struck: Counter[str]
    #: What clients did, by name.
    counts: Counter[str]
    virtual_s: float
    #: Of the loop.
    steps: int


def token_of(taken: Taken) -> int:
    """The token that a message is."""
    return int(taken.payload.partition(b":")[0])


class Ring:
    """One story."""

    def __init__(self, world: sim.SimWorld) -> None:
        self.world = world
        self.rng = world.rng("ring")
        self.book = Book()
        self.brokers = RingBrokers(world, self.book.delivered)
        self.brokers.kill_client = self._kill_client
        self.accounts = [Account(world.rng("account", index), index) for index in range(TOPICS)]
        self.movers = [
            Mover(number, account, self.accounts[(account.index + 1) % TOPICS], self.brokers, self.book)
            for number, account in enumerate(each for each in self.accounts for _ in range(each.movers))
        ]
        self._points = self._plan()

    def _plan(self) -> list[Point]:
        """All points, beginning where the seed before ended, in an order that no seed changes."""
        points = list(POINTS)
        sim.rng.stream(0, "points of the ring").shuffle(points)
        start = self.world.seed * FAULTS_MIN % len(points)
        return points[start:] + points[:start]

    # ---- the beginning

    async def start(self) -> None:
        """Tokens in each topic, of no transaction."""
        await self.brokers.start()
        client = await self.brokers.client()
        assert client is not None
        for account in self.accounts:
            await client.subscribe(topic(account.index), account.index, account.kind, 0)
            await client.create_producer(topic(account.index), account.index, "mint")
        for token in range(TOKENS):
            index = token % TOPICS
            payload = b"%d:mint" % token
            self.book.seen.add(payload)
            await client.send(index, "mint", token, [payload], None, key=str(token), is_batch=False)
        client.lose()

    def _kill_client(self, txn_id: object) -> bool:
        """The mover whose transaction it is dies; any, if that one does not know of it yet, or does not any more."""
        movers = [mover for mover in self.movers if mover.client is not None and not mover.client.is_closed]
        chosen = [mover for mover in movers if mover.txn_id == txn_id and txn_id is not None] or movers
        if not chosen:
            return False
        self.rng.choice(chosen).die()
        return True

    # ---- faults

    async def strike(self) -> None:
        """Arm points one after the other until enough of them struck and enough was moved."""
        brokers, armed = self.brokers, dict[Point, float]()
        crashes: Counter[str] = Counter()
        upcoming = iter(self._points)
        while len(brokers.struck) < FAULTS_MIN or self.book.acknowledged < ACKNOWLEDGED_MIN:
            assert self.world.now < STORY_S, f"{len(brokers.struck)} faults, {self.book.acknowledged} acknowledged"
            self._notice_crashes(crashes)
            for point, since in list(armed.items()):
                if not brokers.is_armed(point) or self.world.now - since > ARMED_S:
                    del armed[point]
                    brokers.disarm(point)
            if len(brokers.struck) < FAULTS_MIN and len(armed) < ARMED_MAX and brokers.under_way < 2:
                point = next(upcoming, None) or self.rng.choice(POINTS)
                if point not in armed:
                    armed[point] = self.world.now
                    brokers.arm(point, self.rng.choice([0, 0, 1, 4]))
            await self.world.sleep(0.02)
        for point in armed:
            brokers.disarm(point)

    def _notice_crashes(self, crashes: Counter[str]) -> None:
        """Of brokers at crash points of the product."""
        for name, life in list(self.brokers.lives.items()):
            if not life.is_alive:
                label = next((each for each in LEDGER_POINTS if self.world.points.crashes[each] > crashes[each]), None)
                assert label is not None, f"{name} died, and nobody knows of what"
                crashes[label] += 1
                self.brokers.struck_at_point(Point(label, "broker"), name)

    # ---- the end

    async def settle(self) -> None:
        """No transaction stays open, every topic drains, and each token is there once."""
        brokers = self.brokers
        while brokers.under_way:
            await self.world.sleep(0.05)
        # One may have crashed after the last look.
        assert brokers.owner is not None
        await brokers.ensure(brokers.owner)
        for mover in self.movers:
            mover.is_over = True
        await self.world.sleep(SETTLED_S)
        owner = brokers.owner
        assert owner is not None
        await brokers.ensure(owner)
        if self.rng.random() < 0.5:  # what is so is stored, too
            if self.rng.random() < 0.5:
                await brokers.stop(owner)
            else:
                brokers.died(owner)
            await brokers.ensure(owner)
            await self.world.sleep(1)
        await brokers.run_at_owner(self._check_coordinators)
        left = await self._drain()
        tokens = sorted(token_of(one) for one in left)
        assert tokens == list(range(TOKENS)), self._told(left)
        self.book.check()
        await self.world.sleep(2)
        await brokers.run_at_owner(self._check_topics)

    async def _check_coordinators(self, broker: Broker) -> None:
        assert broker.transactions is not None
        for number in range(COORDINATORS):
            coordinator = await broker.transactions.coordinators.find(number)
            left = [
                (str(each.txn_id), each.status.name, each.pending_status, each.deadline_ms, *each.partitions)
                for each in coordinator.state.open.values()
            ]
            assert not left, f"coordinator {number} has {left} open"

    def _told(self, left: list[Taken]) -> str:
        """What there is too much or too little of."""
        count = Counter(token_of(one) for one in left)
        wrong = [token for token in range(TOKENS) if count[token] != 1]
        places = [one for one in left if token_of(one) in wrong]
        kinds = [(Sub.SubType.Name(each.kind), each.is_cumulative, each.by_index) for each in self.accounts]
        told = [f"tokens {wrong} are not there once: {places}; topics: {kinds}"]
        for token in wrong[:2]:
            told += [f"token {token}:", *self.book.story(token)]
        return "\n".join(told)

    async def _drain(self) -> list[Taken]:
        """Every token, taken for good. A broker may find out now only that a topic is to be loaded anew."""
        # What was acknowledged by one that failed further on does not come again.
        found: dict[tuple[int, Position, int], Taken] = {}
        for left in reversed(range(DRAINS_MAX)):
            try:
                await self._drain_once(found)
                break
            except (Lost, Refused):
                if not left:
                    raise
                await self.world.sleep(1)
        return list(found.values())

    async def _drain_once(self, drained: dict[tuple[int, Position, int], Taken]) -> None:
        client = await self.brokers.client()
        assert client is not None
        found: list[Taken] = []
        try:
            for account in self.accounts:
                await client.subscribe(topic(account.index), account.index, account.kind, 1000)
            for _ in range(4):
                await self.world.sleep(0.6)
                found += client.messages
                drained.update(((one.topic, one.position, one.index), one) for one in client.messages)
                client.messages = []
            if client.is_closed:
                raise Lost("the broker found out that it was to load a topic anew")
            for account in self.accounts:
                taken = [one for one in found if one.topic == account.index]
                if taken:
                    await client.acknowledge(account.index, taken, None)
        finally:
            client.lose()  # what it has goes to the next one

    async def _check_topics(self, broker: Broker) -> None:
        for index in range(TOPICS):
            loaded: Any = await broker.registry.get(TopicName.parse(topic(index)), create=False)
            ledger, sub = loaded.ledger, loaded.subscriptions["sub"]
            assert ledger.extent.readable_position == ledger.extent.last_confirmed_position, (
                f"{topic(index)} is held back for good"
            )
            assert not sub.transactions.acks.is_holding, f"{topic(index)} holds acknowledgments for nobody"
            backlog = sub.cursor.backlog_count
            assert not backlog, f"{topic(index)} has a backlog of {backlog}"

    def told(self) -> Told:
        """What happened until now."""
        struck = Counter(str(point) for point in self.brokers.struck)
        return Told(
            len(self.brokers.struck),
            self.book.acknowledged,
            struck,
            self.book.counts,
            self.world.now,
            self.world.loop.steps,
        )

    async def run(self) -> Told:
        """The whole story."""
        await self.start()
        recovering = spawn(self.brokers.recover(), name="recover")
        moving = [spawn(mover.run(), name=mover.name) for mover in self.movers]
        striking = spawn(self.strike(), name="strike")
        done, _ = await asyncio.wait([striking, recovering, *moving], return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
        await self.settle()
        recovering.cancel()
        await asyncio.gather(*moving)
        return self.told()


async def run_ring(world: sim.SimWorld) -> Told:
    """One seed."""
    ring = Ring(world)
    try:
        return await ring.run()
    finally:
        world.points.hits.update({f"ring.{name}": count for name, count in ring.book.counts.items()})
        world.points.hits.update(str(point) for point in ring.brokers.struck)
