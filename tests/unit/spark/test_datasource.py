"""The data source as Spark handles it before anything connects: name, schema, pure start, pickled readers."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from geminga.spark.datasource import PulsarDataSource
from geminga.spark.rules.metadata_columns import DEFAULT_COLUMNS
from geminga.spark.rules.option_values import OptionError
from geminga.spark.source.batch_reader import PulsarBatchReader
from geminga.spark.source.stream_reader import PulsarStreamReader
from pyspark_geminga import DefaultSource
from support.house.python_programs import run_python

OPTIONS = {"service.url": "pulsar://nowhere.invalid:1", "topic": "t"}


def stream_reader(**options) -> PulsarStreamReader:
    source = DefaultSource(options={**OPTIONS, **options})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, PulsarStreamReader)
    return reader


def test_source_is_found_by_its_name_and_has_value_and_metadata_columns():
    assert PulsarDataSource.name() == DefaultSource.name() == "pulsar"
    assert DefaultSource(options=OPTIONS).schema().fieldNames() == ["value", *DEFAULT_COLUMNS]


def test_column_that_was_dropped_is_not_in_the_schema():
    schema = DefaultSource(options={**OPTIONS, "metadataColumns": "__topic"}).schema()
    assert schema.fieldNames() == ["value", "__topic"]


@pytest.mark.parametrize(
    ("options", "initial"),
    [
        ({}, {"init": "latest", "v": 1}),
        ({"startingOffsets": "earliest"}, {"init": "earliest", "v": 1}),
        ({"startingTime": "5"}, {"init": {"time": 5}, "v": 1}),
        (
            {"startingOffsets": '{"b":"1:2:3","a":"4:5"}'},
            {"t": {"persistent://public/default/a": "4:5:0", "persistent://public/default/b": "1:2:3"}, "v": 1},
        ),
    ],
)
def test_initial_offset_is_the_same_whenever_it_is_asked_for(options, initial):
    # Spark calls it twice, uses the second answer, and calls it again when it replays the first batch.
    reader = stream_reader(**options)
    assert [str(reader.initialOffset()) for _ in range(2)] == [str(initial)] * 2
    assert str(stream_reader(**options).initialOffset()) == str(initial)


def test_readers_are_made_and_pickled_without_connecting():
    reader = stream_reader()
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.initialOffset() == reader.initialOffset()
    source = DefaultSource(options=OPTIONS)
    batch = source.reader(source.schema())
    assert isinstance(pickle.loads(pickle.dumps(batch)), PulsarBatchReader)


def test_batch_reader_reads_nothing_for_sparks_own_empty_partition():
    from pyspark.sql.datasource import InputPartition

    source = DefaultSource(options=OPTIONS)
    assert list(source.reader(source.schema()).read(InputPartition(None))) == []


def test_filters_are_not_pushed_unless_asked_for():
    # A reader that overrides pushFilters fails as long as a setting of Spark's does not allow it.
    from pyspark.sql.datasource import DataSourceReader

    source = DefaultSource(options=OPTIONS)
    assert type(source.reader(source.schema())).pushFilters is DataSourceReader.pushFilters


@pytest.mark.parametrize("at_ms", [0, 1_700_000_000_001, 2**41 + 1, 34_870_843_104_269, 253_402_300_799_999])
def test_a_bound_of_the_publish_time_is_kept_to_the_millisecond(at_ms: int):
    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThanOrEqual

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    moment = epoch + timedelta(milliseconds=at_ms)
    # Within a millisecond, whose rows are kept.
    late = moment + timedelta(microseconds=999)
    for filters, bounds in (
        ([EqualTo(("__publishTime",), moment)], (at_ms, at_ms + 1)),
        ([GreaterThanOrEqual(("__publishTime",), moment)], (at_ms, None)),
        ([LessThanOrEqual(("__publishTime",), late)], (None, at_ms + 1)),
    ):
        source = DefaultSource(options={**OPTIONS, "filterPushdown": "true"})
        reader = source.reader(source.schema())
        assert reader.pushFilters(filters) == filters
        narrowed = reader._options.narrowed
        assert (narrowed.time_from_ms, narrowed.time_to_ms) == bounds


def test_option_that_can_not_be_is_an_error_before_anything_runs():
    with pytest.raises(OptionError, match="startingOffsets"):
        stream_reader(startingOffsets="nonsense")


def test_importing_geminga_and_its_client_does_not_import_pyspark():
    code = "import sys, geminga, geminga.client; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_columns_given_by_the_user_must_be_such_as_there_are():
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    for field, said in (
        (StructField("other", StringType()), "there is no column other"),
        (StructField("value", StringType()), "value is binary, not string"),
    ):
        with pytest.raises(OptionError, match=said):
            DefaultSource(options=OPTIONS).reader(StructType([field]))
    DefaultSource(options=OPTIONS).reader(StructType([StructField("value", BinaryType())]))
    with pytest.raises(OptionError, match="__other"):
        DefaultSource(options={**OPTIONS, "schemaMode": "fixed"}).reader(
            StructType([StructField("__other", StringType())])
        )
    with pytest.raises(OptionError, match=r"give the columns with \.schema"):
        DefaultSource(options={**OPTIONS, "schemaMode": "fixed"}).schema()


@pytest.mark.parametrize(
    ("step", "spared"),
    [
        ("", ("geminga.client", "pyarrow")),
        ("source.schema()", ("geminga.client", "pyarrow")),
        ("pickle.dumps(source.streamReader(source.schema()))", ("geminga.client", "pyarrow")),
        (
            "pickle.dumps(source.streamWriter(StructType([StructField('value', BinaryType())]), False))",
            ("geminga.client",),
        ),
    ],
)
def test_process_that_only_plans_does_not_import_what_tasks_need(step, spared):
    """Spark starts four of them before the first batch; together these imports took 3 of its 30 seconds."""
    program = (
        "import pickle, sys\n"
        "from pyspark.sql.types import BinaryType, StructField, StructType\n"
        "from pyspark_geminga import DefaultSource\n"
        f"source = DefaultSource(options={OPTIONS!r})\n"
        f"{step}\n"
        f"print([name for name in {spared!r} if name in sys.modules])"
    )
    done = run_python(program)
    assert done.stdout.strip() == "[]", done.stdout
