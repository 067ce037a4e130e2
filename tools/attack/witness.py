"""``python -m tools.attack.witness PORT TOPIC SECONDS TOKEN``: somebody who is known; what it waits for as JSON.

A process of its own, of the official client: it publishes fifty messages a second, waits for each receipt, and receives
and acknowledges them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Final

import pulsar

#: Seconds between two messages.
PAUSE_S: Final = 0.02


def main() -> int:
    """Publish and receive for so long."""
    port, topic, seconds, token = sys.argv[1:5]
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar.Client(
        f"pulsar://127.0.0.1:{port}", authentication=pulsar.AuthenticationToken(token), logger=logger
    )
    consumer = client.subscribe(topic, "witness")
    producer = client.create_producer(topic)
    producer.send(b"first")
    consumer.acknowledge(consumer.receive(timeout_millis=20_000))
    print("ready", flush=True)
    cpu_s, began, pause = time.process_time(), time.monotonic(), threading.Event()
    waits: list[float] = []
    # On its own beat: what it waits for too long it does not leave out.
    due = began
    while due - began < float(seconds):
        pause.wait(max(0.0, due - time.monotonic()))
        producer.send(b"witness")
        consumer.acknowledge(consumer.receive(timeout_millis=20_000))
        waits.append(time.monotonic() - due)
        due += PAUSE_S
    cpu_s = time.process_time() - cpu_s
    client.close()
    waits.sort()
    print(
        json.dumps(
            {
                "messages": len(waits),
                "p50_ms": round(1000 * waits[len(waits) // 2], 3),
                "p99_ms": round(1000 * waits[len(waits) * 99 // 100], 3),
                "longest_ms": round(1000 * waits[-1], 3),
                "cpu_ms": round(1000 * cpu_s / len(waits), 4),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
