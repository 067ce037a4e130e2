"""The options that a pipeline gives to the source and the sink of topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from geminga.model import TopicName
from geminga.spark.pipelines.core.definition import Pipeline, Source, Table
from geminga.spark.pipelines.core.expressions import words_in
from geminga.spark.rules.metadata_columns import DEFAULT_COLUMNS, INVALID

#: Options that keys of the file stand for, or that are the pipeline's own affair.
OF_SOURCE_KEYS: Final = {
    "service.url": "cluster.service_url",
    "topic": "topic",
    "topics": "topics",
    "topicspattern": "pattern",
    "startingoffsets": "start",
    "startingtime": "start",
    "subscription": "subscription",
    "predefinedsubscription": "subscription",
    "maxmessagespertrigger": "max_messages",
    "maxbytespertrigger": "max_bytes",
    "schemamode": "schema",
    "jsoncolumns": "columns",
    "emptyastombstone": "sink.table",
    "invalid": "invalid",
    "badrecordstopic": "bad_records_topic",
}
OF_FILES_KEYS: Final = {"path": "parquet", "maxfilespertrigger": "max_files"}
OF_FILE_SINK_KEYS: Final = {"path": "parquet", "checkpointlocation": "checkpoint of the pipeline"}
OF_SINK_KEYS: Final = {
    "service.url": "cluster.service_url",
    "admin.url": "cluster.admin_url",
    "topic": "topic",
    "guarantee": "guarantee of the pipeline",
    "schematype": "format",
    "checkpointlocation": "checkpoint of the pipeline",
}
#: What makes a run know what the run before it has written.
OF_IDENTITY: Final = frozenset(["sinkname", "txnappid", "txnversion"])
#: What an error says of a message whose columns Spark can not make.
PLACE_COLUMNS: Final = ("__topic", "__messageId")
#: What a late row keeps of its message.
LATE_COLUMNS: Final = ("__key", "__topic", "__messageId", "__eventTime", "__messageProperties")


def key_of(error: str, at: str, given: Mapping[str, str], keys: Mapping[str, str]) -> str:
    """The path of the key that an option's error is about, which begins with the option; ``at`` where that is none.

    ``given``: the options of the file's own; ``keys``: the keys that become options.
    """
    option = error.partition(":")[0].partition("=")[0].strip()
    for name in given:
        if name.lower() == option.lower():
            return f"{at}.options.{name}"
    if option.startswith("pulsar.client."):
        return f"cluster.options.{option.removeprefix('pulsar.client.')}"
    key = keys.get(option.lower(), "").partition(" ")[0]
    if not key:
        return at
    return key if "." in key or key in ("guarantee", "checkpoint") else f"{at}.{key}"


def client_options(pipeline: Pipeline) -> dict[str, str]:
    """Where the brokers are."""
    options = {f"pulsar.client.{name}": value for name, value in pipeline.cluster.options.items()}
    return options | {"service.url": pipeline.cluster.service_url}


def source_options(pipeline: Pipeline, source: Source) -> dict[str, str]:
    """Of a stream of topics."""
    options = client_options(pipeline) | dict(source.options)
    if source.pattern:
        options["topicsPattern"] = source.pattern
    else:
        options["topics"] = ",".join(source.topics)
    if source.start in ("earliest", "latest"):
        options["startingOffsets"] = source.start
    else:
        options["startingTime"] = source.start
    subscription = pipeline.name if source.subscription is None else source.subscription
    if subscription:
        options["subscription"] = subscription
    if source.messages_max:
        options["maxMessagesPerTrigger"] = str(source.messages_max)
    if source.bytes_max:
        options["maxBytesPerTrigger"] = str(source.bytes_max)
    columns = list(metadata_columns(pipeline))
    if source.is_from_registry:
        options["schemaMode"] = "topic"
    if source.columns:
        options["jsonColumns"] = source.columns
        if pipeline.sink.table and not pipeline.is_grouped:
            options["emptyAsTombstone"] = "true"
        columns += [name for name in (*PLACE_COLUMNS, INVALID) if name not in columns]
    if source.keeps_invalid:
        options["invalid"] = "keep"
    if source.bad_records_topic:
        options["badRecordsTopic"] = source.bad_records_topic
    return {"metadataColumns": ",".join(columns), **options}


def table_options(pipeline: Pipeline, table: Table) -> dict[str, str]:
    """Of a topic that is read to its end."""
    # Of the messages of a key only the newest counts, so only of that it matters whether it fits.
    fixed = {"topic": table.topic, "jsonColumns": table.columns, "emptyAsTombstone": "true", "invalid": "keep"}
    columns = {"metadataColumns": "__key,__topic,__messageId,__invalid"}
    has_lake = any(name.lower() == "lake.root" for name in table.options)
    if not has_lake and TopicName.parse(table.topic).is_persistent:  # of some keys compaction alone has the message
        columns["pulsar.reader.readCompacted"] = "true"
    return columns | client_options(pipeline) | dict(table.options) | fixed


def sink_option_values(pipeline: Pipeline) -> dict[str, str]:
    """Of a topic that is written to."""
    options = client_options(pipeline) | dict(pipeline.sink.options)
    if pipeline.cluster.admin_url:
        options["admin.url"] = pipeline.cluster.admin_url
    if pipeline.sink.topic and not pipeline.late_topic:
        options["topic"] = pipeline.sink.topic
    if pipeline.sink.is_avro:
        options["schemaType"] = "avro"
    return options | {"guarantee": pipeline.guarantee.value}


def metadata_columns(pipeline: Pipeline) -> tuple[str, ...]:
    """Those that some expression names, as each costs time, and those of what is passed on."""
    wanted = set(words_in(expressions_of(pipeline)))
    if pipeline.window or pipeline.watermark:
        wanted |= set(words_in([pipeline.time]))
    if not pipeline.is_grouped and pipeline.sink.is_topic:
        wanted |= {"__key", "__eventTime"}
    if pipeline.sink.table and not pipeline.is_grouped:
        wanted |= {"__key", "__messageId"}
    if pipeline.late_topic:
        wanted |= set(LATE_COLUMNS)
    if pipeline.deduplicate:
        wanted |= {"__messageId", "__topic"}
    return tuple(column for column in DEFAULT_COLUMNS if column in wanted)


def expressions_of(pipeline: Pipeline) -> Iterator[str]:
    """Every expression but the event time's."""
    sink = pipeline.sink
    for mapping in (pipeline.select, pipeline.keys, pipeline.aggregates, sink.fields):
        yield from mapping.values()
    yield from (pipeline.where, pipeline.having, sink.topic_of, sink.key, sink.value, sink.event_time, sink.properties)
    yield from sink.partition_by
    yield from pipeline.deduplicate
    for join in pipeline.joins:
        yield from join.on
