"""Programs whose broker hangs: everything that our client can ask of it, and 24 MB a second to one that does not hang.

``python -m support.processes.hung_client asyncio|blocking|spark HUNG_URL HEALTHY_URL``: says ``ready`` once its
producers are there, and each second the bytes that the healthy broker stored, what the other one did, and what failed
there.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final

import geminga.client as gc
from geminga.client import blocking
from geminga.model.errors import GemingaError
from support.processes.hung_peers import ASKED_BYTES_S, MESSAGE_BYTES

HUNG: Final = "persistent://public/default/hung"
HEALTHY: Final = "persistent://public/default/healthy"
#: At the broker that hangs.
SENDERS: Final = 300
ASKERS: Final = 100
#: Fails soon, so that much is asked.
OPERATION_MS: Final = 2000
#: ``maxUnackedMessagesPerConsumer``.
UNACKNOWLEDGED_MAX: Final = 50_000
SEND_TIMEOUT: Final = {"pulsar.producer.sendTimeoutMs": "5000"}


class Counts:
    """What is told."""

    def __init__(self) -> None:
        self.stored = self.done = self.failed = 0
        threading.Thread(target=self._tell, daemon=True).start()

    def _tell(self) -> None:
        pause = threading.Event()
        while not pause.wait(1):
            print(self.stored, self.done, self.failed, flush=True)


def following(first: gc.MessageId) -> Iterator[gc.MessageId]:
    """Ids to acknowledge, as many as a broker lets a consumer have: nobody gets more while it hangs."""
    for number in itertools.count():
        yield gc.MessageId(first.partition(), first.ledger_id(), 2 + number % UNACKNOWLEDGED_MAX * 2, -1)


async def again(counts: Counts, work: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await work()
            counts.done += 1
            await asyncio.sleep(0.001)
        except gc.PulsarException:
            counts.failed += 1
            await asyncio.sleep(0.005)


async def flow(counts: Counts, producer: gc.Producer[bytes]) -> None:
    began, payload = time.monotonic(), os.urandom(MESSAGE_BYTES)

    async def send() -> None:
        await producer.send(payload)
        counts.stored += MESSAGE_BYTES

    under_way: set[asyncio.Task[None]] = set()
    for sent in itertools.count():
        await asyncio.sleep(max(0, began + sent * MESSAGE_BYTES / ASKED_BYTES_S - time.monotonic()))
        while len(under_way) > 32:
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(send())
        under_way.add(task)
        task.add_done_callback(under_way.discard)


async def with_asyncio(hung: str, healthy: str) -> None:
    payload = os.urandom(MESSAGE_BYTES)
    async with (
        gc.connect(hung, operation_timeout_ms=OPERATION_MS) as stuck,
        gc.connect(healthy) as client,
    ):
        waiting = await stuck.create_producer(HUNG, batching_enabled=False, send_timeout_millis=5000)
        refused = await stuck.create_producer(HUNG, send_timeout_millis=5000, block_if_queue_full=False)
        consumer = await stuck.subscribe(HUNG, "s", consumer_type=gc.ConsumerType.Shared)
        ids = following(await waiting.send(payload))
        flowing = await client.create_producer(HEALTHY, batching_enabled=False)
        counts = Counts()
        print("ready", flush=True)
        sys.stdin.readline()
        work: list[Callable[[], Awaitable[object]]] = [lambda: waiting.send(payload)] * SENDERS
        work += [lambda: refused.send(payload)] * 10
        work += [lambda: stuck.get_topic_partitions(HUNG)] * ASKERS
        work += [lambda: stuck.create_producer(HUNG)] * 10
        work += [lambda: stuck.transaction()] * 10
        work += [lambda: consumer.acknowledge(next(ids)), lambda: consumer.receive(1000)]
        await asyncio.gather(flow(counts, flowing), *(again(counts, one) for one in work))


def again_here(counts: Counts, work: Callable[[], object]) -> None:
    while True:
        try:
            work()
            counts.done += 1
        except (gc.PulsarException, GemingaError):
            counts.failed += 1
            time.sleep(0.005)


def in_threads(counts: Counts, work: list[Callable[[], object]]) -> None:
    for one in work:
        threading.Thread(target=again_here, args=(counts, one), daemon=True).start()


def flow_here(counts: Counts, healthy: str) -> None:
    """From this thread, for good."""
    with blocking.connect(healthy) as client:
        producer = client.create_producer(HEALTHY, batching_enabled=False, max_pending_messages=32)
        began, payload = time.monotonic(), os.urandom(MESSAGE_BYTES)

        def receipt(*_: object) -> None:
            counts.stored += MESSAGE_BYTES

        for sent in itertools.count():
            time.sleep(max(0, began + sent * MESSAGE_BYTES / ASKED_BYTES_S - time.monotonic()))
            producer.send_nowait(payload, receipt)


def with_blocking(hung: str, healthy: str) -> None:
    payload = os.urandom(MESSAGE_BYTES)
    stuck = blocking.connect(hung, operation_timeout_ms=OPERATION_MS)
    waiting = stuck.create_producer(HUNG, batching_enabled=False, send_timeout_millis=5000)
    refused = stuck.create_producer(HUNG, send_timeout_millis=5000, block_if_queue_full=False)
    consumer = stuck.subscribe(HUNG, "s", consumer_type=gc.ConsumerType.Shared)
    ids = following(waiting.send(payload))
    counts = Counts()
    print("ready", flush=True)
    sys.stdin.readline()
    work: list[Callable[[], object]] = [lambda: waiting.send(payload)] * 20
    # Each a payload of its own, as of who reads files.
    work += [lambda: refused.send_nowait(os.urandom(MESSAGE_BYTES), lambda *_: None)] * 2
    work += [lambda: stuck.get_topic_partitions(HUNG)] * 20
    work += [lambda: stuck.transaction(), lambda: stuck.create_producer(HUNG)]
    work += [lambda: consumer.acknowledge(next(ids)), lambda: consumer.receive(1000)]
    in_threads(counts, work)
    flow_here(counts, healthy)


def with_spark(hung: str, healthy: str) -> None:
    """Readers and writers as Spark's tasks call them, without a JVM."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import BinaryType, StructField, StructType

    from geminga.spark.datasource import PulsarDataSource

    columns = StructType([StructField("value", BinaryType())])
    payload = os.urandom(MESSAGE_BYTES)
    rows = pa.RecordBatch.from_arrays([pa.array([payload] * 8, pa.binary())], schema=to_arrow_schema(columns))

    def source(url: str, topic: str, **more: str) -> PulsarDataSource:
        client = {"service.url": url, "pulsar.client.operationTimeoutMs": str(OPERATION_MS)}
        return PulsarDataSource({**client, "topic": topic, **more})

    def paced() -> Iterator[pa.RecordBatch]:
        began = time.monotonic()
        for sent in itertools.count():
            time.sleep(max(0, began + sent * rows.nbytes / ASKED_BYTES_S - time.monotonic()))
            yield rows
            counts.stored += rows.nbytes

    writers = {}
    work: list[Callable[[], object]] = []
    for url, topic in ((hung, HUNG), (healthy, HEALTHY)):
        writers[url] = writer = source(url, topic, **SEND_TIMEOUT).writer(columns, overwrite=False)
        writer.write(iter([rows] * 20))
        found = source(url, topic, pollTimeoutMs="2000")
        reader = found.reader(found.schema())
        work += [partial(read, reader, part) for part in reader.partitions()] * 2
    work.append(lambda: writers[hung].write(iter([rows] * 100)))
    counts = Counts()
    print("ready", flush=True)
    sys.stdin.readline()
    in_threads(counts, work)
    while True:
        writers[healthy].write(paced())


def read(reader: Any, part: Any) -> None:
    for _ in reader.read(part):
        pass
    time.sleep(0.5)


if __name__ == "__main__":
    mode, *urls = sys.argv[1:]
    if mode == "asyncio":
        asyncio.run(with_asyncio(*urls))
    elif mode == "blocking":
        with_blocking(*urls)
    else:
        with_spark(*urls)
