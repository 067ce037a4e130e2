"""What ``python -m bench lake`` runs beside the broker: ``python -m bench.lake_load '{"mode": ...}'``.

========= ==========================================================================================================
mode      what
========= ==========================================================================================================
fill      messages into one topic, with our client, batched; the first 8 bytes of a value are its number
spark     a Spark session; for each line on stdin a batch read is run (see :func:`run_read`)
========= ==========================================================================================================

Each answer is one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.answers import tell
from bench.lake_ids import NUMBER_BYTES, IdSink, check_runs
from bench.lake_queries import ALL, QUERIES
from bench.spark_load import BATCH_BYTES, cpu_of_children, hand_over
from bench.spark_session import serve

Answer = dict[str, Any]

#: Random bytes that payloads are cut from: more than a compressor looks back.
NOISE_BYTES = 16 * 1024 * 1024
KEYS = 1000


async def fill(o: Answer) -> Answer:
    """``count`` messages of ``size`` bytes; every fourth has a key."""
    from geminga.client import connect

    rest_bytes = o["size"] - NUMBER_BYTES
    noise = np.random.default_rng(7).bytes(NOISE_BYTES + rest_bytes)
    keys = [f"key-{index}" for index in range(KEYS)]
    started = time.perf_counter()
    async with connect(o["url"]) as client:
        producer = await client.create_producer(
            o["topic"],
            batching_max_messages=100_000,
            batching_max_allowed_size_in_bytes=BATCH_BYTES,
            batching_max_publish_delay_ms=1000,
        )
        for number in range(o["count"]):
            at = number * rest_bytes % NOISE_BYTES
            value = number.to_bytes(NUMBER_BYTES, "big") + noise[at : at + rest_bytes]
            fields = {} if number % 4 else {"partition_key": keys[number % KEYS]}
            await hand_over(producer, value, **fields)
            if number % 1000 == 0:
                await producer.drain()
        await producer.flush()
    return {"messages": o["count"], "seconds": time.perf_counter() - started}


# ---- reads


def spark(o: Answer) -> Answer:
    """A session; reads for the lines on stdin."""
    return serve(Path(o["scratch"]), (IdSink,), run_read)


def run_read(session_: Any, o: Answer, scratch: Path) -> Answer:
    """One batch read, timed with its planning; or, with ``check``, every message id looked at.

    ``files``: by ``read_topic``; else through the data source. ``query``: one of :data:`~bench.lake_queries.QUERIES`.
    """
    from geminga.spark import read_topic

    before, started = cpu_of_children(), time.perf_counter()
    query = QUERIES[o.get("query", ALL)]
    options = {**o["options"], **query.source_options}
    if o["files"]:
        frame = read_topic(session_, options)
    else:
        frame = session_.read.format("pulsar").options(**options).load()
    if o.get("check"):
        found = scratch / "ids.json"
        frame.select("__messageId", "value").write.format("bench_ids").option("file", str(found)).mode("append").save()
        return {"ledgers": check_runs(json.loads(found.read_text()), o["count"])}
    query.of(frame).write.format("noop").mode("overwrite").save()
    seconds, after = time.perf_counter() - started, cpu_of_children()
    return {
        "seconds": seconds,
        "jvm_cpu_s": after["jvm"] - before["jvm"],
        "python_cpu_s": after["python"] - before["python"],
    }


if __name__ == "__main__":
    sys.exit(tell(lambda o: asyncio.run(fill(o)) if o["mode"] == "fill" else spark(o)))
