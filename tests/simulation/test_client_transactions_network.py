"""Transactions of our client behind a hostile network, and brokers that stop, or are taken over, in the middle of them.

A worker consumes numbers and, in a transaction each time, produces them to two topics and acknowledges them: then it
commits, aborts, or leaves the transaction open, as a program does that is killed. When the network is healed it goes on
until every number is done. Then each number is in both topics once, in the same transaction, which is none that was
aborted; and nothing of the input is left.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

import geminga.client as gc
from geminga import sim
from geminga.client import TransactionState as State
from support.house.weekly_sample import SeedCheck, few_and_blocks
from support.worlds.client_scenario import ClientScenario
from support.worlds.client_world import STRUCK

FAULTS_S = 25.0
HEALED_S = 200.0
NUMBERS = 60
#: Seconds that a transaction may be open.
TIMEOUT_S = 6.0
#: What must have happened in every run of some tens of seeds.
FAULTS = (
    *STRUCK,
    "broker.restart",
    "broker.taken over",
    "txn.committed",
    "txn.aborted",
    "txn.left open",
    "txn.failed",
)


class Worker:
    """See the module."""

    def __init__(self, stage: ClientScenario) -> None:
        self.stage = stage
        self.world = stage.world
        self.rng = stage.world.rng("worker")
        #: What became of each transaction, by its id as it is in the payloads: True, False, or None if nobody knows.
        self.ended: dict[bytes, bool | None] = {}
        self.left = set(range(NUMBERS))
        self.shares = self.rng.random() < 0.5
        self.batching = self.rng.random() < 0.7

    async def run(self, client: gc.Client) -> None:
        insist = self.stage.insist
        consumer = await insist(
            lambda: client.subscribe(
                "in",
                "worker",
                initial_position=gc.InitialPosition.Earliest,
                consumer_type=gc.ConsumerType.Shared if self.shares else gc.ConsumerType.Exclusive,
            )
        )
        outs = [
            await insist(lambda name=name: client.create_producer(name, batching_enabled=self.batching))
            for name in ("out-a", "out-b")
        ]
        while self.left:
            messages = await self._gather(consumer)
            try:
                if messages:
                    await self._pass_on(client, consumer, outs, messages)
            except gc.PulsarException as error:
                self.world.points.hits["txn.failed"] += 1
                self.world.points.hits[f"txn.failed.{type(error).__name__}"] += 1
                await self.world.sleep(0.2)
            if self.left:
                await consumer.redeliver_unacknowledged_messages()

    async def _gather(self, consumer: gc.Consumer[bytes]) -> list[gc.Message[bytes]]:
        found: dict[bytes, gc.Message[bytes]] = {}
        for _ in range(self.rng.choice([1, 3, 8])):
            try:
                message = await consumer.receive(1000)
            except gc.Timeout:
                break
            found[message.data()] = message
        return list(found.values())

    async def _pass_on(
        self,
        client: gc.Client,
        consumer: gc.Consumer[bytes],
        outs: list[gc.Producer[bytes]],
        messages: list[gc.Message[bytes]],
    ) -> None:
        txn = await client.transaction(TIMEOUT_S)
        name = b"%d.%d" % txn.id
        self.ended[name] = None
        try:
            for out in outs:
                for message in messages:
                    payload = name + b":" + message.data()
                    if self.rng.random() < 0.5:
                        out.send_nowait(payload, txn=txn)
                    else:
                        await out.send(payload, txn=txn)
            await consumer.acknowledge(messages, txn=txn)
            what = self.rng.choice(["commit"] * 7 + ["abort", "leave"])
            if what == "leave":
                self.ended[name] = False
                self.world.points.hits["txn.left open"] += 1
                return
            await (txn.commit() if what == "commit" else txn.abort())
        except gc.PulsarException:
            if txn.state is State.OPEN:
                await txn.abort()
            raise
        finally:
            if txn.state is State.ABORTED:
                self.ended[name] = False
                self.world.points.hits["txn.aborted"] += 1
            elif txn.state is State.COMMITTED:
                assert self.ended[name] is None
                self.ended[name] = True
                self.world.points.hits["txn.committed"] += 1
                numbers = {int(message.data()) for message in messages}
                assert numbers <= self.left, "committed twice"
                self.left -= numbers
            elif txn.state in (State.COMMITTING, State.ERROR):
                # Nobody knows: the topics say it at the end, and whether the numbers come again.
                self.world.points.hits["txn.unknown"] += 1
                self.left -= await self._settled(client, name, messages)

    async def _settled(self, client: gc.Client, name: bytes, messages: list[gc.Message[bytes]]) -> set[int]:
        """The numbers of it, if it counts: once it must be over, and a topic can be asked."""
        while True:
            await self.world.sleep(TIMEOUT_S * 2)
            try:
                found = await read_all(client, "out-a")
            except gc.PulsarException:
                continue
            self.ended[name] = any(payload.startswith(name + b":") for payload in found)
            return {int(message.data()) for message in messages} if self.ended[name] else set()


async def read_all(client: gc.Client, topic: str) -> list[bytes]:
    found = []
    async with client.create_reader(topic, gc.MessageId.earliest) as reader:
        while await reader.has_message_available():
            found.append((await reader.read_next(5000)).data())
    return found


def check(worker: Worker, found: dict[str, list[bytes]]) -> None:
    for topic, payloads in found.items():
        names = [payload.partition(b":")[0] for payload in payloads]
        numbers = sorted(int(payload.partition(b":")[2]) for payload in payloads)
        seen = [name for name in names if worker.ended[name] is not True]
        assert not seen, f"{topic}: seen of transactions that were not committed: {seen}"
        assert numbers == list(range(NUMBERS)), f"{topic}: {numbers}"
    assert sorted(found["out-a"]) == sorted(found["out-b"])


async def hostile_transactions(world: sim.SimWorld) -> None:
    rng = world.rng("scenario")
    settings = {"deduplication": True, "transaction_coordinator_enabled": True, "delete_inactive_topics": False}
    stage = await ClientScenario(world, **settings).start()
    worker = Worker(stage)

    async def prepare(_: sim.SimNode) -> None:
        async with stage.connect() as client, client.create_producer("in", batching_max_messages=5) as producer:
            for topic in ("out-a", "out-b"):  # what nobody subscribes to is trimmed
                await client.subscribe(topic, "keep")
            for number in range(NUMBERS):
                producer.send_nowait(b"%d" % number)
            await producer.flush()

    async def work(_: sim.SimNode) -> None:
        async with stage.connect() as client:
            await worker.run(client)

    async def look(_: sim.SimNode) -> None:
        await world.sleep(2 * TIMEOUT_S)  # what was left open holds readers back until then
        async with stage.connect() as client:
            check(worker, {topic: await read_all(client, topic) for topic in ("out-a", "out-b")})
            async with client.subscribe("in", "worker") as consumer:
                with pytest.raises(gc.Timeout):
                    await consumer.receive(3000)

    await stage.client_node.run(prepare)
    faults = stage.faults(rng, FAULTS_S, partial(stage.restart_or_abandon, rng))
    async with asyncio.timeout(FAULTS_S + HEALED_S):
        await stage.client_node.run(work)
    await faults
    async with asyncio.timeout(HEALED_S):
        await stage.client_node.run(look)
    await stage.check_nothing_left(10)


@few_and_blocks(range(1000), least=8, most=100, many=range(1000, 2000), block=100, hits_min=10)
def test_what_is_committed_is_there_once_and_what_is_aborted_never(check: SeedCheck) -> None:
    check(hostile_transactions, FAULTS)


@pytest.mark.parametrize("stride", [23, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("fault", ["cut up", "cut down"])
def test_a_connection_cut_after_any_byte_of_a_transaction_is_survived(fault: str, stride: int) -> None:
    """A first connection that ends after so and so many bytes, until it lives to the end: each time the transaction is
    committed, its message is seen once, and what it acknowledged does not come again."""

    async def main(world: sim.SimWorld) -> int:
        stage = await ClientScenario(world, deduplication=True, transaction_coordinator_enabled=True).start()

        async def once(place: int) -> bool:
            struck = world.points.hits[f"network.{fault}"]
            stage.proxy.planned = [(fault, place)]
            async with asyncio.timeout(60), stage.connect() as client:
                consumer = await client.subscribe("in", "sub", consumer_type=gc.ConsumerType.Shared)
                producer = await client.create_producer("in")
                out = await client.create_producer("out")
                await producer.send(b"%d" % place)
                data = b""
                while data != b"%d" % place:
                    message = await consumer.receive()
                    data = message.data()
                    assert int(data) == place, "an acknowledged message came again"
                async with client.transaction() as txn:
                    out.send_nowait(data, txn=txn)
                    await consumer.acknowledge(message, txn=txn)
                assert txn.state is State.COMMITTED
            return world.points.hits[f"network.{fault}"] > struck

        place = 0
        while await stage.client_node.run(lambda _, place=place: once(place)):
            place += stride

        async def look(_: sim.SimNode) -> list[bytes]:
            async with stage.connect() as client:
                return await read_all(client, "out")

        assert await stage.client_node.run(look) == [b"%d" % one for one in range(0, place + 1, stride)]
        return place

    assert sim.run(main) > 400
