"""One client under test, in a process of its own: ``python -m bench.client_load '{"side": "ours", "mode": ...}'``.

``side`` is ``ours`` or ``official``; both do the same with the same broker, each in the way that is its fastest. The
answer is one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import geminga.client as ours
from bench.answers import tell
from geminga.client import BatchReceivePolicy, ConsumerType, InitialPosition

Options = dict[str, Any]
Answer = dict[str, Any]

#: Batches of both sides; the official default of its pending queue would hold it back.
BATCH_MESSAGES = 1000
BATCH_BYTES = 256 * 1024
DELAY_MS = 10
PENDING_MESSAGES_MAX = 50_000
#: ``send`` calls that are awaited at the same time.
CONCURRENT_SENDS = 1000
SILENCE_MS = 30_000
#: ``batch_receive`` of both sides: small enough that the broker sends on meanwhile.
BATCH_RECEIVE_MESSAGES = 1000
BATCH_RECEIVE_MS = 10


class Wrong(Exception):
    """What was received is not what was sent."""


class Watch:
    """Wall and CPU time since it was made, or stopped."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def stop(self) -> Watch:
        """What it shows stays."""
        self._wall = time.perf_counter() - self._wall
        self._cpu = time.process_time() - self._cpu
        return self

    def rate(self, count: int) -> Answer:
        """Messages a second, and CPU microseconds of this process a message."""
        return {"rate": count / self._wall, "cpu_us": self._cpu * 1e6 / count}


def key_of(index: int) -> str:
    """The key of a message."""
    return f"key-{index % 1000}"


def payload_of(o: Options) -> bytes:
    """Every message is the same: neither side compresses."""
    return b"x" * int(o["size"])


# ---- ours


async def ours_send_nowait(client: ours.Client, o: Options) -> Answer:
    """Messages without callback, receipts by one flush."""
    payload = payload_of(o)
    producer = await client.create_producer(o["topic"], **ours_producer(o))

    async def send(count: int) -> None:
        hand_over = producer.send_nowait
        left = count
        while left:
            turn = min(left, BATCH_MESSAGES)
            for _ in range(turn):
                hand_over(payload)
            left -= turn
            await producer.drain()
        await producer.flush()

    return await rate_of(send, o)


async def rate_of(send: Callable[[int], Awaitable[None]], o: Options) -> Answer:
    """Of ``count`` messages that are sent after those that warm up."""
    await send(o["warmup"])
    watch = Watch()
    await send(o["count"])
    return watch.stop().rate(o["count"])


