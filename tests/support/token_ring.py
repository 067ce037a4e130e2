"""Tokens that are moved between topics in transactions, while brokers come and go: none appears, none disappears.

A mover takes a token from its topic and publishes it to the next one, in one transaction with the acknowledgement. It
commits, aborts, or leaves the transaction to its time-out; it asks for an end twice, or for both ends at once. The
broker is stopped cleanly, or another takes over while the first still believes that it is alone, at any moment.
"""

from __future__ import annotations

import asyncio

from geminga import sim
from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.config import BrokerConfig
from geminga.broker.ownership.ports import HERE, Owner, OwnershipListener, Unknown
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.metadata.memory import MemoryMetadata
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import spawn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.broker_world import ENDPOINTS, BrokerWorld
from support.transacting import Id, Transacting

TOPICS = 3
TOKENS = 12
FAULTS_S = 12.0
#: Of each transaction, milliseconds: the longest that one is open.
TIMEOUT_MS = 1_500
#: Virtual seconds after which a mover takes an answer for lost.
PATIENCE_S = 0.7
LABELS = (
    "ring.committed",
    "ring.aborted",
    "ring.left open",
    "ring.both ends at once",
    "ring.end asked twice",
    "ring.conflict",
    "broker.restart",
    "broker.taken over",
)


def topic(index: int) -> str:
    return f"persistent://public/default/account-{index % TOPICS}"


class Believed:
    """What a broker believes: everything is its, until it hears that another took over."""

    def __init__(self) -> None:
        self.is_mine = True
        self._listeners: list[OwnershipListener] = []

    async def owner_of(self, name: TopicName, *, is_authoritative: bool = False) -> Owner:
        return HERE if self.is_mine else Unknown()

    def listen(self, listener: OwnershipListener) -> None:
        self._listeners.append(listener)

    async def lose(self, after_s: float) -> None:
        """Hear of it, some time later."""
        await wait_ms(after_s * 1000)
        self.is_mine = False
        for listener in reversed(self._listeners):
            await listener.taken(lambda _name: True)


