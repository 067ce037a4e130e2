"""A topic and its lake as one DataFrame: Spark reads the lake's Parquet files itself, the data source reads the rest.

Where topics begin and end, which ledgers the lake has, and so where the seam lies, is decided once, when the DataFrame
is made. Each of its actions reads those rows: files never change, a ledger that is offloaded meanwhile is read from
where it was planned, and what is gone fails the query. See ``docs/spark-lake.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from geminga.model import TopicName
from geminga.runtime import get_logger
from geminga.spark.datasource import PulsarDataSource, check_schema
from geminga.spark.process.clients import session_for
from geminga.spark.process.threads import inheriting
from geminga.spark.rules.option_values import OptionError
from geminga.spark.source.batch_plan import bounds_of_batch, plan_batch
from geminga.spark.source.lake_files import pack_units, units_with_lake
from geminga.spark.source_rules.file_parts import (
    FILE_COLUMNS,
    FilePart,
    Scan,
    column_of,
    file_parts,
    is_id_short,
    scans_of,
)
from geminga.spark.source_rules.lake_plan import PlannedFile, Unit
from geminga.spark.source_rules.options import PLAN, SourceOptions
from geminga.spark.source_rules.plan_text import encode_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = get_logger(__name__)

#: Topics and partitions whose files Spark reads by itself; each is a scan or two of the query's plan.
FILE_TOPICS_MAX: Final = 64
#: Spark takes paths for patterns. Told not to, it gives each of several paths as often as there are paths (4.3).
_PATTERN_CHARACTERS: Final = frozenset("*?[]{}\\")
#: Whatever the session's settings are: a file that is gone or damaged is an error.
_FILE_OPTIONS: Final = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
    "datetimeRebaseMode": "CORRECTED",
    "mergeSchema": "false",
}


def read_topic(spark: SparkSession, options: Mapping[str, object], schema: StructType | None = None) -> DataFrame:
    """The rows of topics: from the lake's files as far as they go, the rest from the broker, as one table.

    ``options`` are those of ``format("pulsar")`` for ``spark.read`` (``service.url``, ``topic``, ``lake.root``, ...),
    and ``schema`` as of its ``.schema``; columns and rows are the same, too. With ``schemaMode=raw`` and a lake in a
    directory Spark's own Parquet reader takes the columns that a query uses, and gets its filters; anything else goes
    through the data source. Which rows there are is decided here, not when the DataFrame is used.

    Blocks while brokers and lake are asked. Raises :class:`OptionError`, and what the source raises (``TopicError``,
    ``LakeError``, the client's errors).
    """
    texts = {name: _text(name, value) for name, value in options.items() if value is not None}
    if any(name.lower() == PLAN for name in texts):
        raise OptionError(f"{PLAN}: read_topic writes it; leave it out")
    if not any(name.lower() == "timezone" for name in texts):
        texts["timeZone"] = str(spark.conf.get("spark.sql.session.timeZone"))
    parsed = SourceOptions.parse(texts, is_stream=False)
    if schema is None:
        schema = PulsarDataSource(texts).schema()
    check_schema(schema, parsed)
    client = session_for(parsed.client)
    if parsed.lake is None:
        tasks = client.run(lambda: plan_batch(client.client, parsed))
        return _from_source(spark, texts, schema, encode_plan(tasks))
    bounds = client.run(lambda: bounds_of_batch(client.client, parsed))
    units, ledgers = units_with_lake(*bounds, parsed)
    parts, rest = file_parts(units, {ledger.path: ledger for ledger in _readable(ledgers, units, parsed)})
    frames = [
        _of_scan(spark, scan, f"{parsed.lake.root}/", topic, schema)
        for topic, of_topic in _by_topic(parts)
        for scan in scans_of(of_topic, parsed.reader.time_from_ms, parsed.reader.time_to_ms)
    ]
    if rest or not frames:
        # First, as tasks begin in this order: a worker starts and waits for the broker while files are read.
        frames.insert(0, _from_source(spark, texts, schema, encode_plan(pack_units(rest, parsed))))
    return reduce(DataFrame.union, frames)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str | bool | int | float):
        raise OptionError(f"{name}={value!r}: expected a text, a number or True or False")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _readable(ledgers: Sequence[PlannedFile], units: Sequence[Unit], options: SourceOptions) -> list[PlannedFile]:
    """Those that Spark can read with the same result; others go through the source."""
    assert options.lake is not None
    if options.schema_mode != "raw" or options.json_columns or not options.lake.root.startswith("file://"):
        return []
    if _PATTERN_CHARACTERS.intersection(options.lake.root):
        return []
    every = {ledger.path: ledger for ledger in ledgers if not _PATTERN_CHARACTERS.intersection(ledger.path)}
    parts, _ = file_parts(units, every)
    topics = _by_topic(parts)
    chosen = [of_topic for _, of_topic in topics if is_id_short(of_topic)][:FILE_TOPICS_MAX]
    if len(chosen) < len(topics):
        _log.info("the files of %d topics of %d are read through Python", len(topics) - len(chosen), len(topics))
    return [part.ledger for of_topic in chosen for part in of_topic]


def _by_topic(parts: Sequence[FilePart]) -> list[tuple[str, list[FilePart]]]:
    ordered = sorted(parts, key=attrgetter("topic"))
    return [(topic, list(of_topic)) for topic, of_topic in groupby(ordered, key=attrgetter("topic"))]


def _of_scan(spark: SparkSession, scan: Scan, root: str, topic: str, schema: StructType) -> DataFrame:
    files = spark.read.schema(FILE_COLUMNS).options(**_FILE_OPTIONS)
    rows = files.parquet(*(f"{root}{part.ledger.path}" for part in scan.parts))
    partition = TopicName.parse(topic).partition
    if scan.condition:
        rows = rows.where(scan.condition)
    return rows.select(
        *(F.expr(column_of(field.name, topic, partition, scan.parts)).alias(field.name) for field in schema)
    )


def _from_source(spark: SparkSession, options: Mapping[str, str], schema: StructType, plan: str) -> DataFrame:
    def load() -> DataFrame:
        return spark.read.format("pulsar").options(**{**options, PLAN: plan}).schema(schema).load()

    return inheriting(spark, load)()  # the source is not found where no session is active, as in a web server's threads
