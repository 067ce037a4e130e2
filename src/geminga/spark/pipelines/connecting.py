"""What only a broker knows: which topics are there, and how far behind a pipeline is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from geminga.client import Client, PulsarException, connect
from geminga.model import TopicName
from geminga.model.errors import GemingaError
from geminga.spark.pipelines.core.connector_options import client_options
from geminga.spark.pipelines.core.definition import Pipeline
from geminga.spark.pipelines.core.problems import Problem, nearest
from geminga.spark.process.clients import authentication_of
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.rules.own_topics import is_own
from geminga.spark.source.positions import Probe, in_parallel
from geminga.spark.source_rules.errors import TopicError
from geminga.spark.source_rules.offsets import OffsetError, ReadPosition, StreamOffset

R = TypeVar("R")

#: Somebody waits at the keyboard.
OPERATION_TIMEOUT_MS: Final = 5_000


def _ask(pipeline: Pipeline, work: Callable[[Client], Coroutine[Any, Any, R]]) -> R:
    configuration = ClientConfiguration.parse(client_options(pipeline))
    arguments: dict[str, Any] = dict(configuration.arguments) | {"operation_timeout_ms": OPERATION_TIMEOUT_MS}

    async def connected() -> R:
        authentication = authentication_of(configuration)
        async with connect(configuration.service_url, authentication=authentication, **arguments) as client:
            return await work(client)

    return asyncio.run(connected())


def missing_topics(pipeline: Pipeline) -> list[Problem]:
    """Topics that a pipeline reads or writes and that are not there, without making any; raises PulsarException."""
    wanted = [
        (f"sources[{number}].topics", topic)
        for number, source in enumerate(pipeline.sources)
        for topic in source.topics
    ]
    wanted += [(f"tables[{number}].topic", table.topic) for number, table in enumerate(pipeline.tables) if table.topic]
    wanted += [
        (key, one) for key, one in (("sink.topic", pipeline.sink.topic), ("late.topic", pipeline.late_topic)) if one
    ]

    async def look(client: Client) -> list[Problem]:
        listed: dict[str, set[str]] = {}
        found = []
        for path, topic in wanted:
            name = TopicName.parse(topic)
            namespace = str(name).partition("://")[2].rpartition("/")[0]
            if namespace not in listed:
                answer = await client.lookup.topics_of_namespace(namespace)
                names = {str(TopicName.parse(one)) for one in answer.topics}
                listed[namespace] = names | {str(TopicName.parse(one).partitioned_topic) for one in names}
            if str(name) not in listed[namespace]:
                others = [one for one in listed[namespace] if "-partition-" not in one and not is_own(one)]
                near = nearest(name.local_name, [one.rpartition("/")[2] for one in others])
                found.append(Problem(path, f"{topic}: no such topic in {namespace}; {near}"))
        return found

    return _ask(pipeline, look)


def lags(pipeline: Pipeline, offsets: tuple[Mapping[str, Any] | None, ...]) -> dict[str, dict[str, Any]] | str:
    """Of each topic: where it ends, and how many entries are unread, or the problem with it, as of one that is gone.

    A text that says why, if no broker answers.
    """
    positions: dict[str, ReadPosition] = {}
    for offset in offsets:
        try:
            positions.update(StreamOffset.from_dict(offset).topics if offset else {})
        except OffsetError:
            continue  # of Parquet files

    async def look(client: Client) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}

        async def one(topic: str) -> None:
            probe = Probe(client, topic, "pipeline-status")
            at = positions[topic]
            try:
                end = await probe.end()
            except TopicError as error:
                found[topic] = {"position": str(at), "problem": str(error)}
                return
            finally:
                await probe.close()
            behind = end.entry_id - at.entry_id if end.ledger_id == at.ledger_id else end.entry_id
            is_exact = end.ledger_id == at.ledger_id or end <= at
            found[topic] = {
                "position": str(at),
                "end": str(end),
                "entriesBehind": max(0, behind) if end > at else 0,
                "isExact": is_exact,
            }

        await in_parallel(sorted(positions), one)
        return {topic: found[topic] for topic in sorted(found)}

    try:
        return _ask(pipeline, look)
    except (PulsarException, GemingaError, OSError) as error:
        return f"no broker answers: {error}"
