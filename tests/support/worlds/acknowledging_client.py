"""The official client on a subscription: numbers are published, some acknowledged, and what comes again is counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pulsar

from support.processes.official import quiet_client

RECEIVE_MS: Final = 30_000
#: That nothing comes any more.
QUIET_MS: Final = 3_000


class Client:
    """The official client, of messages that are numbers."""

    def __init__(self, url: str, directory: Path) -> None:
        self.client = quiet_client(url, directory)

    def publish(self, topic: str, count: int, **options: object) -> None:
        producer = self.client.create_producer(
            topic, block_if_queue_full=True, send_timeout_millis=0, max_pending_messages=2000, **options
        )
        failed: list[object] = []
        for number in range(count):
            producer.send_async(b"%d" % number, lambda result, _id: failed.append(result) if result else None)
        producer.flush()
        assert not any(result != pulsar.Result.Ok for result in failed)
        producer.close()

    def subscribe(self, topic: str, kind: pulsar.ConsumerType) -> pulsar.Consumer:
        return self.client.subscribe(
            topic,
            "s",
            consumer_type=kind,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=5000,
            batch_index_ack_enabled=True,
        )

    def received(self, topic: str, kind: pulsar.ConsumerType, expected: int) -> Counter[int]:
        """Everything that comes, nothing of it acknowledged; ``expected``: how much is waited for."""
        consumer = self.subscribe(topic, kind)
        found: Counter[int] = Counter()
        while True:
            try:
                message = consumer.receive(RECEIVE_MS if found.total() < expected else QUIET_MS)
            except pulsar.Timeout:
                consumer.close()
                return found
            found[int(message.data())] += 1

    def acknowledge(self, topic: str, kind: pulsar.ConsumerType, left: set[int], done: set[int]) -> set[int]:
        """Acknowledge those of ``done`` one by one; what is left then."""
        consumer = self.subscribe(topic, kind)
        waiting = set(done)
        while waiting:
            message = consumer.receive(RECEIVE_MS)
            number = int(message.data())
            if number in waiting:
                waiting.discard(number)
                consumer.acknowledge(message)
        consumer.close()
        return left - done

    def close(self) -> None:
        self.client.close()
