"""The pipelines that are there by name: parameters in, the text of a pipeline file out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError
from geminga.spark.pipelines.core import parsing
from geminga.spark.pipelines.core import yaml_text as yaml
from geminga.spark.pipelines.core.problems import PipelineError, Problem, nearest
from geminga.spark.pipelines.core.reading import CheckedMapping

#: What a dead-letter topic's messages carry for the way back; not sent on.
_DEAD_LETTER_PROPERTIES: Final = (
    "REAL_TOPIC",
    "REAL_SUBSCRIPTION",
    "ORIGIN_MESSAGE_ID",
    "ORIGIN_MESSAGE_IDY_TIME",
    "RECONSUMETIMES",
    "DELAY_TIME",
)

#: A name that a topic can have, and that is not the broker's own or the sink's (``__...``), as Java's expressions have
#: it: what is none would fail the batch, again and again. A blank at the end is no part of a name.
_ORIGIN: Final = (
    r"^[a-z-]+://[-=:.\w]+/[-=:.\w]+/(?!__)(?!\.{1,2}\z)(?![^/]*__transaction_pending_ack\z)"
    r"[^\p{C}]*[\p{L}\p{M}\p{N}\p{P}\p{S}]\z"
)
#: Characters of one; brokers and their metadata take longer ones or not.
_ORIGIN_CHARACTERS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Parameter:
    """One that ``--set`` or ``with:`` gives; ``default`` None: it must be given."""

    name: str
    meaning: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A pipeline by name."""

    name: str
    meaning: str
    parameters: tuple[Parameter, ...]
    make: Callable[[Mapping[str, str]], str]

    def text(self, given: Mapping[str, str]) -> str:
        """The pipeline's file; raises PipelineError for parameters that are missing or unknown."""
        known = {parameter.name: parameter for parameter in self.parameters}
        problems = [
            Problem(f"with.{name}", f"not a parameter of {self.name}; {nearest(name, known)}")
            for name in given
            if name not in known
        ]
        problems += [
            Problem(f"with.{parameter.name}", f"missing: {parameter.meaning}")
            for parameter in self.parameters
            if parameter.default is None and not given.get(parameter.name, "").strip()
        ]
        if problems:
            raise PipelineError(problems)
        defaults = {parameter.name: parameter.default or "" for parameter in self.parameters}
        return self.make({**defaults, **given})


def expanded(document: yaml.Mapping, file: str = "") -> yaml.Mapping:
    """A document with ``use``: that of the ready pipeline, with the document's other keys over it.

    Raises PipelineError.
    """
    if "use" not in document.entries:
        if "with" in document.entries:
            raise PipelineError(
                [Problem("with", "parameters of what? expected use: NAME", document.lines["with"])], file
            )
        return document
    problems: list[Problem] = []
    record = CheckedMapping(document, "", ("use", "with", *parsing.KEYS), problems)
    name = record.text("use")
    if problems:
        raise PipelineError(problems, file)
    made = document_of(name, record.texts("with"), file=file, line=record.line("use"))
    if problems:
        raise PipelineError(problems, file)
    for key, value in document.entries.items():
        if key not in ("use", "with"):
            made.entries[key] = value
            made.lines[key] = document.lines[key]
    return made


def document_of(name: str, given: Mapping[str, str], *, file: str = "", line: int = 0) -> yaml.Mapping:
    """The document of a ready pipeline; raises PipelineError."""
    ready = READY.get(name)
    if ready is None:
        raise PipelineError([Problem("use", f"{name}: no ready pipeline; {nearest(name, READY)}", line)], file)
    try:
        return parsing.read_document(ready.text(given))
    except PipelineError as error:
        raise PipelineError([Problem(one.path, one.text, line) for one in error.problems], file) from None


def _q(text: str) -> str:
    """A scalar in quotes, whatever the text is."""
    return json.dumps(text)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _short(topic: str) -> str:
    return topic.split(",")[0].strip().rpartition("/")[2] or "topic"


