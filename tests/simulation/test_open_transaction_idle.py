"""A transaction left open holds back its own topic, for its time-out at most, and no other; meanwhile nothing turns.

What a waiting broker does is counted in steps of the loop, which is the same in each run.
"""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.runtime import wait_ms
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_with_broker

TOPIC = "persistent://public/default/topic"
OTHER = "persistent://public/default/other"
TYPES = (
    gc.ConsumerType.Exclusive,
    gc.ConsumerType.Failover,
    gc.ConsumerType.Shared,
    gc.ConsumerType.KeyShared,
)
#: Of virtual time: some keep-alives of the client, and one of the broker or none.
WINDOW_MS = 20_000
#: The coordinator looks at its clock every ten seconds; the alarm for what holds a topic back has a timer of its own.
STEPS_ALLOWED = 40
FIRST = gc.InitialPosition.Earliest


async def steps_in_a_window() -> int:
    loop = asyncio.get_running_loop()
    before = loop.steps  # type: ignore[attr-defined]
    await wait_ms(WINDOW_MS)
    return loop.steps - before  # type: ignore[attr-defined]


def run(scenario) -> None:
    run_with_broker(scenario, broker={"transaction_coordinator_enabled": True}, keep_alive_interval_ms=5_000)


async def all_of(consumer: gc.Consumer[bytes], wait: int = 300) -> list[bytes]:
    found = []
    while True:
        try:
            message = await consumer.receive(wait)
        except gc.Timeout:
            return found
        found.append(message.data())
        await consumer.acknowledge(message)


async def waiting(client: gc.Client, topic: str) -> list[gc.Consumer[bytes]]:
    return [await client.subscribe(topic, kind.name, consumer_type=kind, initial_position=FIRST) for kind in TYPES]


def test_an_open_transaction_turns_nothing_and_holds_back_its_own_topic_for_its_time_out() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        loop = asyncio.get_running_loop()
        producer, other = await client.create_producer(TOPIC), await client.create_producer(OTHER)
        consumers, others = await waiting(client, TOPIC), await waiting(client, OTHER)
        reader = await client.create_reader(TOPIC, gc.MessageId.earliest)
        await producer.send(b"before", partition_key="k")
        for consumer in consumers:
            assert await all_of(consumer, 2_000) == [b"before"]
        assert (await reader.read_next(1_000)).data() == b"before"
        await wait_ms(WINDOW_MS)
        idle = await steps_in_a_window()

        began = loop.time()
        txn = await client.transaction(timeout=60)
        await producer.send(b"held", txn=txn, partition_key="k")
        await producer.send(b"behind", partition_key="k")
        await wait_ms(1_000)
        assert await steps_in_a_window() <= idle + STEPS_ALLOWED
        # Nobody sees more, whatever they do, and asking does not turn anything for good.
        assert not await reader.has_message_available()
        await consumers[2].seek(gc.MessageId.earliest)
        await reader.seek(gc.MessageId.earliest)
        for consumer in consumers:
            assert await all_of(consumer) == ([b"before"] if consumer is consumers[2] else [])
        assert (await reader.read_next(1_000)).data() == b"before"
        assert not await reader.has_message_available()
        late = await client.subscribe(TOPIC, "late", initial_position=FIRST)
        assert await all_of(late) == [b"before"]
        # No other topic or subscription notices.
        await other.send(b"elsewhere", partition_key="k")
        for consumer in others:
            assert await all_of(consumer) == [b"elsewhere"]
        async with client.transaction(timeout=60) as short:
            await other.send(b"in another", txn=short, partition_key="k")
        for consumer in others:
            assert await all_of(consumer) == [b"in another"]
        assert await steps_in_a_window() <= idle + STEPS_ALLOWED
        # Its client says nothing any more: the time-out ends it.
        (message,) = await asyncio.gather(consumers[0].receive(60_000))
        assert message.data() == b"behind"
        assert 59.0 <= loop.time() - began <= 61.0
        assert await reader.has_message_available()
        for consumer in (*consumers[1:], late):
            assert await all_of(consumer) == [b"behind"]
        assert (await reader.read_next(1_000)).data() == b"behind"
        assert not await reader.has_message_available()
        assert await steps_in_a_window() <= idle + STEPS_ALLOWED

    run(scenario)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("is_cumulative", [False, True])
def test_acknowledgments_left_open_turn_nothing_and_come_again_after_the_time_out(
    kind: gc.ConsumerType, is_cumulative: bool
) -> None:
    if is_cumulative and kind in (gc.ConsumerType.Shared, gc.ConsumerType.KeyShared):
        pytest.skip("there is no cumulative acknowledgment in these")

    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        consumer = await client.subscribe(TOPIC, "one", consumer_type=kind)
        neighbour = await client.subscribe(TOPIC, "two", consumer_type=kind)
        for payload in (b"a", b"b", b"c"):
            await producer.send(payload, partition_key="k")
        await wait_ms(WINDOW_MS)
        messages = [await consumer.receive(2_000) for _ in range(3)]
        idle = await steps_in_a_window()
        txn = await client.transaction(timeout=40)
        if is_cumulative:
            await consumer.acknowledge_cumulative(messages[1], txn=txn)
        else:
            for message in messages[:2]:
                await consumer.acknowledge(message, txn=txn)
        await wait_ms(1_000)
        assert await steps_in_a_window() <= idle + STEPS_ALLOWED
        assert await all_of(neighbour) == [b"a", b"b", b"c"], "another subscription is held back by nothing"
        await wait_ms(WINDOW_MS)
        await consumer.redeliver_unacknowledged_messages()
        assert sorted(await all_of(consumer)) == [b"a", b"b", b"c"]
        assert await steps_in_a_window() <= idle + STEPS_ALLOWED

    run(scenario)
