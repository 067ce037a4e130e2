"""A pipeline's file as a :class:`Pipeline`; everything that is wrong with it is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.spark.pipelines.core import definition as d
from geminga.spark.pipelines.core import yaml_text as yaml
from geminga.spark.pipelines.core.checking import check
from geminga.spark.pipelines.core.problems import PipelineError, Problem, located
from geminga.spark.pipelines.core.reading import CheckedMapping, duration_ms

KEYS: Final = (
    "pipeline",
    "description",
    "cluster",
    "sources",
    "tables",
    "select",
    "where",
    "join",
    "time",
    "watermark",
    "deduplicate",
    "window",
    "keys",
    "aggregates",
    "emit",
    "having",
    "late",
    "sink",
    "guarantee",
    "trigger",
    "checkpoint",
    "spark",
)
_SOURCE: Final = (
    "name",
    "topic",
    "topics",
    "pattern",
    "parquet",
    "columns",
    "invalid",
    "bad_records_topic",
    "schema",
    "start",
    "subscription",
    "max_messages",
    "max_bytes",
    "max_files",
    "options",
)
_TABLE: Final = ("name", "topic", "parquet", "columns", "key", "options")
_SINK: Final = (
    "topic",
    "topic_of",
    "parquet",
    "table",
    "key",
    "value",
    "fields",
    "format",
    "event_time",
    "properties",
    "partition_by",
    "options",
)


def read_document(text: str, file: str = "") -> yaml.Mapping:
    """The keys of a file; raises PipelineError."""
    try:
        node = yaml.parse_yaml(text)
    except yaml.YamlError as error:
        raise PipelineError([Problem("", error.problem, error.line)], file) from None
    if not isinstance(node, yaml.Mapping):
        raise PipelineError([Problem("", "expected keys and values, such as `pipeline: NAME`", node.line)], file)
    return node


def parse_pipeline(document: yaml.Mapping, *, file: str = "", base: str = ".", service_url: str = "") -> d.Pipeline:
    """The pipeline of a document; ``service_url`` is that of a file without one. Raises PipelineError."""
    problems: list[Problem] = []
    lines: dict[str, int] = {}
    made = _Parser(problems, lines).pipeline(document, base, service_url or d.SERVICE_URL_DEFAULT)
    if not problems:
        problems += located(check(made), lines, document.line)
    if problems:
        raise PipelineError(sorted(problems, key=lambda problem: problem.line), file)
    return made


class _Parser:
    def __init__(self, problems: list[Problem], lines: dict[str, int]) -> None:
        self._problems = problems
        self._lines = lines

    def _record(self, node: yaml.Node | None, path: str, known: tuple[str, ...]) -> CheckedMapping:
        if isinstance(node, yaml.Mapping):
            self._lines[path] = node.line
            for key, line in node.lines.items():
                at = f"{path}.{key}" if path else key
                self._lines[at] = line
                entry = node.entries.get(key)
                if isinstance(entry, yaml.Mapping):
                    self._lines |= {f"{at}.{name}": below for name, below in entry.lines.items()}
        return CheckedMapping(node, path, known, self._problems)

    def pipeline(self, document: yaml.Mapping, base: str, service_url: str) -> d.Pipeline:
        top = self._record(document, "", KEYS)
        for key in ("pipeline", "sources", "sink"):
            if not top.is_given(key):
                top.tell(key, "missing: a pipeline has a name (pipeline), sources and a sink")
        spark = self._record(top.node("spark"), "spark", ("master", "settings"))
        late = self._record(top.node("late"), "late", ("topic",))
        if top.is_given("late") and not late.is_given("topic"):
            late.tell("topic", "missing: the topic of late rows")
        return d.Pipeline(
            name=top.text("pipeline"),
            description=top.text("description"),
            cluster=self._cluster(top, service_url),
            sources=tuple(self._source(node, f"sources[{number}]") for number, node in enumerate(top.nodes("sources"))),
            tables=tuple(self._table(node, f"tables[{number}]") for number, node in enumerate(top.nodes("tables"))),
            select=top.texts("select"),
            where=top.text("where"),
            joins=self._joins(top),
            time=top.text("time", "__eventTime"),
            watermark=self._watermark(top),
            deduplicate=top.names("deduplicate"),
            window=self._window(top),
            keys=self._keys(top),
            aggregates=top.texts("aggregates"),
            emit=d.Emit(top.choice("emit", ("final", "changes"))),
            having=top.text("having"),
            late_topic=late.text("topic"),
            sink=self._sink(top),
            guarantee=d.Guarantee(
                top.choice(
                    "guarantee",
                    (d.GUARANTEE_DEFAULT.value, *(one.value for one in d.Guarantee if one is not d.GUARANTEE_DEFAULT)),
                )
            ),
            every_ms=self._trigger(top),
            checkpoint=top.text("checkpoint"),
            master=spark.text("master", d.MASTER_DEFAULT),
            settings=spark.texts("settings"),
            base=base,
            lines=self._lines,
        )

    def _cluster(self, top: CheckedMapping, service_url: str) -> d.Cluster:
        record = self._record(top.node("cluster"), "cluster", ("service_url", "admin_url", "options"))
        return d.Cluster(
            record.text("service_url", service_url), record.text("admin_url"), self._options(record, "pulsar.client.")
        )

    def _options(self, record: CheckedMapping, prefix: str = "") -> Mapping[str, str]:
        return {name.removeprefix(prefix): value for name, value in record.texts("options").items()}

    def _source(self, node: yaml.Node, path: str) -> d.Source:
        record = self._record(node, path, _SOURCE)
        topics = record.names("topics")
        if record.is_given("topic"):
            if topics:
                record.tell("topics", "beside topic: expected one of them")
            topics = (record.text("topic"),)
        is_topic = not record.is_given("parquet")
        for key in ("max_messages", "max_bytes", "subscription", "start", "schema", "invalid", "bad_records_topic"):
            if not is_topic and record.is_given(key):
                record.tell(key, "only of topics")
        if is_topic and record.is_given("max_files"):
            record.tell("max_files", "only of Parquet files")
        has_limit = record.is_given("max_bytes")
        return d.Source(
            name=record.text("name"),
            topics=topics,
            pattern=record.text("pattern"),
            parquet=record.text("parquet"),
            columns=record.text("columns"),
            keeps_invalid=record.choice("invalid", ("fail", "keep")) == "keep",
            bad_records_topic=record.text("bad_records_topic"),
            is_from_registry=record.choice("schema", ("bytes", "registry")) == "registry",
            start=record.text("start", "earliest"),
            subscription=record.text("subscription", is_empty_allowed=True)
            if record.is_given("subscription")
            else None,
            messages_max=record.number("max_messages", 0 if has_limit else d.BATCH_MESSAGES_DEFAULT)
            if record.is_given("max_messages") or not has_limit
            else 0,
            bytes_max=record.size("max_bytes", 0),
            files_max=record.number("max_files", d.BATCH_FILES_DEFAULT),
            options=self._options(record),
        )

    def _table(self, node: yaml.Node, path: str) -> d.Table:
        record = self._record(node, path, _TABLE)
        return d.Table(
            name=record.text("name"),
            topic=record.text("topic"),
            parquet=record.text("parquet"),
            columns=record.text("columns"),
            key=record.text("key"),
            options=self._options(record),
        )

    def _joins(self, top: CheckedMapping) -> tuple[d.Join, ...]:
        found = []
        for number, node in enumerate(top.nodes("join", is_one_allowed=True)):
            path = "join" if isinstance(top.node("join"), yaml.Mapping) else f"join[{number}]"
            record = self._record(node, path, ("table", "on", "type"))
            found.append(
                d.Join(record.text("table"), record.names("on"), record.choice("type", ("inner", "left")) == "left")
            )
        return tuple(found)

    def _watermark(self, top: CheckedMapping) -> d.Watermark | None:
        node = top.node("watermark")
        if node is None:
            return None
        if isinstance(node, yaml.Scalar):
            return d.Watermark(top.duration_ms("watermark"))
        record = self._record(node, "watermark", ("delay", "of"))
        if not record.is_given("delay"):
            record.tell("delay", "missing: how much later than the newest event a row may come, such as 2 hours")
        return d.Watermark(record.duration_ms("delay", 1), record.choice("of", ("all", "each")) == "each")

    def _window(self, top: CheckedMapping) -> d.Window | None:
        node = top.node("window")
        if node is None:
            return None
        record = self._record(node, "window", ("tumbling", "sliding", "every", "session", "offset"))
        given = [kind for kind in d.WindowKind if record.is_given(kind.value)]
        if len(given) != 1:
            record.tell("", f"expected exactly one of tumbling, sliding and session, {len(given)} are given")
            return None
        return d.Window(
            given[0], record.duration_ms(given[0].value), record.duration_ms("every"), record.duration_ms("offset")
        )

    def _keys(self, top: CheckedMapping) -> Mapping[str, str]:
        if isinstance(top.node("keys"), yaml.Mapping):
            return top.texts("keys")
        return {name: name for name in top.names("keys")}

    def _sink(self, top: CheckedMapping) -> d.Sink:
        record = self._record(top.node("sink"), "sink", _SINK)
        return d.Sink(
            topic=record.text("topic"),
            topic_of=record.text("topic_of"),
            parquet=record.text("parquet"),
            table=record.text("table"),
            key=record.text("key"),
            value=record.text("value"),
            event_time=record.text("event_time"),
            properties=record.text("properties"),
            fields=record.texts("fields"),
            is_avro=record.choice("format", ("json", "avro")) == "avro",
            partition_by=record.names("partition_by"),
            options=self._options(record),
        )

    def _trigger(self, top: CheckedMapping) -> int | None:
        value = top.text("trigger", "always")
        if value in ("always", "available"):
            return 0 if value == "always" else None
        found = duration_ms(value)
        if not found:
            top.tell("trigger", f"{value!r}: expected always, available or a duration such as 10 seconds")
        return found
