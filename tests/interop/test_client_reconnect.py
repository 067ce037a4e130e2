"""Our client while its broker goes away and comes back: topics unloaded under load, brokers stopped, killed, paused."""

from __future__ import annotations

import asyncio
import signal

import pytest

import geminga.client as gc
from support.house.waiting import until
from support.house.weekly_sample import sampled
from support.stories.client_stories import KEYS, RECEIVE_MS, contents, drain, publish, run
from support.worlds.partitions import set_partitions
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

EARLIEST = gc.InitialPosition.Earliest
Type = gc.ConsumerType
#: Messages sent while the topic is unloaded again and again.
MESSAGES = 600
UNLOADS = 3
#: Unanswered for so long, a message fails.
SEND_TIMEOUT_MS = 1000
#: A broker of Apache's needs some fifteen seconds to start.
START_MS = 60_000


async def unload(broker, topic: str) -> None:
    """Unload it, all its partitions too."""
    path = f"persistent/public/default/{topic}/unload"
    answer = await asyncio.to_thread(Rest(broker.web_service_url).put, path)
    assert answer.status == 204, answer


class Load:
    """Sends numbered messages one after the other, and knows which of them got their receipts."""

    def __init__(self, producer: gc.Producer[bytes], count: int) -> None:
        self.producer = producer
        self.count = count
        self.stored: set[int] = set()
        self.errors: list[gc.PulsarException] = []

    async def run(self) -> None:
        for number in range(self.count):
            self.producer.send_nowait(b"m%d" % number, self._heard(number), partition_key=f"k{number % KEYS}")
            if number % 10 == 9:
                await self.producer.send(b"m-1")
        await self.producer.flush()

    def _heard(self, number: int) -> gc.SendCallback:
        def heard(error: gc.PulsarException | None, _: gc.MessageId | None) -> None:
            if error is None:
                self.stored.add(number)
            else:
                self.errors.append(error)

        return heard


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("type_", sampled("types whose topics are unloaded", Type, 2))
def test_unloads_lose_nothing_and_what_has_its_receipt_does_not_come_again(
    broker, judge_is_apache, topic, type_, batched, partitions
) -> None:
    """1. Publish and consume while the topic is unloaded. 2. All comes, acknowledged messages once, keys in order."""
    if partitions:
        set_partitions(broker.web_service_url, topic, partitions)

    async def main(client):
        options = {"consumer_type": type_, "initial_position": EARLIEST, "ack_receipt_enabled": True}
        options |= {"batch_index_ack_enabled": True, "ack_group_time_ms": 0}
        consumer = await client.subscribe(topic, "sub", **options)
        producer = await client.create_producer(topic, batching_enabled=batched)
        load = Load(producer, MESSAGES)
        sending = asyncio.ensure_future(load.run())
        first: dict[int, None] = {}
        acknowledged: set[gc.MessageId] = set()
        # Those from before the first unload: later ones may be under way a second time when they get their receipts.
        settled: frozenset[gc.MessageId] = frozenset()
        unloads = 0
        while len(first) < MESSAGES:
            message = await consumer.receive(RECEIVE_MS)
            # Apache's receipt does not say that the acknowledgment is stored.
            assert message.message_id() not in settled or judge_is_apache
            number = int(message.data()[1:])
            if number >= 0:
                first.setdefault(number)
            try:
                await consumer.acknowledge(message)
                acknowledged.add(message.message_id())
            except gc.NotConnected:
                pass  # not known whether it was
            if unloads < UNLOADS and len(first) > (unloads + 1) * MESSAGES // (UNLOADS + 1):
                unloads += 1
                settled = settled or frozenset(acknowledged)
                await unload(broker, topic)
        await sending
        assert unloads == UNLOADS
        assert load.errors == []
        assert load.stored == set(first) == set(range(MESSAGES))
        for key in range(KEYS):
            numbers = [number for number in first if number % KEYS == key]
            assert numbers == sorted(numbers)
        # All of it may have come before the last unload had closed them.
        both = lambda: producer.is_connected() and consumer.is_connected()  # noqa: E731
        await asyncio.to_thread(until, both, "connected again")

    run(broker, main)


def test_readers_and_table_views_go_on_after_an_unload(broker, topic) -> None:
    async def main(client):
        # A ledger that no subscription needs may go.
        await client.subscribe(topic, "keeps", initial_position=EARLIEST)
        producer = await client.create_producer(topic)
        for number in range(4):
            await producer.send(b"m%d" % number, partition_key=f"k{number % 2}")
        view = await client.create_table_view(topic)
        reader = await client.create_reader(topic, gc.MessageId.earliest)
        assert contents([await reader.read_next(RECEIVE_MS) for _ in range(3)]) == [0, 1, 2]
        await unload(broker, topic)
        await producer.send(b"m4", partition_key="k0")
        assert contents([await reader.read_next(RECEIVE_MS) for _ in range(2)]) == [3, 4]
        assert not await reader.has_message_available()
        await view.refresh()
        assert dict(view.items()) == {"k0": b"m4", "k1": b"m3"}
        await unload(broker, topic)
        await reader.seek(gc.MessageId.earliest)
        assert contents([await reader.read_next(RECEIVE_MS) for _ in range(5)]) == [0, 1, 2, 3, 4]

    run(broker, main)


