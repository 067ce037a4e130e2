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
from geminga.client import Timeout as NothingCame

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
    """``rate`` messages a second: how late receipts come, and, with ``there``, messages over there; milliseconds."""
    receipts: list[float] = []
    lags: list[float] = []
    async with ours.connect(o["url"], **CLIENT) as client, ours.connect(o.get("there") or o["url"], **CLIENT) as away:
        producer = await producer_of(client, o["topic"], batched=True)
        total = int(o["rate"] * o["seconds"])
        receiving = None
        if o.get("there"):
            await producer.send(_TIME.pack(0.0) + b"x" * (o["size"] - 8))
            consumer = await away.subscribe(
                o["topic"], "lag", initial_position=InitialPosition.Earliest, receiver_queue_size=10_000
            )

            async def receive() -> None:
                while len(lags) < total:
                    message = await consumer.receive(SILENCE_MS)
                    (sent,) = _TIME.unpack(message.data()[:8])
                    if sent:
                        lags.append((time.perf_counter() - sent) * 1000)

            receiving = asyncio.ensure_future(receive())
        rest = b"x" * (o["size"] - 8)
        started, sent = time.perf_counter(), 0
        while sent < total:
            now = time.perf_counter()
            due = min(total, int((now - started) * o["rate"]))
            for _ in range(due - sent):
                producer.send_nowait(
                    _TIME.pack(now) + rest,
                    callback=lambda *_, now=now: receipts.append((time.perf_counter() - now) * 1000),
                )
            sent = due
            await producer.drain()
            await asyncio.sleep(STEP_S)
        await producer.flush()
        seconds = time.perf_counter() - started
        try:
            if receiving is not None:
                await receiving
        except NothingCame:
            return {"error": f"{total - len(lags):,} of {total:,} messages did not come over there"}
    return {"rate": total / seconds, "receipt": _quantiles(receipts), "lag": _quantiles(lags)}


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
