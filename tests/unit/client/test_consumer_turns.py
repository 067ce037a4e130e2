"""Whoever takes one message after the other gives the loop its turns, and loses nothing by it."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

import geminga.client as gc
from geminga.client._consuming.receiving import Receiving
from geminga.client.rules.turns import TURN_MESSAGES_FIRST, TURN_MESSAGES_MAX, TURN_MS_MAX, Turns
from geminga.runtime import next_turn, spawn, wait_ms
from support.worlds.scripted_broker import run_against, run_with_broker
from support.worlds.scripted_consumer import ConsumerScript, entry_bytes

COVERED = (Turns, Receiving)
COUNT = 2400


def entries(*, batched: bool) -> list[bytes]:
    """``COUNT`` messages: two batches, each of more than a turn, or one by one."""
    payloads = [b"%d" % number for number in range(COUNT)]
    if not batched:
        return [entry_bytes([payload]) for payload in payloads]
    return [entry_bytes(payloads[:1500], batched=True), entry_bytes(payloads[1500:], batched=True)]


async def iterate(consumer, seen: list[bytes]) -> None:
    async for message in consumer:
        seen.append(message.data())
        await consumer.acknowledge(message)
        if len(seen) == COUNT:
            return


async def receive(consumer, seen: list[bytes]) -> None:
    while len(seen) < COUNT:
        message = await consumer.receive(1000)
        seen.append(message.data())
        await consumer.acknowledge(message)


async def receive_batches(consumer, seen: list[bytes]) -> None:
    while len(seen) < COUNT:
        messages = await consumer.batch_receive()
        assert len(messages) <= 50
        seen.extend(message.data() for message in messages)
        await consumer.acknowledge(messages)


def subscribe(client, **options):
    return client.subscribe(
        "t", "s", receiver_queue_size=5000, batch_receive_policy=gc.BatchReceivePolicy(50, 0, 10), **options
    )


async def watch(seen: list[bytes], counts: list[int]) -> None:
    """The loop's other work: how many messages there are at each of its turns."""
    while len(seen) < COUNT:
        counts.append(len(seen))
        await next_turn()


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("consume", [iterate, receive, receive_batches])
def test_messages_that_are_ready_do_not_keep_the_loop_from_its_other_work(consume, batched) -> None:
    async def scenario(client):
        consumer = await subscribe(client)
        while consumer.stats().prefetched_messages < COUNT:
            await wait_ms(1)
        seen: list[bytes] = []
        counts: list[int] = []
        other = spawn(watch(seen, counts), name="other work")
        await consume(consumer, seen)
        other.cancel()
        assert seen == [b"%d" % number for number in range(COUNT)]
        counts = [*counts, COUNT]
        steps = [after - before for before, after in pairwise(counts)]
        # Batches are not cut at a turn's end.
        assert max(steps) < TURN_MESSAGES_MAX + (50 if consume is receive_batches else 1)
        assert max(steps) > TURN_MESSAGES_MAX // 2, "turns grow where the application is fast"
        assert sum(1 for step in steps if step) < COUNT / TURN_MESSAGES_MAX + 10

    run_against(ConsumerScript(entries(batched=batched)), scenario)


def test_a_listener_gives_the_loop_its_turns() -> None:
    seen: list[bytes] = []

    async def scenario(client):
        counts: list[int] = []
        consumer = await subscribe(client, message_listener=lambda _, message: seen.append(message.data()))
        consumer.pause_message_listener()
        while len(seen) + consumer.stats().prefetched_messages < COUNT:
            await wait_ms(1)
        consumer.resume_message_listener()
        await watch(seen, counts)
        assert seen == [b"%d" % number for number in range(COUNT)]
        assert max(after - before for before, after in pairwise(counts)) <= TURN_MESSAGES_MAX

    run_against(ConsumerScript(entries(batched=True)), scenario)