def test_an_exclusive_producer_stays_the_only_one_after_an_unload(broker, topic) -> None:
    async def main(client):
        exclusive = gc.ProducerAccessMode.Exclusive
        producer = await client.create_producer(topic, access_mode=exclusive)
        await producer.send(b"before")
        await unload(broker, topic)
        await producer.send(b"after")
        with pytest.raises(gc.ProducerFenced):
            await client.create_producer(topic, access_mode=exclusive)
        waiting = gc.ProducerAccessMode.WaitForExclusive
        next_one = asyncio.ensure_future(client.create_producer(topic, access_mode=waiting))
        await producer.send(b"still mine")
        assert not next_one.done()
        await producer.close()
        await (await next_one).send(b"mine")

    run(broker, main)


def test_a_producer_that_was_fenced_out_stays_so_after_an_unload(broker, topic) -> None:
    async def main(client):
        producer = await client.create_producer(topic, access_mode=gc.ProducerAccessMode.Exclusive)
        await producer.send(b"before")
        other = await client.create_producer(topic, access_mode=gc.ProducerAccessMode.ExclusiveWithFencing)
        await unload(broker, topic)
        await other.send(b"mine")
        with pytest.raises(gc.ProducerFenced):
            await producer.send(b"too late")
        await other.send(b"still mine")

    run(broker, main)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_restarted_broker_has_everything_and_clients_come_back(restartable, judge_is_apache, topic, how) -> None:
    """1. Messages, some acknowledged; the broker ends and starts again. 2. The same objects go on, nothing is lost."""

    def restart() -> None:
        if how == "killed":
            restartable.kill()
        else:
            restartable.stop()
        restartable.start()

    async def main(client):
        options = {"initial_position": EARLIEST, "ack_receipt_enabled": True, "batch_index_ack_enabled": True}
        shared = await client.subscribe(topic, "shared", consumer_type=Type.Shared, **options)
        exclusive = await client.subscribe(topic, "exclusive", **options)
        reader = await client.create_reader(topic, gc.MessageId.earliest)
        producer = await client.create_producer(topic, batching_max_publish_delay_ms=1, send_timeout_millis=0)
        for number in range(20):
            producer.send_nowait(b"m%d" % number)
        await producer.flush()
        assert contents([await shared.receive(RECEIVE_MS) for _ in range(20)]) == list(range(20))
        messages = [await exclusive.receive(RECEIVE_MS) for _ in range(20)]
        await exclusive.acknowledge_cumulative(messages[9])
        assert contents([await reader.read_next(RECEIVE_MS) for _ in range(20)]) == list(range(20))
        restarting = asyncio.ensure_future(asyncio.to_thread(restart))
        ids = [asyncio.ensure_future(producer.send(b"m%d" % number)) for number in range(20, 40)]
        await restarting
        ids = [await each for each in ids]
        assert len(set(ids)) == 20
        seen: set[int] = set()
        while seen != set(range(40)):
            message = await shared.receive(START_MS)
            seen.add(int(message.data()[1:]))
            await shared.acknowledge(message)
        seen = set()
        while not set(range(10, 40)) <= seen:
            message = await exclusive.receive(START_MS)
            seen.add(int(message.data()[1:]))
        assert seen == set(range(10, 40)) or judge_is_apache
        seen = set()
        while not set(range(20, 40)) <= seen:
            seen.add(int((await reader.read_next(START_MS)).data()[1:]))

    run(restartable, main, limit_s=150)


def test_a_message_without_answer_fails_in_time_and_the_next_one_is_sent(restartable, topic) -> None:
    """1. The broker's process is paused. 2. What is sent fails with Timeout. 3. It goes on: so does the producer."""

    async def main(client):
        producer = await client.create_producer(topic, send_timeout_millis=SEND_TIMEOUT_MS)
        await producer.send(b"m0")
        restartable.process.send_signal(signal.SIGSTOP)
        try:
            started = asyncio.get_running_loop().time()
            with pytest.raises(gc.Timeout):
                await producer.send(b"m1")
            assert SEND_TIMEOUT_MS / 1000 <= asyncio.get_running_loop().time() - started < 5 * SEND_TIMEOUT_MS / 1000
        finally:
            restartable.process.send_signal(signal.SIGCONT)
        await producer.send(b"m2")
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        # Whether the one that timed out was stored is not known, and here it was.
        assert contents(await drain(consumer, 1000)) in ([0, 1, 2], [0, 2])

    run(restartable, main)


def test_messages_from_before_an_unload_are_acknowledged_after_it(broker, topic) -> None:
    async def main(client):
        options = {"consumer_type": Type.Shared, "initial_position": EARLIEST, "ack_receipt_enabled": True}
        consumer = await client.subscribe(topic, "sub", **options)
        await publish(client, topic, 10, batched=False)
        messages = [await consumer.receive(RECEIVE_MS) for _ in range(10)]
        await unload(broker, topic)
        # The same messages come again, with another consumer of the broker's: what is acknowledged is the entry.
        again = [await consumer.receive(RECEIVE_MS) for _ in range(10)]
        assert contents(again) == list(range(10))
        await consumer.acknowledge(messages)
        await consumer.close()
        assert await drain(await client.subscribe(topic, "sub", **options)) == []

    run(broker, main)
