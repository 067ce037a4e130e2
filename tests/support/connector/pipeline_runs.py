"""Runs of declared pipelines: events that are sent, what is read back, and a reporter that says nothing."""

from __future__ import annotations

import json
from typing import Any

from geminga.client import Message, MessageId
from geminga.spark.pipelines import Pipeline
from geminga.spark.pipelines.reporter import Reporter
from geminga.spark.pipelines.running import run

START_MS = 1_767_225_600_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


class Silent(Reporter):
    """Keeps what would be printed."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def event(self, event: str, text: str, **more: object) -> None:
        self.said.append(event)

    def batch(self, batch: Any, totals: Any) -> None:
        self.said.append("batch")

    def warn(self, text: str) -> None:
        self.said.append(text)


def send(client, topic: str, messages: list[tuple[bytes | None, dict[str, Any]]]) -> None:
    with client.create_producer(topic) as producer:
        for content, more in messages:
            producer.send_nowait(content if content is not None else None, **more)
        producer.flush()


def event(number: int, at_ms: int | None, item: str | None, **more: Any) -> tuple[bytes, dict[str, Any]]:
    fields: dict[str, Any] = {"properties": {"number": str(number)}, **more}
    if item is not None:
        fields["partition_key"] = item
    if at_ms is not None:
        fields["event_timestamp"] = at_ms
    return json.dumps({"id": number, "item": item, "cents": number}).encode(), fields


def read_all(client, topic: str) -> list[Message[bytes]]:
    found = []
    with client.create_reader(topic, MessageId.earliest) as reader:
        while reader.has_message_available():
            found.append(reader.read_next())
    return found


def keep(client, *topics: str) -> None:
    """A subscription that holds what is written until the test has read it."""
    for topic in topics:
        client.subscribe(topic, "keep").close()


def go(spark, pipeline: Pipeline) -> Any:
    return run(pipeline, spark=spark, reporter=Silent())
