"""The program that the demo kills: events from one topic to another, some hundred in a transaction each.

What is consumed is acknowledged in the transaction that publishes it, so that all of it counts or none of it.
"""

from __future__ import annotations

import asyncio
import sys

import geminga.client as gc

SUBSCRIPTION = "mover"
EVENTS_MAX = 200
#: What more events are waited for before a transaction with fewer.
PAUSE_MS = 20
#: What a killed mover left open is aborted by the broker after so long, and then comes again.
TIMEOUT_S = 3.0
#: After something went wrong.
RETRY_S = 0.2


async def gather(consumer: gc.Consumer[bytes]) -> list[gc.Message[bytes]]:
    """The next events, at least one."""
    events = [await consumer.receive()]
    while len(events) < EVENTS_MAX:
        try:
            events.append(await consumer.receive(PAUSE_MS))
        except gc.Timeout:
            break
    return events


async def move(url: str, source: str, target: str) -> None:
    """Until it is killed."""
    async with (
        gc.connect(url) as client,
        client.create_producer(target) as producer,
        client.subscribe(source, SUBSCRIPTION, consumer_type=gc.ConsumerType.Shared) as consumer,
    ):
        while True:
            events = await gather(consumer)
            try:
                async with client.transaction(timeout=TIMEOUT_S) as txn:
                    for event in events:
                        producer.send_nowait(
                            event.data(), partition_key=event.partition_key(), properties=event.properties(), txn=txn
                        )
                    await consumer.acknowledge(events, txn=txn)
            except gc.PulsarException:
                # None of it counts, or nobody knows: what does not count comes again.
                await asyncio.sleep(RETRY_S)
                await consumer.redeliver_unacknowledged_messages()


if __name__ == "__main__":
    asyncio.run(move(*sys.argv[1:]))
