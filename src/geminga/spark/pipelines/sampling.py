"""Which columns of a pipeline's topics do not fit: ``geminga pipeline validate --sample``, without Spark's JVM.

Messages are read as the pipeline's sources read them, by the same reader, from where a first run begins (the beginning
for ``start: latest``). Where a source goes by columns, each column of a message is looked at, not only the first that
does not fit. A column of JSON that no message has is null in every row, which no message by itself shows: it is noted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from geminga.client import MessageId
from geminga.spark.decoding.avro_values import load_json
from geminga.spark.decoding.json_gate import JsonGate
from geminga.spark.pipelines.core import connector_options as options_of
from geminga.spark.pipelines.core.definition import Pipeline
from geminga.spark.pipelines.core.problems import Problem, nearest
from geminga.spark.rules.metadata_columns import INVALID, MESSAGE_ID, TOPIC
from geminga.spark.source_rules.ddl import parse_columns

_NOT_FOR_A_SAMPLE: Final = frozenset(["badRecordsTopic", "subscription", "startingOffsets", "filterPushdown"])
#: Names of fields that are remembered of a topic's messages; with more, nothing is said of those that no message has.
NAMES_MAX: Final = 10_000
#: What the source says of a message that does not fit its schema, from the column on.
_COLUMN_OF_REASON: Final = re.compile(r"does not fit its schema: (\w+): (.*)", re.DOTALL)


@dataclass(slots=True)
class Sample:
    """What was seen."""

    messages: int = 0
    topics: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    #: What is no error, and most likely a mistake.
    notes: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class _Column:
    misfits: int
    place: str
    reason: str


@dataclass(slots=True)
class _Objects:
    """The JSON objects of a topic."""

    count: int = 0
    names: set[str] = field(default_factory=set)

    def add(self, payload: bytes) -> None:
        """Look which fields it has; what is no JSON object is told elsewhere."""
        try:
            value = load_json(payload.decode())
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict):
            self.count += 1
            if len(self.names) < NAMES_MAX:
                self.names |= value.keys()

    def unseen(self, columns: Iterable[str]) -> list[str]:
        """What to say of each column that none of them has."""
        if not self.count or len(self.names) >= NAMES_MAX:
            return []
        lowered = {name.lower(): name for name in sorted(self.names)}
        return [
            f"column {name}: none of {self.count} messages has it, and it would be null in every row; "
            + (
                f"they have {lowered[name.lower()]}: JSON tells upper from lower case"
                if name.lower() in lowered
                else nearest(name, self.names)
            )
            for name in columns
            if name not in self.names
        ]


def sample(pipeline: Pipeline, messages_max: int) -> Sample:
    """Look at up to so many messages of each topic or partition; raises what the source raises."""
    found = Sample()
    for path, options, columns, takes_empty in _inputs(pipeline):
        kinds = parse_columns(columns) if columns else {}
        gate = JsonGate(kinds, takes_empty=takes_empty) if columns else None
        seen: dict[str, int] = {}
        dirty: dict[tuple[str, str], _Column] = {}
        objects: dict[str, _Objects] = {}
        for row in _rows(options, messages_max):
            topic = row[TOPIC]
            seen[topic] = seen.get(topic, 0) + 1
            for name, reason in _misfits(row, gate).items():
                known = dirty.setdefault((topic, name), _Column(0, _place(row[MESSAGE_ID]), reason))
                known.misfits += 1
            if gate is not None and row["value"]:
                objects.setdefault(topic, _Objects()).add(row["value"])
        found.messages += sum(seen.values())
        found.topics |= set(seen)
        for (topic, name), one in sorted(dirty.items()):
            what = f"column {name}" if name else "the value as a whole"
            text = f"{one.misfits} of {seen[topic]} messages do not fit, the first is {one.place}: {one.reason}"
            found.problems.append(Problem(path, f"{topic}: {what}: {text}"))
        for topic, seen_objects in sorted(objects.items()):
            found.notes += [Problem(f"{path}.columns", f"{topic}: {text}") for text in seen_objects.unseen(kinds)]
    return found


def _inputs(pipeline: Pipeline) -> Iterator[tuple[str, Mapping[str, str], str, bool]]:
    """Where in the file, the source's options, the DDL of the columns, and whether no bytes are a null."""
    for number, source in enumerate(pipeline.sources):
        if source.is_topic and (source.columns or source.is_from_registry):
            takes_empty = bool(pipeline.sink.table) and not pipeline.is_grouped
            options = options_of.source_options(pipeline, source)
            yield f"sources[{number}]", options, source.columns, takes_empty
    for number, table in enumerate(pipeline.tables):
        if table.topic:
            yield f"tables[{number}]", options_of.table_options(pipeline, table), table.columns, True


def _rows(options: Mapping[str, str], messages_max: int) -> Iterator[Mapping[str, Any]]:
    from geminga.spark.datasource import PulsarDataSource
    from geminga.spark.source.task_read import TaskPlan

    kept = {name: value for name, value in options.items() if name not in _NOT_FOR_A_SAMPLE}
    fixed = {"metadataColumns": f"{TOPIC},{MESSAGE_ID},{INVALID}", "numPartitions": "1", "invalid": "keep"}
    source = PulsarDataSource({**kept, **fixed})
    reader = source.reader(source.schema())
    for part in reader.partitions():
        for one in part.value.ranges if part.value is not None else ():
            left = messages_max
            batches: Iterator[Any] = reader.read(type(part)(TaskPlan((one,))))
            for batch in batches:
                rows = batch.slice(0, left).to_pylist()
                left -= len(rows)
                yield from rows
                if not left:
                    break


def _misfits(row: Mapping[str, Any], gate: JsonGate | None) -> dict[str, str]:
    if gate is not None:
        return {} if row["value"] is None else gate.of_payload(row["value"])
    reason = row[INVALID]
    if reason is None:
        return {}
    match = _COLUMN_OF_REASON.fullmatch(reason)
    return {match[1]: match[2]} if match else {"": reason}


def _place(message_id: bytes) -> str:
    at = MessageId.deserialize(message_id)
    return f"{at.ledger_id()}:{at.entry_id()}:{max(0, at.batch_index())}"
