"""What ``python -m bench spark`` runs beside the broker: ``python -m bench.spark_load '{"mode": ...}'``.

========= ==========================================================================================================
mode      what
========= ==========================================================================================================
fill      messages into topics, with our client
alone     the source's tasks one after the other in this process, without Spark: broker to Arrow batches
send      the payloads over a bare socket, again and again, to whoever connects (the floor of a read)
spark     a Spark session; for each line on stdin a query is run and told about (see :func:`run_query`)
========= ==========================================================================================================

Each answer is one JSON line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from tools.process_tree import children_of

from bench.answers import tell
from bench.spark_session import serve

Options = dict[str, Any]
Answer = dict[str, Any]

#: Different payloads; they come in turns.
PAYLOADS = 4096
PAYLOAD_BYTES = (500, 1500)
#: Environment variable, also of Spark's workers: bytes of each payload; 0: of random length.
PAYLOAD_VARIABLE = "GEMINGA_BENCH_PAYLOAD_BYTES"
#: Producer batches of the topics that are read.
BATCH_BYTES = 128 * 1024
KEYS = 1000
FIRST_EVENT_MS = 1_700_000_000_000
_TICKS = os.sysconf("SC_CLK_TCK")


def payloads() -> list[bytes]:
    """Random bytes, the same in each process."""
    source = random.Random(7)
    size = int(os.environ.get(PAYLOAD_VARIABLE, "0"))
    first, last = (size, size) if size else PAYLOAD_BYTES
    return [source.randbytes(source.randint(first, last)) for _ in range(PAYLOADS)]


# ---- fill


async def hand_over(producer: Any, content: bytes, **fields: Any) -> None:
    """Send a message, once there is room for it."""
    from geminga.client import MemoryBufferIsFull

    try:
        producer.send_nowait(content, **fields)
    except MemoryBufferIsFull:
        await producer.flush()
        producer.send_nowait(content, **fields)


async def fill(o: Options) -> Answer:
    """``count`` messages with key and event time into each topic."""
    from geminga.client import CompressionType, connect

    contents = payloads()
    size = 0
    async with connect(o["url"]) as client:
        for topic in o["topics"]:
            producer = await client.create_producer(
                topic,
                batching_max_messages=100_000,
                batching_max_allowed_size_in_bytes=BATCH_BYTES,
                batching_max_publish_delay_ms=1000,
                compression_type=CompressionType[o["compression"]],
            )
            for index in range(o["count"]):
                content = contents[index % PAYLOADS]
                size += len(content)
                fields = {"partition_key": f"key-{index % KEYS}", "event_timestamp": FIRST_EVENT_MS + index}
                await hand_over(producer, content, **fields)
                if index % 100 == 0:
                    await producer.drain()
            await producer.flush()
    return {"bytes": size, "messages": o["count"] * len(o["topics"])}


# ---- without Spark


def alone(o: Options) -> Answer:
    """Every task of a batch read, here, one after the other; wall and CPU seconds of this process."""
    from geminga.spark.datasource import PulsarDataSource

    source = PulsarDataSource(reading(o))
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    for _ in reader.read(tasks[0]):  # what is imported on first use is not counted
        break
    started, cpu = time.perf_counter(), time.process_time()
    rows = size = 0
    for task in tasks:
        for batch in reader.read(task):
            rows += batch.num_rows
            size += value_bytes(batch)
    return {
        "rows": rows,
        "bytes": size,
        "seconds": time.perf_counter() - started,
        "cpu_s": time.process_time() - cpu,
    }


def reading(o: Options) -> dict[str, str]:
    """Options of the source."""
    return {"service.url": o["url"], "topics": ",".join(o["topics"]), "startingOffsets": "earliest", **o["options"]}


def value_bytes(batch: Any) -> int:
    """Of the payloads."""
    import numpy as np

    column = batch.column("value")
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return int(ends[-1] - ends[0])


# ---- the floor


def send(o: Options) -> Answer:
    """Tell the port, then send to each connection until it goes; ends with its parent."""
    block = b"".join(payloads())
    listening = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)

    def serve_one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while True:
                connection.sendall(block)

    def serve_all() -> None:
        while True:
            threading.Thread(target=serve_one, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=serve_all, daemon=True).start()
    sys.stdin.read()
    return {}


# ---- Spark


def spark(o: Options) -> Answer:
    """A session; queries for the lines on stdin."""
    from bench.spark_sources import MemorySource, NowhereSink, SocketSource

    return serve(Path(o["scratch"]), (MemorySource, SocketSource, NowhereSink), run_query)


def run_query(session_: Any, o: Options, scratch: Path) -> Answer:
    """One streaming query over everything that is there: ``from`` -> ``to``, each (format, options).

    The time is that of its triggers, planning and checkpoint included; CPU seconds are those of the JVM and of the
    Python processes below it.
    """
    checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=scratch)
    before = cpu_of_children()
    reading = session_.readStream.format(o["from"][0]).options(**o["from"][1])
    if o["from"][0] == "parquet":  # files do not tell a stream their columns
        reading = reading.schema(session_.read.parquet(o["from"][1]["path"]).schema)
    frame = reading.load()
    if "select" in o:
        frame = frame.select(*o["select"])
    writing = frame.writeStream.format(o["to"][0]).options(**o["to"][1], checkpointLocation=checkpoint)
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    after = cpu_of_children()
    shutil.rmtree(checkpoint, ignore_errors=True)
    return {
        "rows": sum(one["numInputRows"] for one in progress),
        "trigger_ms": [one["durationMs"]["triggerExecution"] for one in progress],
        "jvm_cpu_s": after["jvm"] - before["jvm"],
        "python_cpu_s": after["python"] - before["python"],
    }


def cpu_of_children() -> dict[str, float]:
    """CPU seconds so far of the processes below this one, those that ended included."""
    found = {"jvm": 0.0, "python": 0.0}
    for pid in children_of([os.getpid()]):
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        except OSError:
            continue
        own, reaped = (sum(map(int, rest.split()[at : at + 2])) / _TICKS for at in (11, 13))
        found["jvm" if "java" in name else "python"] += own
        found["python"] += reaped  # of children that ended: the JVM's are Python
    return found


_MODES: Final = {"alone": alone, "send": send, "spark": spark}


if __name__ == "__main__":
    sys.exit(tell(lambda o: asyncio.run(fill(o)) if o["mode"] == "fill" else _MODES[o["mode"]](o)))
