"""Who gets what on Key_Shared and Failover subscriptions: our consumers coming and going, and the brokers' choice."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

import geminga.client as gc
from support.stories.client_stories import RECEIVE_MS, contents, drain, run
from support.worlds.partitions import stats

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest
Type = gc.ConsumerType
KEYS = 20
#: Who of ``a`` and ``b`` is active on ``failover-0``, ``failover-1`` and so on.
PICKED = "babbbbabbbba"
#: Who of ``x``, ``y`` and ``z`` gets ``key-0``, ``key-1`` and so on.
KEYS_OF = "xxzzxyxxxxzzyxzxyxyzzxxyxzxyxy"
#: Messages of each round of :func:`test_keys_keep_their_order_while_consumers_come_and_go`.
ROUND = 200


class Taking:
    """Consumers of one subscription that take and acknowledge what comes, each in a task of its own."""

    def __init__(self) -> None:
        #: Key -> numbers in the order in which they were taken.
        self.by_key: dict[str, list[int]] = defaultdict(list)
        #: Consumer -> keys it was given since the last round.
        self.keys: dict[str, set[str]] = defaultdict(set)
        self.changed = asyncio.Event()
        self.taken = 0
        self._tasks: dict[str, tuple[gc.Consumer[bytes], asyncio.Task[None]]] = {}

    def start(self, name: str, consumer: gc.Consumer[bytes]) -> None:
        self._tasks[name] = (consumer, asyncio.ensure_future(self._take(name, consumer)))

    async def _take(self, name: str, consumer: gc.Consumer[bytes]) -> None:
        async for message in consumer:
            key = message.partition_key()
            self.keys[name].add(key)
            self.by_key[key].append(int(message.data()[1:]))
            self.taken += 1
            self.changed.set()
            await consumer.acknowledge(message)

    async def stop(self, name: str) -> None:
        consumer, task = self._tasks.pop(name)
        await consumer.close()
        await task

    async def wait_for(self, count: int) -> None:
        while self.taken < count:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), RECEIVE_MS / 1000)


def test_keys_keep_their_order_while_consumers_come_and_go(broker, topic) -> None:
    """1. Two consumers share the keys. 2. A third comes. 3. The first leaves. No key is split or gets out of order."""

    async def main(client):
        taking = Taking()
        options = {"consumer_type": Type.KeyShared, "initial_position": EARLIEST}
        producer = await client.create_producer(topic, batching_type=gc.BatchingType.KeyBased)
        sent = 0
        for change in ("a", "b", "c", "-a", ""):
            if change.startswith("-"):
                await taking.stop(change[1:])
            elif change:
                taking.start(change, await client.subscribe(topic, "sub", consumer_name=change, **options))
            taking.keys.clear()
            for number in range(sent, sent + ROUND):
                producer.send_nowait(b"m%d" % number, partition_key=f"k{number % KEYS}")
            await producer.flush()
            sent += ROUND
            await taking.wait_for(sent)
            given = list(taking.keys.values())
            assert sum(map(len, given)) == KEYS
            assert set().union(*given) == {f"k{key}" for key in range(KEYS)}
        assert set(taking.keys) == {"b", "c"}
        for key in range(KEYS):
            assert taking.by_key[f"k{key}"] == list(range(key, sent, KEYS))
        for name in ("b", "c"):
            await taking.stop(name)
        assert await drain(await client.subscribe(topic, "sub", **options)) == []

    run(broker, main)


def test_a_key_waits_for_its_unacknowledged_message_when_a_consumer_comes(broker, topic) -> None:
    """1. The first consumer holds a message of each key. 2. A second one gets keys, and waits for those messages."""

    async def main(client):
        options = {"consumer_type": Type.KeyShared, "initial_position": EARLIEST}
        first = await client.subscribe(topic, "sub", consumer_name="a", **options)
        producer = await client.create_producer(topic, batching_enabled=False)
        for number in range(KEYS):
            await producer.send(b"m%d" % number, partition_key=f"k{number}")
        held = [await first.receive(RECEIVE_MS) for _ in range(KEYS)]
        second = await client.subscribe(topic, "sub", consumer_name="b", **options)
        for number in range(KEYS, 2 * KEYS):
            await producer.send(b"m%d" % number, partition_key=f"k{number - KEYS}")
        mine = await drain(first)
        assert await drain(second) == []
        await first.acknowledge(held)
        others = await drain(second, count=1)
        # All of them come, to whomever; the run has a limit.
        while len(mine) + len(others) < KEYS:
            mine += await drain(first)
            others += await drain(second)
        assert contents([*mine, *others]) == list(range(KEYS, 2 * KEYS))

    run(broker, main)


def test_the_consumer_that_is_active_is_the_one_that_pulsar_picks(broker) -> None:
    """Of two consumers of a topic without partitions, by a hash of its name: what Apache's broker picks."""

    async def main(client):
        found = ""
        for number in range(12):
            topic = f"failover-{number}"
            for name in ("b", "a"):
                await client.subscribe(topic, "sub", consumer_type=Type.Failover, consumer_name=name)
            told = await asyncio.to_thread(stats, broker.web_service_url, topic)
            found += told["subscriptions"]["sub"]["activeConsumerName"]
        assert found == PICKED

    run(broker, main)


def test_keys_go_to_the_consumers_that_pulsar_picks(broker, topic) -> None:
    """Of three consumers, by consistent hashing of their names: what Apache's broker picks."""

    async def main(client):
        consumers = {}
        for name in ("x", "y", "z"):
            options = {"consumer_type": Type.KeyShared, "consumer_name": name}
            consumers[name] = await client.subscribe(topic, "sub", **options)
        producer = await client.create_producer(topic, batching_enabled=False)
        for number in range(len(KEYS_OF)):
            await producer.send(b"m%d" % number, partition_key=f"key-{number}")
        names: dict[int, str] = {}
        # All of them come; the run has a limit.
        while len(names) < len(KEYS_OF):
            names |= {n: name for name, consumer in consumers.items() for n in contents(await drain(consumer))}
        assert "".join(names[number] for number in range(len(KEYS_OF))) == KEYS_OF

    run(broker, main)
