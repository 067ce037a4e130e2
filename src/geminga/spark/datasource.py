"""The PySpark data source ``pulsar``: topics as tables and streams.

Spark imports this in processes of several kinds, each for one of the methods below: client, readers and writers, which
take most of a second to import, are imported by the method that needs them.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from geminga.spark.rules.columns import metadata_fields, raw_schema
from geminga.spark.rules.metadata_columns import ALL_COLUMNS
from geminga.spark.rules.option_values import OptionError
from geminga.spark.source_rules.options import SourceOptions


class PulsarDataSource(DataSource):
    """``format("pulsar")``; registered by itself through the module ``pyspark_geminga``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "pulsar"

    def schema(self) -> StructType:
        """The columns, as the options say; used unless the user gives a schema. Raises OptionError."""
        options = SourceOptions.for_schema(self.options)
        if options.schema_mode == "fixed":
            raise OptionError("schemaMode=fixed: give the columns with .schema(...)")
        if options.schema_mode == "raw":
            return raw_schema(options.metadata_columns)
        from geminga.spark.process.clients import session_for
        from geminga.spark.source.topic_schema import topic_schema

        session = session_for(options.client)
        return session.run(lambda: topic_schema(session.client, options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        from geminga.spark.source.batch_reader import FilteringBatchReader, PulsarBatchReader

        options = SourceOptions.parse(self.options, is_stream=False)
        check_schema(schema, options)
        return (FilteringBatchReader if options.filter_pushdown else PulsarBatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For ``spark.readStream``."""
        from geminga.spark.source.stream_reader import PulsarStreamReader

        options = SourceOptions.parse(self.options, is_stream=True)
        check_schema(schema, options)
        return PulsarStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        from geminga.spark.sink.writer import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For ``df.writeStream``."""
        from geminga.spark.sink.writer import StreamWriter

        return StreamWriter(self.options, schema, overwrite)


def check_schema(schema: StructType, options: SourceOptions) -> None:
    """Raise OptionError for columns that a user gave and that can not be."""
    metadata = {field.name: field for field in metadata_fields(ALL_COLUMNS)}
    raw = {field.name: field for field in raw_schema(ALL_COLUMNS)}
    for field in schema:
        known = (raw if options.schema_mode == "raw" else metadata).get(field.name)
        if known is None and (options.schema_mode == "raw" or field.name.startswith("__")):
            raise OptionError(f"schema: there is no column {field.name} (schemaMode={options.schema_mode})")
        if known is not None and known.dataType != field.dataType:
            expected, given = known.dataType.simpleString(), field.dataType.simpleString()
            raise OptionError(f"schema: the column {field.name} is {expected}, not {given}")