def _file(given: Mapping[str, str], name: str, source: str, rest: str) -> str:
    """A pipeline's file: ``name`` if none is given, one source with its columns if they are, the rest, the trigger."""
    columns = f"    columns: {_q(given['columns'])}\n" if given.get("columns") else ""
    return (
        f"pipeline: {_q(given['name'] or name)}\nsources:\n  - name: {source}\n{columns}"
        f"{rest}trigger: {_q(given['trigger'])}\n"
    )


def _fields(given: Mapping[str, str], fields: Mapping[str, str]) -> str:
    """What becomes of messages that stay bytes; nothing where columns are given."""
    lines = "".join(f"    {name}: {_q(expression)}\n" for name, expression in fields.items())
    return "" if given["columns"] else f"  fields:\n{lines}"


def _windows(given: Mapping[str, str]) -> str:
    keys = _names(given["keys"])
    key = ", ".join(["cast(unix_millis(window_start) as string)", *(f"cast({name} as string)" for name in keys)])
    sums = "".join(f"  {name}: {_q(f'sum({name})')}\n" for name in _names(given["sum"]))
    key = f"concat_ws(' ', {key})"
    return _file(
        given,
        f"windows-{_short(given['output'])}",
        f"input\n    topics: {_q(given['topics'])}",
        f"time: {_q(given['time'])}\nwatermark: {_q(given['watermark'])}\n"
        f"window:\n  tumbling: {_q(given['window'])}\n"
        f"{'keys: [' + ', '.join(map(_q, keys)) + ']' + chr(10) if keys else ''}"
        f'aggregates:\n  events: "count(*)"\n{sums}'
        f"late:\n  topic: {_q(given['late'] or given['output'] + '-late')}\n"
        f"sink:\n  topic: {_q(given['output'])}\n  key: {_q(key)}\n",
    )


def _topic_to_parquet(given: Mapping[str, str]) -> str:
    fields = {
        "value": "value",
        "key": "cast(__key as string)",
        "topic": "__topic",
        "message_id": "__messageId",
        "publish_time": "__publishTime",
        "event_time": "__eventTime",
        "properties": "__messageProperties",
    }
    partition = (
        f"  partition_by: [{', '.join(map(_q, _names(given['partition_by'])))}]\n" if given["partition_by"] else ""
    )
    return _file(
        given,
        f"{_short(given['topic'])}-to-parquet",
        f"input\n    topics: {_q(given['topic'])}",
        f"sink:\n  parquet: {_q(given['directory'])}\n{_fields(given, fields)}{partition}",
    )


def _parquet_to_topic(given: Mapping[str, str]) -> str:
    optional = "".join(f"  {key}: {_q(given[key])}\n" for key in ("key", "value", "event_time") if given[key])
    return _file(
        given,
        f"parquet-to-{_short(given['topic'])}",
        f"input\n    parquet: {_q(given['directory'])}",
        f"sink:\n  topic: {_q(given['topic'])}\n{optional}",
    )


def _redrive(given: Mapping[str, str]) -> str:
    topic = given["topic"]
    try:
        name = TopicName.parse(topic)
        prefix = str(name)[: str(name).rindex("/") + 1]
    except InvalidTopicNameError as error:
        raise PipelineError([Problem("with.topic", str(error))]) from None
    allowed = given["allow"] or prefix
    refused = given["refused"] or f"{name}-refused"
    left_out = ", ".join(f"'{one}'" for one in _DEAD_LETTER_PROPERTIES)
    real = "__messageProperties['REAL_TOPIC']"
    # A partition of the origin is no topic of its own to producers: the key decides, as it did at first.
    origin = (
        f"regexp_replace(case when {real} like '%://%' then {real} when {real} like '%/%' then "
        f"concat('persistent://', {real}) else concat('persistent://public/default/', {real}) end, "
        "'(-partition-[0-9]+)+$', '')"
    )
    # Whoever may write to the dead-letter topic chooses the property: no more than was allowed, and no circles.
    is_allowed = f"startswith(origin, {_sql(allowed)}) and origin not in ({_sql(str(name))}, {_sql(refused)})"
    is_allowed += f" and length(origin) <= {_ORIGIN_CHARACTERS_MAX} and origin rlike {_sql(_ORIGIN)}"
    if allowed.endswith("/"):
        is_allowed += f" and instr(substr(origin, {len(allowed) + 1}), '/') = 0"
    kept = f"map_filter(__messageProperties, (k, v) -> k not in ({left_out}))"
    return _file(
        given,
        f"redrive-{_short(topic)}",
        f"dead-letters\n    topics: {_q(topic)}",
        f"select:\n  value: value\n  origin: {_q(origin)}\n"
        f"sink:\n"
        f"  topic_of: {_q(f'case when {is_allowed} then origin else {_sql(refused)} end')}\n"
        f"  value: value\n  key: __key\n  event_time: __eventTime\n"
        f"  properties: {_q(f'case when {is_allowed} then {kept} else __messageProperties end')}\n",
    )


