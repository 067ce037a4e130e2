"""Runs in a container beside the pods: messages are published and consumed while a broker stops. ``URL TOPIC COUNT``.

The line READY tells that both ends are there; the last one how many were acknowledged, came, and came twice.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

import geminga.client

RATE: Final = 50
PATIENCE_S: Final = 90.0


async def main(url: str, topic: str, count: int) -> None:
    """Publish, consume, count."""
    options = {}
    if "GEMINGA_AUTH_PARAMS" in os.environ:
        options["authentication"] = geminga.client.authentication_from("token", os.environ["GEMINGA_AUTH_PARAMS"])
    if "GEMINGA_TLS_TRUST_CERT_PATH" in os.environ:
        options["tls_trust_certs_file_path"] = os.environ["GEMINGA_TLS_TRUST_CERT_PATH"]
    acknowledged: set[bytes] = set()
    came: list[bytes] = []

    async def publish(producer: geminga.client.Producer) -> None:
        for number in range(count):
            content = b"%d" % number
            await producer.send(content)
            acknowledged.add(content)
            if number == RATE:
                print("READY", flush=True)
            await asyncio.sleep(1 / RATE)

    async def consume(consumer: geminga.client.Consumer) -> None:
        while len(set(came)) < count:
            message = await consumer.receive()
            came.append(message.data())
            await consumer.acknowledge(message)

    async with (
        geminga.client.connect(url, **options) as client,
        client.subscribe(topic, "load") as consumer,
        client.create_producer(topic) as producer,
        asyncio.timeout(count / RATE + PATIENCE_S),
    ):
        await asyncio.gather(publish(producer), consume(consumer))
    print(f"acknowledged {len(acknowledged)}, came {len(set(came))}, twice {len(came) - len(set(came))}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
