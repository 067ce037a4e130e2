"""The load of ``python -m bench geo``: ``python -m bench.geo_load '{"mode": "publish", ...}'``; answers one JSON line.

Our client for all servers. Times are of one clock: who publishes here and who receives over there are one process.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from typing import Any, Final

import geminga.client as ours
from bench.answers import tell
from geminga.client import ClientArguments, InitialPosition

Options = dict[str, Any]
Answer = dict[str, Any]

BATCH_MESSAGES: Final = 1000
CLIENT: Final[ClientArguments] = {"memory_limit_bytes": 512 << 20}
#: Between two steps of a load at a fixed rate.
STEP_S: Final = 0.005
_TIME: Final = struct.Struct("<d")
#: Nothing comes for so long: it is lost.
SILENCE_MS: Final = 60_000
#: Producers that are made at a time.
MAKING: Final = 64


async def producer_of(client: ours.Client, topic: str, *, batched: bool) -> ours.EntryProducer[bytes]:
    """One with as much on its way as it likes."""
    made = await client.create_producer(
        topic,
        batching_enabled=batched,
        batching_max_messages=BATCH_MESSAGES,
        batching_max_publish_delay_ms=5,
        max_pending_messages=0,
    )
    assert isinstance(made, ours.EntryProducer)
    return made


async def publish(o: Options) -> Answer:
    """``count`` messages as fast as may be: seconds until the last receipt."""
    async with ours.connect(o["url"], **CLIENT) as client:
        producer = await producer_of(client, o["topic"], batched=o["batched"])
        payload = b"x" * int(o["size"])
        started = time.perf_counter()
        for number in range(o["count"]):
            producer.send_nowait(payload)
            if number % BATCH_MESSAGES == 0:
                await producer.drain()
        await producer.flush()
        return {"seconds": time.perf_counter() - started}


async def paced(o: Options) -> Answer:
    """``rate`` messages a second: how late receipts come, and, with ``there``, messages over there; milliseconds.

    Of what is sent in one step the last receipt counts, and of an entry over there its oldest message: what this
    program does for a message must be little beside what the servers do.
    """
    receipts: list[float] = []
    lags: list[float] = []
    async with ours.connect(o["url"], **CLIENT) as client, ours.connect(o.get("there") or o["url"], **CLIENT) as away:
        producer = await producer_of(client, o["topic"], batched=True)
        total = int(o["rate"] * o["seconds"])
        receiving = None
        if o.get("there"):
            await producer.send(_TIME.pack(0.0) + b"x" * (o["size"] - 8))
            # It is there by now, or made by this one.
            await (await away.subscribe(o["topic"], "there", initial_position=InitialPosition.Earliest)).close()
            receiving = asyncio.ensure_future(_receive(away, o["topic"], total, lags))
        rest = b"x" * (o["size"] - 8)
        started, sent = time.perf_counter(), 0

        def heard(since: float) -> ours.SendCallback:
            return lambda *_: receipts.append((time.perf_counter() - since) * 1000)

        while sent < total:
            now = time.perf_counter()
            due = min(total, int((now - started) * o["rate"]))
            payload = _TIME.pack(now) + rest
            for _ in range(due - sent - 1):
                producer.send_nowait(payload)
            if due > sent:
                producer.send_nowait(payload, callback=heard(now))
            sent = due
            await producer.drain()
            await asyncio.sleep(STEP_S)
        await producer.flush()
        seconds = time.perf_counter() - started
        if receiving is not None and (missing := await receiving):
            return {"error": f"{missing:,} of {total:,} messages did not come over there"}
    return {"rate": total / seconds, "receipt": _quantiles(receipts), "lag": _quantiles(lags)}


async def _receive(client: ours.Client, topic: str, total: int, lags: list[float]) -> int:
    """Until all are there, or nothing comes; how many did not."""
    stream = client.entry_stream(topic, (-1, -1))
    await ours.open_batches(stream)
    try:
        while total > 0:
            entries = await stream.take(SILENCE_MS)
            if not entries:
                break
            now = time.perf_counter()
            for entry in entries:
                (sent,) = _TIME.unpack(entry.payload(entry.order[0])[:8])
                if sent:
                    lags.append((now - sent) * 1000)
                    total -= len(entry.order)
    finally:
        await stream.close()
    return max(0, total)


async def topics(o: Options) -> Answer:
    """A producer of each topic, and a message of each; then ``busy`` of them get ``rate`` a second each."""
    async with ours.connect(o["url"], **CLIENT) as client:
        making = asyncio.Semaphore(MAKING)

        async def make(number: int) -> ours.EntryProducer[bytes]:
            async with making:
                producer = await producer_of(client, f"{o['topic']}-{number}", batched=False)
                await producer.send(b"x" * o["size"])
                return producer

        started = time.perf_counter()
        made = await asyncio.gather(*(make(number) for number in range(o["count"])))
        print(json.dumps({"made": time.perf_counter() - started}), flush=True)
        # Told when the idle topics have been looked at.
        await asyncio.to_thread(sys.stdin.readline)
        payload = b"x" * o["size"]
        ends = time.perf_counter() + o["seconds"]
        sent = 0
        while time.perf_counter() < ends:
            for producer in made[: o["busy"]]:
                producer.send_nowait(payload)
            sent += o["busy"]
            await asyncio.sleep(1 / o["rate"])
        await asyncio.gather(*(producer.flush() for producer in made[: o["busy"]]))
        return {"sent": sent}


def _quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        name: ordered[min(len(ordered) - 1, int(len(ordered) * part))] for name, part in (("p50", 0.5), ("p99", 0.99))
    }


MODES: Final = {"publish": publish, "paced": paced, "topics": topics}


if __name__ == "__main__":
    sys.exit(tell(lambda o: asyncio.run(MODES[o["mode"]](o)), (ours.PulsarException,)))
