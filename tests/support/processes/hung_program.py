"""A program that opens a transaction, consumes, publishes and acknowledges in it, says so, and never ends it."""

from __future__ import annotations

import asyncio
import sys

import geminga.client as gc


async def hang(url: str, source: str, target: str, count: str, timeout_s: str, kind: str) -> None:
    consumer_type = gc.ConsumerType[kind]
    async with gc.connect(url) as client:
        consumer = await client.subscribe(
            source, "s", consumer_type=consumer_type, initial_position=gc.InitialPosition.Earliest
        )
        producer = await client.create_producer(target)
        txn = await client.transaction(timeout=float(timeout_s))
        for _ in range(int(count)):
            message = await consumer.receive()
            await producer.send(b"never " + message.data(), txn=txn)
            await consumer.acknowledge(message, txn=txn)
        print("held", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(hang(*sys.argv[1:]))
