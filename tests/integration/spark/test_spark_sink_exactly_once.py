"""Exactly once without a JVM (:mod:`geminga.spark.sink.exactly_once`): writers called as Spark calls them, killed
anywhere."""

from __future__ import annotations

import os
from itertools import count

import pytest

from geminga.spark.sink.writer import StreamWriter
from support.sink_cases import arrow_batches, run_task, schema_of, stored

VALUE = "value string"
_queries = count(1)


@pytest.fixture
def query() -> str:
    """A streaming query's id that nobody used."""
    return f"exact{os.getpid()}-{next(_queries)}"


def stream_writer(standalone, topic: str, **more: str) -> StreamWriter:
    options = {"service.url": standalone.service_url, "topic": topic, **more}
    return StreamWriter(options, schema_of(VALUE), overwrite=False)


def rows(batch: int, number: int = 50, task: int = 0) -> list[tuple[str]]:
    return [(f"{batch}-{task}-{n}",) for n in range(number)]


def values(official, topic: str, number: int) -> list[str]:
    return sorted(message.data().decode() for message in stored(official, topic, number))


def test_batches_are_seen_when_they_are_committed_and_replays_are_not(standalone, official, fresh_topic, query) -> None:
    writer = stream_writer(standalone, fresh_topic)
    for batch in range(3):
        for attempt in range(2):
            messages = [
                run_task(
                    writer,
                    arrow_batches(VALUE, rows(batch, task=task)),
                    task,
                    query=query,
                    batch=batch,
                    attempt=attempt,
                )
                for task in range(2)
            ]
            assert len(values(official, fresh_topic, 100 * (batch + (attempt > 0)))) == 100 * (batch + (attempt > 0))
            writer.commit(messages, batch)
    expected = sorted(value for batch in range(3) for task in range(2) for (value,) in rows(batch, task=task))
    assert values(official, fresh_topic, 300) == expected