async def ours_send(client: ours.Client, o: Options) -> Answer:
    """Tasks that each await the receipt of one message after the other."""
    payload = payload_of(o)
    producer = await client.create_producer(o["topic"], **ours_producer(o))

    async def sender(count: int) -> None:
        for _ in range(count):
            await producer.send(payload)

    async def send(count: int) -> None:
        await asyncio.gather(*(sender(count // CONCURRENT_SENDS) for _ in range(CONCURRENT_SENDS)))

    return await rate_of(send, o)


async def ours_fill(client: ours.Client, o: Options) -> Answer:
    """Messages with keys, for the consumers."""
    payload = payload_of(o)
    producer = await client.create_producer(o["topic"], **ours_producer(o))
    for index in range(o["count"]):
        producer.send_nowait(payload, partition_key=key_of(index))
        if index % BATCH_MESSAGES == 0:
            # Unbatched ones are in flight one by one, and more than there may be.
            await (producer.flush() if o.get("unbatched") else producer.drain())
    await producer.flush()
    return {"count": o["count"]}


async def ours_receive(client: ours.Client, o: Options) -> Answer:
    """One after the other."""
    return await _ours_consume(client, o, _by_receive)


async def ours_async_for(client: ours.Client, o: Options) -> Answer:
    """``async for``."""
    return await _ours_consume(client, o, _by_iteration)


async def ours_listener(client: ours.Client, o: Options) -> Answer:
    """A coroutine function that is called for each message."""
    seen, left = 0, int(o["count"])
    done = asyncio.Event()

    async def hear(consumer: ours.Consumer[bytes], message: ours.Message[bytes]) -> None:
        nonlocal seen, left
        seen += read(message)
        await consumer.acknowledge(message)
        left -= 1
        if not left:
            done.set()

    watch = Watch()
    consumer = await client.subscribe(o["topic"], o["subscription"], message_listener=hear, **ours_consumer(o))
    await done.wait()
    await consumer.close()
    watch.stop()
    check(seen, o)
    return watch.rate(o["count"])


async def ours_batch_receive(client: ours.Client, o: Options) -> Answer:
    """Lists of messages, each list acknowledged with one call."""
    return await _ours_consume(client, o, _by_batch)


async def _ours_consume(
    client: ours.Client, o: Options, consume: Callable[[ours.Consumer[bytes], Options], Awaitable[int]]
) -> Answer:
    consumer = await client.subscribe(o["topic"], o["subscription"], **ours_consumer(o))
    watch = Watch()
    seen = await consume(consumer, o)
    await consumer.close()
    watch.stop()
    check(seen, o)
    return watch.rate(o["count"])


async def _by_receive(consumer: ours.Consumer[bytes], o: Options) -> int:
    seen = 0
    receive, acknowledge = consumer.receive, consumer.acknowledge
    for _ in range(o["count"]):
        message = await receive()
        seen += read(message)
        await acknowledge(message)
    return seen


async def _by_iteration(consumer: ours.Consumer[bytes], o: Options) -> int:
    seen, left = 0, o["count"]
    acknowledge = consumer.acknowledge
    async for message in consumer:
        seen += read(message)
        await acknowledge(message)
        left -= 1
        if not left:
            break
    return seen


async def _by_batch(consumer: ours.Consumer[bytes], o: Options) -> int:
    seen, left = 0, o["count"]
    while left:
        messages = await consumer.batch_receive()
        for message in messages:
            seen += read(message)
        await consumer.acknowledge(messages)
        left -= len(messages)
    return seen


async def ours_round_trip(client: ours.Client, o: Options) -> Answer:
    """Send, receive, acknowledge, one message at a time, unbatched; a turn for each line on stdin."""
    producer = await client.create_producer(o["topic"], batching_enabled=False)
    consumer = await client.subscribe(o["topic"], "round-trip", initial_position=InitialPosition.Earliest)
    payload = payload_of(o)
    for _ in sys.stdin:
        watch, times = Watch(), []
        for _ in range(o["count"]):
            started = time.perf_counter()
            await producer.send(payload)
            await consumer.acknowledge(await consumer.receive())
            times.append(time.perf_counter() - started)
        print(json.dumps({**watch.stop().rate(o["count"]), **latency(times)}), flush=True)
    return {}


def ours_producer(o: Options) -> Any:
    """Batches as large as the official side's, or none."""
    if o.get("unbatched"):
        return {"batching_enabled": False, "max_pending_messages": PENDING_MESSAGES_MAX}
    return {
        "batching_max_messages": BATCH_MESSAGES,
        "batching_max_allowed_size_in_bytes": BATCH_BYTES,
        "batching_max_publish_delay_ms": DELAY_MS,
    }


def ours_consumer(o: Options) -> Any:
    """From the beginning."""
    kind = ConsumerType.Shared if o.get("shared") else ConsumerType.Exclusive
    return {
        "consumer_type": kind,
        "initial_position": InitialPosition.Earliest,
        "receiver_queue_size": o["prefetch"],
        "batch_receive_policy": BatchReceivePolicy(BATCH_RECEIVE_MESSAGES, 0, BATCH_RECEIVE_MS),
    }


# ---- the official client


def official_client(url: str) -> Any:
    """Without its log lines."""
    import pulsar

    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def official_producer(client: Any, o: Options) -> Any:
    """Batches as large as ours, or none."""
    return client.create_producer(
        o["topic"],
        batching_enabled=not o.get("unbatched"),
        batching_max_messages=BATCH_MESSAGES,
        batching_max_allowed_size_in_bytes=BATCH_BYTES,
        batching_max_publish_delay_ms=DELAY_MS,
        max_pending_messages=PENDING_MESSAGES_MAX,
        block_if_queue_full=True,
    )


def official_send_async(client: Any, o: Options) -> Answer:
    """A callback per message, as it demands; then flush."""
    payload = payload_of(o)
    producer = official_producer(client, o)
    failed: list[Any] = []

    def heard(result: Any, _: Any) -> None:
        if int(result) != 0:
            failed.append(result)

    def send(count: int) -> None:
        for _ in range(count):
            producer.send_async(payload, heard)
        producer.flush()

    send(o["warmup"])
    watch = Watch()
    send(o["count"])
    watch.stop()
    if failed:
        raise Wrong(f"{len(failed)} sends failed: {failed[0]}")
    return watch.rate(o["count"])


def official_receive(client: Any, o: Options) -> Answer:
    """One after the other."""
    consumer = official_consumer(client, o)
    seen = 0
    watch = Watch()
    for _ in range(o["count"]):
        message = consumer.receive(SILENCE_MS)
        seen += read(message)
        consumer.acknowledge(message)
    consumer.close()
    watch.stop()
    check(seen, o)
    return watch.rate(o["count"])


def official_listener(client: Any, o: Options) -> Answer:
    """A function that its thread calls for each message."""
    seen, left = 0, int(o["count"])
    done = threading.Event()

    def hear(consumer: Any, message: Any) -> None:
        nonlocal seen, left
        seen += read(message)
        consumer.acknowledge(message)
        left -= 1
        if not left:
            done.set()

    watch = Watch()
    consumer = official_consumer(client, o, message_listener=hear)
    done.wait()
    consumer.close()
    watch.stop()
    check(seen, o)
    return watch.rate(o["count"])


def official_batch_receive(client: Any, o: Options) -> Answer:
    """Lists of messages; each message is acknowledged on its own, the official client knows no other way."""
    import pulsar

    policy = pulsar.ConsumerBatchReceivePolicy(BATCH_RECEIVE_MESSAGES, 0, BATCH_RECEIVE_MS)
    consumer = official_consumer(client, o, batch_receive_policy=policy)
    seen, left = 0, o["count"]
    watch = Watch()
    while left:
        messages = consumer.batch_receive()
        for message in messages:
            seen += read(message)
            consumer.acknowledge(message)
        left -= len(messages)
    consumer.close()
    watch.stop()
    check(seen, o)
    return watch.rate(o["count"])


def official_consumer(client: Any, o: Options, **more: Any) -> Any:
    """From the beginning."""
    import pulsar

    return client.subscribe(
        o["topic"],
        o["subscription"],
        consumer_type=pulsar.ConsumerType.Shared if o.get("shared") else pulsar.ConsumerType.Exclusive,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=o["prefetch"],
        **more,
    )


def official_round_trip(client: Any, o: Options) -> Answer:
    """Send, receive, acknowledge, one message at a time, unbatched; a turn for each line on stdin."""
    import pulsar

    producer = client.create_producer(o["topic"], batching_enabled=False)
    consumer = client.subscribe(o["topic"], "round-trip", initial_position=pulsar.InitialPosition.Earliest)
    payload = payload_of(o)
    for _ in sys.stdin:
        watch, times = Watch(), []
        for _ in range(o["count"]):
            started = time.perf_counter()
            producer.send(payload)
            consumer.acknowledge(consumer.receive(SILENCE_MS))
            times.append(time.perf_counter() - started)
        print(json.dumps({**watch.stop().rate(o["count"]), **latency(times)}), flush=True)
    return {}


# ---- both


def read(message: Any) -> int:
    """Look at payload, key and id of a message; what they add up to."""
    return len(message.data()) + len(message.partition_key()) + (message.message_id() is not None)


def check(seen: int, o: Options) -> None:
    """Everything was there."""
    expected = o["count"] * (o["size"] + 1) + sum(len(key_of(index)) for index in range(o["count"]))
    if seen != expected:
        raise Wrong(f"payloads, keys and ids add up to {seen}, expected {expected}")


def latency(times: list[float]) -> Answer:
    """Of round trips, the first tenth left out."""
    kept = sorted(times[len(times) // 10 :])
    return {"median_ms": statistics.median(kept) * 1000, "p99_ms": kept[int(len(kept) * 0.99)] * 1000}


def negative_acks(o: Options) -> Answer:
    """Memory of the tracker with ``count`` entries pending: half of 2,000,003 entries, in no order, within a
    minute; ledgers of 50,000 entries.
    """
    from geminga.client.consumer_rules.negative_acks import NegativeAcks

    count = o["count"]
    before = resident_bytes()
    tracker = NegativeAcks()
    started = time.perf_counter()
    for index in range(count):
        entry = index * 1_236_067 % 2_000_003
        tracker.add((entry // 50_000, entry % 50_000), index * 60_000 / count)
    seconds = time.perf_counter() - started
    assert tracker.count == count
    return {"bytes": resident_bytes() - before, "rate": count / seconds}


def resident_bytes() -> int:
    """Of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


async def run_ours(o: Options) -> Answer:
    """A client, the mode, close."""
    modes = {
        "send_nowait": ours_send_nowait,
        "send": ours_send,
        "fill": ours_fill,
        "receive": ours_receive,
        "async_for": ours_async_for,
        "batch_receive": ours_batch_receive,
        "listener": ours_listener,
        "round_trip": ours_round_trip,
    }
    async with ours.connect(o["url"]) as client:
        return await modes[o["mode"]](client, o)


def run_official(o: Options) -> Answer:
    """A client, the mode, close."""
    modes = {
        "send_async": official_send_async,
        "receive": official_receive,
        "batch_receive": official_batch_receive,
        "listener": official_listener,
        "round_trip": official_round_trip,
    }
    client = official_client(o["url"])
    try:
        return modes[o["mode"]](client, o)
    finally:
        client.close()


def run(o: Options) -> Answer:
    """One run."""
    if o["mode"] == "negative_acks":
        return negative_acks(o)
    if o["side"] == "official":
        return run_official(o)
    if o.get("loop") == "uvloop":
        import uvloop

        return uvloop.run(run_ours(o))
    return asyncio.run(run_ours(o))


if __name__ == "__main__":
    sys.exit(tell(run))
