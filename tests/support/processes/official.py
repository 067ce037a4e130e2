"""The official client as tests want it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pulsar


def quiet_client(url: str, directory: Path, **options: object) -> pulsar.Client:
    """An official client whose log goes to a file."""
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(directory / "client.log"))
    return pulsar.Client(url, logger=logger, operation_timeout_seconds=20, **options)


@contextmanager
def official_client(url: str, directory: Path, **options: object) -> Iterator[pulsar.Client]:
    """A quiet one, closed in the end."""
    client = quiet_client(url, directory, **options)
    try:
        yield client
    finally:
        client.close()


def check_each_reaches_the_next(clients: Sequence[pulsar.Client], topics: Iterable[str]) -> None:
    """What one client publishes to a topic the next one receives; the clients take turns, topic by topic."""
    for number, topic in enumerate(topics):
        here, there = clients[number % len(clients)], clients[(number + 1) % len(clients)]
        consumer = there.subscribe(topic, "sub")
        here.create_producer(topic).send(topic.encode())
        message = consumer.receive(timeout_millis=20_000)
        assert message.data() == topic.encode()
        consumer.acknowledge(message)


def read_to_the_end(client: pulsar.Client, topic: str) -> list[bytes]:
    """All that is in a topic now."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(timeout_millis=30_000).data())
    reader.close()
    return found