@pytest.mark.parametrize("consume", [iterate, receive])
def test_cut_off_in_the_loops_turn_nothing_is_lost(consume) -> None:
    async def scenario(client):
        consumer = await subscribe(client)
        while consumer.stats().prefetched_messages < COUNT:
            await wait_ms(1)
        seen: list[bytes] = []
        times = 0
        while len(seen) < COUNT:
            task = spawn(consume(consumer, seen), name="cut off")
            await next_turn()
            task.cancel()
            await asyncio.wait([task])
            times += 1
        assert seen == [b"%d" % number for number in range(COUNT)]
        assert times > COUNT / TURN_MESSAGES_MAX
        assert consumer.stats().messages_received == COUNT

    run_against(ConsumerScript(entries(batched=True)), scenario)


def test_a_consumer_closed_in_the_loops_turn_hands_out_nothing_more() -> None:
    async def scenario(client):
        consumer = await subscribe(client)
        while consumer.stats().prefetched_messages < COUNT:
            await wait_ms(1)
        seen: list[bytes] = []
        task = spawn(iterate(consumer, seen), name="iterating")
        await next_turn()
        received = len(seen)
        assert 0 < received < COUNT
        await consumer.close()
        await asyncio.wait([task], timeout=10)
        assert task.done()
        assert len(seen) == received

    run_against(ConsumerScript(entries(batched=True)), scenario)


def test_receive_nowait_never_has_to_wait_for_a_turn() -> None:
    async def scenario(client):
        consumer = await subscribe(client)
        while consumer.stats().prefetched_messages < COUNT:
            await wait_ms(1)
        messages = [consumer.receive_nowait() for _ in range(COUNT)]
        assert [message.data() for message in messages if message is not None] == [b"%d" % n for n in range(COUNT)]
        assert consumer.receive_nowait() is None

    run_against(ConsumerScript(entries(batched=True)), scenario)


def test_a_slow_application_has_shorter_turns() -> None:
    now_s = 100.0
    turns = Turns(now_s)
    assert turns.left == TURN_MESSAGES_FIRST
    for each_ms, messages in [(0.001, TURN_MESSAGES_MAX), (1.0, TURN_MS_MAX), (100.0, 1), (0.001, TURN_MESSAGES_MAX)]:
        for _ in range(12):
            now_s += turns.left * each_ms / 1000
            turns.end(now_s)
            now_s += 1  # the loop's own turn counts for nothing
            turns.begin(now_s)
            assert 0 < turns.left <= TURN_MESSAGES_MAX
        assert messages / 2 <= turns.left <= messages


@pytest.mark.parametrize("batched", [True, False])
def test_others_may_take_messages_while_one_iterates(batched) -> None:
    async def scenario(client):
        consumer = await subscribe(client)
        while consumer.stats().prefetched_messages < COUNT:
            await wait_ms(1)
        seen: list[bytes] = []
        taken = [consumer.receive_nowait, consumer.receive, consumer.batch_receive]
        async for message in consumer:
            seen.append(message.data())
            take = taken[len(seen) % 3]
            more = take()
            if asyncio.iscoroutine(more):
                more = await more
            seen.extend(one.data() for one in (more if isinstance(more, list) else [more]))
            if len(seen) > COUNT - 100:
                break
        assert seen == [b"%d" % number for number in range(len(seen))]
        stats = consumer.stats()
        assert (stats.messages_received, stats.prefetched_messages) == (len(seen), COUNT - len(seen))

    run_against(ConsumerScript(entries(batched=batched)), scenario)


def test_a_batch_is_waited_for_until_there_is_enough() -> None:
    async def scenario(client: gc.Client, _: object) -> None:
        policy = gc.BatchReceivePolicy(3, 0, 60_000)
        consumer = await client.subscribe("t", "s", batch_receive_policy=policy)
        producer = await client.create_producer("t", batching_enabled=False)
        receiving = spawn(consumer.batch_receive(), name="batch")
        for number in range(3):
            await wait_ms(1000)
            await producer.send(b"%d" % number)
        assert [message.data() for message in await receiving] == [b"0", b"1", b"2"]

    run_with_broker(scenario)
