"""The official client at work on some topics while brokers come and go."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import pulsar

from support.processes.official import quiet_client
from support.worlds.rest import Rest

KEYS: Final = 4
HEALTHY_S: Final = 240.0
LOOK_S: Final = 0.5


class SteadyLoad:
    """Sends to all topics, and receives everything, until it is told to stop."""

    def __init__(self, url: str, directory: Path, topics: Sequence[str]) -> None:
        self._client = quiet_client(url, directory)
        self._topics = topics
        self._is_over = threading.Event()
        self.sent: dict[tuple[str, str], list[int]] = {}
        self.received: dict[tuple[str, str], list[int]] = {}
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._receive)]

    def __enter__(self) -> Self:
        self._consumer = self._client.subscribe(
            self._topics,
            "all",
            consumer_type=pulsar.ConsumerType.Failover,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        for thread in self._threads:
            thread.start()
        return self

    def _send(self) -> None:
        producers = [self._client.create_producer(topic, send_timeout_millis=0) for topic in self._topics]
        number = 0
        while not self._is_over.wait(0.01):
            topic, key = self._topics[number % len(self._topics)], str(number % KEYS)
            producers[number % len(self._topics)].send(str(number).encode(), partition_key=key)
            self.sent.setdefault((topic, key), []).append(number)
            number += 1

    def _receive(self) -> None:
        while not (self._is_over.is_set() and not self.missing()):
            try:
                message = self._consumer.receive(timeout_millis=1000)
            except pulsar.Timeout:
                continue
            found = self.received.setdefault((message.topic_name(), message.partition_key()), [])
            number = int(message.data())
            if number not in found:
                found.append(number)
            self._consumer.acknowledge(message)

    def missing(self) -> int:
        return sum(len(set(numbers) - set(self.received.get(key, []))) for key, numbers in dict(self.sent).items())

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
        self._client.close()


def wait_until_healthy(url: str) -> None:
    """Until the broker's own check of itself passes."""
    pause = threading.Event()
    for _ in range(int(HEALTHY_S / LOOK_S)):
        try:
            if Rest(url).get("brokers/health").status == 200:
                return
        except OSError:
            pass
        pause.wait(LOOK_S)
    raise AssertionError(f"{url} does not get ready")
