"""Whatever a client does can be cut off at any moment: what was cut off leaves nothing behind, and the client works on.

Each step is cancelled after some virtual time, a little later each round, until it ends by itself. In each round
messages are sent before and after it, and all of them come. At the end nobody is connected, nothing is held in
memory, and no acknowledged message is in the backlog.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import pytest

import geminga.client as gc
from geminga import sim
from geminga.client._batch_source import open_batches
from geminga.model import TopicName
from geminga.runtime import spawn
from support.house.weekly_sample import sampled
from support.worlds.client_scenario import ClientScenario

TOPIC: Final = "persistent://public/default/topic"
PARTITIONED: Final = "persistent://public/default/parts"
EARLIEST: Final = gc.InitialPosition.Earliest
#: Between a cancellation and that of the next round.
STRIDE_S: Final = 0.0004

IN_TRANSACTION: Final = ("send in it", "acknowledge in it", "acknowledge up to in it")
ENDS: Final = ("commit", "abort", "end of a detached one")
OF_PARTITIONS: Final = ("producer of partitions", "consumer of partitions", "reader of partitions", "seek of several")
STEPS: Final = (
    "begin",
    *IN_TRANSACTION,
    *ENDS,
    *OF_PARTITIONS,
    "close of several",
    "unsubscribe",
    "retry letter",
    "has message",
    "last id",
    "refresh",
    "listen",
    "flush",
    "pattern",
    "entry stream",
    "schema",
    "number of partitions",
)
#: What may end before it waits for anything: with nothing to flush, or refused for a subscription that is shared.
AT_ONCE: Final = ("flush", "acknowledge up to in it")


class Round:
    """One round: what is there before the step, the step, and what must work after it."""

    def __init__(self, client: gc.Client, step: str, number: int, kind: gc.ConsumerType) -> None:
        self.client = client
        self.step = step
        self.number = number
        self.kind = kind
        self.transaction: gc.Transaction | None = None
        self.before = [b"%d-%d" % (number, index) for index in range(4)]

    async def prepare(self) -> None:
        client, step = self.client, self.step
        self.producer = await client.create_producer(TOPIC, batching_enabled=bool(self.number % 2))
        options: dict[str, Any] = {"initial_position": EARLIEST, "ack_receipt_enabled": True}
        self.consumer = await client.subscribe(TOPIC, "sub", consumer_type=self.kind, **options)
        await asyncio.gather(*(self.producer.send(data, partition_key="k") for data in self.before))
        self.held = [await self.consumer.receive(5000) for _ in range(2)]
        if step in IN_TRANSACTION or step in ENDS:
            self.transaction = await client.transaction(20.0)
        if step in ENDS:
            await self.producer.send(b"in it", txn=self.transaction)
        if step in ("commit", "abort"):
            await self.consumer.acknowledge(self.held[0], txn=self.transaction)
        if step == "end of a detached one":
            await self.transaction.detach()
        if step in ("has message", "last id"):
            self.reader = await client.create_reader(TOPIC, gc.MessageId.earliest)
        if step in ("refresh", "listen"):
            self.view = await client.create_table_view(TOPIC)
        if step == "retry letter":
            self.retrying = await client.subscribe(
                "retried", "again", retry_enabled=True, consumer_type=gc.ConsumerType.Shared, **options
            )
            async with client.create_producer("retried") as producer:
                await producer.send(b"letter")
            self.letter = await self.retrying.receive(5000)
        if step in ("close of several", "seek of several"):
            self.several = await client.subscribe([PARTITIONED, f"{TOPIC}-x"], "several", **options)
            self.parts = await client.create_producer(PARTITIONED)
            for index in range(5):
                self.parts.send_nowait(b"part", partition_key=str(index))

    async def run_step(self) -> None:
        client, consumer, txn, message = self.client, self.consumer, self.transaction, self.held[0]
        work = {
            "begin": lambda: client.transaction(5.0),
            "send in it": lambda: self.producer.send(b"in it", txn=txn),
            "acknowledge in it": lambda: consumer.acknowledge(message, txn=txn),
            "acknowledge up to in it": lambda: consumer.acknowledge_cumulative(message, txn=txn),
            "commit": lambda: txn.commit(),
            "abort": lambda: txn.abort(),
            "end of a detached one": lambda: client.end_transaction(txn.id, commit=True),
            "producer of partitions": lambda: client.create_producer(PARTITIONED),
            "consumer of partitions": lambda: client.subscribe(PARTITIONED, "other"),
            "reader of partitions": lambda: client.create_reader(PARTITIONED, gc.MessageId.earliest),
            "seek of several": lambda: self.several.seek(gc.MessageId.earliest),
            "close of several": lambda: asyncio.gather(self.parts.close(), self.several.close()),
            "unsubscribe": lambda: consumer.unsubscribe(),
            "retry letter": lambda: self.retrying.reconsume_later(self.letter, 0.01),
            "has message": lambda: self.reader.has_message_available(),
            "last id": lambda: self.reader.get_last_message_id(),
            "refresh": lambda: self.view.refresh(),
            "listen": lambda: self.view.for_each_and_listen(lambda key, value: None),
            "flush": lambda: consumer.flush_acknowledgements(),
            "pattern": lambda: client.subscribe(re.compile("top.*"), "other"),
            "entry stream": lambda: _open_and_close(client.entry_stream(TOPIC)),
            "schema": lambda: client.get_schema(TOPIC),
            "number of partitions": lambda: client.get_topic_partitions(PARTITIONED),
        }[self.step]
        await _with_an_error_or_none(work())

    async def go_on(self) -> None:
        """What works after the step: all that was sent comes and is acknowledged, and the transaction ends."""
        after = b"after %d" % self.number
        await self.producer.send(after)
        if self.transaction is not None and self.step != "end of a detached one":
            end = self.transaction.commit if self.step == "commit" else self.transaction.abort
            await _with_an_error_or_none(end())
        came = set()
        while True:
            try:
                message = await self.consumer.receive(500)
            except gc.Timeout:
                break
            came.add(message.data())
            await _with_an_error_or_none(self.consumer.acknowledge(message))
        for message in self.held:
            await _with_an_error_or_none(self.consumer.acknowledge(message))
        assert {*self.before[2:], after} <= came
        if self.step == "commit" and self.transaction.state is gc.TransactionState.COMMITTED:
            assert b"in it" in came


async def _open_and_close(stream) -> None:
    await open_batches(stream)
    await stream.close()


async def _with_an_error_or_none(work) -> None:
    try:
        await work
    except gc.PulsarException:
        pass


class Rounds:
    """All rounds of one step, against one broker."""

    def __init__(self, world: sim.SimWorld, step: str, kind: gc.ConsumerType) -> None:
        self.world = world
        self.step = step
        self.kind = kind
        self.stage = ClientScenario(world, transaction_coordinator_enabled=True)
        self.count = 0

    async def run(self) -> int:
        await self.stage.start()
        await self.stage.broker_node.run(self._create_partitions)
        async with asyncio.timeout(3000):
            while not await self.stage.client_node.run(self._once):
                self.count += 1
        await self.stage.check_nothing_left()
        await self.world.sleep(21)  # what was begun and cut off is aborted
        for topic in self.stage.broker.broker.topics.values():
            assert not topic.producers, "a producer of a cancelled step stayed on the broker"
            for name, subscription in topic.subscriptions.items():
                assert not subscription.consumers, "a consumer of a cancelled step stayed on the broker"
                assert name != "sub" or subscription.cursor.backlog_count == 0
        return self.count

    async def _create_partitions(self, _: sim.SimNode) -> None:
        await self.stage.broker.broker.resources.create_partitioned_topic(TopicName.parse(PARTITIONED), 3)

    async def _once(self, _: sim.SimNode) -> bool:
        async with self.stage.connect() as client:
            one = Round(client, self.step, self.count, self.kind)
            await one.prepare()
            task = spawn(one.run_step(), name=self.step)
            await self.world.sleep(self.count * STRIDE_S)
            is_done = task.done()
            task.cancel()
            await asyncio.wait([task])
            if self.step != "unsubscribe":
                await one.go_on()
            assert client.memory.used_bytes == 0
        assert client.pool.open_connections == 0
        return is_done


@pytest.mark.parametrize("kind", [gc.ConsumerType.Shared, gc.ConsumerType.Exclusive], ids=["shared", "exclusive"])
@pytest.mark.parametrize("step", sampled("more steps that are cancelled", STEPS, 2))
def test_cancelling_at_every_await_leaves_nothing_behind(step: str, kind: gc.ConsumerType) -> None:
    assert sim.run(lambda world: Rounds(world, step, kind).run()) >= (step not in AT_ONCE)