class Ring:
    """The brokers, one after the other, and what was asked of them."""

    def __init__(self, world: sim.SimWorld) -> None:
        self.world = world
        self.rng = world.rng("ring")
        self.node = world.node("broker")
        self.server = MemoryMetadata()
        self.bookie = MemoryBookie()
        self.beliefs: list[Believed] = []
        self.is_over = False
        self.violations: list[str] = []

    async def start(self) -> None:
        """The first broker, with a token of its own in each place."""
        self.brokers = await self._new()
        await self.brokers.start()
        client = Transacting(await self.brokers.client())
        for index in range(TOPICS):
            await client.client.subscribe(topic(index), index, permits=0, subType=pb.CommandSubscribe.Shared)
            await client.client.create_producer(topic(index), index)
        for token in range(TOKENS):
            await client.publish(b"%d" % token, producer_id=token % TOPICS)
        client.client.lose()

    async def _new(self) -> BrokerWorld:
        config = BrokerConfig(
            transaction_coordinator_enabled=True, transaction_buffer_snapshot_max_count=self.rng.choice([1, 3, 1000])
        )
        # Ledgers of a few entries, so that logs roll and are trimmed meanwhile.
        ledgers = ManagedLedgerConfig(max_entries_per_ledger=self.rng.choice([4, 50_000]), min_rollover_minutes=0)
        self.beliefs.append(Believed())
        return BrokerWorld(
            self.node.runtime,
            config,
            ledgers,
            server=self.server,
            bookie=self.bookie,
            is_shared=True,
            ownership=self.beliefs[-1],
        )

    async def change(self) -> None:
        """Brokers come and go until the faults end."""
        while True:
            await self.world.sleep(self.rng.uniform(0.05, 2.5))
            if self.world.now > FAULTS_S:
                self.is_over = True
                return
            before, self.brokers = self.brokers, await self._new()
            if self.rng.random() < 0.5:
                self.world.points.hits["broker.restart"] += 1
                await before.stop()
            else:
                self.world.points.hits["broker.taken over"] += 1
                for connection in list(before.broker.connections.open):
                    connection.close("the broker is gone")
                spawn(self.beliefs[-2].lose(self.rng.uniform(0, 3)), name="hear of the takeover")
            await self.brokers.broker.start(ENDPOINTS)

    # ---- movers

    async def move(self, number: int) -> None:
        """Until the faults end."""
        rng = self.world.rng("mover", number)
        while not self.is_over:
            try:
                async with asyncio.timeout(PATIENCE_S * 8):
                    await self._live(number, rng)
            except (TimeoutError, AssertionError):
                await self.world.sleep(rng.uniform(0, 0.3))

    async def _live(self, number: int, rng) -> None:
        client = Transacting(await self.brokers.client())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await client.client.create_producer(topic(number + 1), 1)
                await client.client.subscribe(topic(number), 1, permits=2, subType=pb.CommandSubscribe.Shared)
            for _ in range(rng.randrange(1, 6)):
                if client.client.is_closed:
                    return
                await self._transfer(client, number, rng)
        finally:
            client.client.lose()

    async def _transfer(self, client: Transacting, number: int, rng) -> None:
        hits = self.world.points.hits
        for _ in range(20):
            found = client.messages()
            if found:
                break
            await self.world.sleep(0.02)
        else:
            return
        async with asyncio.timeout(PATIENCE_S):
            txn_id = await client.begin(TIMEOUT_MS, coordinator=rng.randrange(2))
            assert not (await client.add_subscription(txn_id, topic(number))).HasField("error")
            assert not (await client.add_partition(txn_id, topic(number + 1))).HasField("error")
        for message_id, payload in found:
            await self._take(client, txn_id, number, message_id, payload, rng)
        client.flow(1, len(found))
        choice = rng.random()
        if choice < 0.12:
            hits["ring.left open"] += 1
        elif choice < 0.2:
            hits["ring.both ends at once"] += 1
            client.ask_end(txn_id, commit=True)
            client.ask_end(txn_id, commit=False)
            await self.world.sleep(rng.uniform(0, 0.1))
        else:
            commit = choice < 0.75
            hits["ring.committed" if commit else "ring.aborted"] += 1
            if rng.random() < 0.2:
                hits["ring.end asked twice"] += 1
                client.ask_end(txn_id, commit=commit)
            async with asyncio.timeout(PATIENCE_S):
                await client.end(txn_id, commit=commit)

    async def _take(self, client: Transacting, txn_id: TxnId, number: int, message_id: Id, payload: bytes, rng) -> None:
        async with asyncio.timeout(PATIENCE_S):
            answer = await client.acknowledge([message_id], txn_id)
            assert not answer.HasField("error"), "nothing of this transaction may count"
            if rng.random() < 0.15:
                other = await client.begin(TIMEOUT_MS, coordinator=rng.randrange(2))
                assert not (await client.add_subscription(other, topic(number))).HasField("error")
                answer = await client.acknowledge([message_id], other)
                self.world.points.hits["ring.conflict"] += answer.error == pb.TransactionConflict
                if not answer.HasField("error"):
                    self.violations.append(f"{message_id} is acknowledged in {txn_id} and in {other}")
            answer = await client.send(payload, txn_id)
            assert answer.type == pb.BaseCommand.SEND_RECEIPT

    # ---- the end

    async def settle(self) -> None:
        """No transaction stays open, every topic drains, and each token is there once."""
        assert not self.violations, self.violations
        await self.world.sleep(TIMEOUT_MS / 1000 + 12)
        coordinators = self.brokers.broker.transactions.coordinators
        for number in range(2):
            coordinator = await coordinators.find(number)
            assert not coordinator.state.open, f"coordinator {number} has {list(coordinator.state.open)} open"
        for index in range(TOPICS):
            # One that did not know yet that it had lost them may have had them last, and this one does not know that.
            await self.brokers.broker.unload_topic(TopicName.parse(topic(index)))
        client = Transacting(await self.brokers.client())
        for index in range(TOPICS):
            await client.client.subscribe(topic(index), index, permits=0, subType=pb.CommandSubscribe.Shared)
        for index in range(TOPICS):
            client.flow(index, 1000)
        await self.world.sleep(2)
        tokens = sorted(int(payload) for _, payload in client.messages())
        assert tokens == list(range(TOKENS)), tokens
        for index in range(TOPICS):
            loaded = self.brokers.broker.topics[topic(index)]
            assert loaded.ledger.readable_position == loaded.ledger.last_confirmed_position, "held back for good"
            acks = loaded.subscriptions["sub"].transaction_acks
            assert not acks.is_holding


async def run_ring(world: sim.SimWorld) -> None:
    """One story."""

    async def on_node(_: sim.SimNode) -> None:
        ring = Ring(world)
        await ring.start()
        await asyncio.gather(ring.change(), *(ring.move(number) for number in range(TOPICS)))
        await ring.settle()

    async with asyncio.timeout(120):
        await world.node("broker").run(on_node)