def _sql(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _table(given: Mapping[str, str]) -> str:
    return _file(
        given,
        f"{_short(given['topic'])}-table",
        f"input\n    topics: {_q(given['topic'])}",
        f"sink:\n  table: {_q(given['directory'])}\n"
        f"{_fields(given, {'key': 'cast(__key as string)', 'value': 'value'})}",
    )


_COLUMNS: Final = Parameter("columns", "of the JSON in the messages; without them values stay bytes", "")
_NAME: Final = Parameter("name", "the pipeline's name", "")
_AVAILABLE: Final = Parameter("trigger", "always, available or a duration", "available")
_ALWAYS: Final = Parameter("trigger", "always, available or a duration", "always")

READY: Final[Mapping[str, Ready]] = {
    ready.name: ready
    for ready in (
        Ready(
            "windows",
            "topics -> sums over windows of event time -> topic; late rows to a topic of their own",
            (
                Parameter("topics", "what is read, with commas: a1,a2"),
                Parameter("output", "the topic of the windows"),
                Parameter("columns", "of the JSON in the messages, such as item string, cents long"),
                Parameter("keys", "columns that windows are made for, with commas", ""),
                Parameter("sum", "columns to sum up, with commas", ""),
                Parameter("window", "length of the windows", "1 hour"),
                Parameter("watermark", "how much later than the newest event a row may come", "10 minutes"),
                Parameter("time", "the event time", "__eventTime"),
                Parameter("late", "the topic of late rows; OUTPUT-late", ""),
                _ALWAYS,
                _NAME,
            ),
            _windows,
        ),
        Ready(
            "topic-to-parquet",
            "topic -> Parquet files",
            (
                Parameter("topic", "what is read"),
                Parameter("directory", "where the files go"),
                _COLUMNS,
                Parameter("partition_by", "columns that make directories, with commas", ""),
                _AVAILABLE,
                _NAME,
            ),
            _topic_to_parquet,
        ),
        Ready(
            "parquet-to-topic",
            "Parquet files -> topic, each row a message of JSON",
            (
                Parameter("directory", "where the files are"),
                Parameter("topic", "where the rows go"),
                Parameter("columns", "of the files, if they are not to be looked up there", ""),
                Parameter("key", "the messages' key, an expression", ""),
                Parameter("value", "the payload, an expression, in place of JSON of all columns", ""),
                Parameter("event_time", "the messages' event time, an expression", ""),
                _AVAILABLE,
                _NAME,
            ),
            _parquet_to_topic,
        ),
        Ready(
            "redrive",
            "dead-letter topic -> the topics that the messages came from",
            (
                Parameter("topic", "the dead-letter topic"),
                Parameter("allow", "how full names of topics must begin; the dead-letter topic's namespace", ""),
                Parameter("refused", "the topic of messages without such an origin; TOPIC-refused", ""),
                _AVAILABLE,
                _NAME,
            ),
            _redrive,
        ),
        Ready(
            "table",
            "topic -> the newest message of each key, as a Parquet table; tombstones delete",
            (
                Parameter("topic", "what is read"),
                Parameter("directory", "where the table is"),
                _COLUMNS,
                _AVAILABLE,
                _NAME,
            ),
            _table,
        ),
    )
}
