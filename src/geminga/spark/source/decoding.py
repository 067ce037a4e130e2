"""From messages to rows, as ``schemaMode`` says: payloads as they are, or by their schemas.

What knows schemas is loaded by those who need it.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from geminga.spark.clients import session_for
from geminga.spark.columns import arrow_schema
from geminga.spark.core.options import SourceOptions
from geminga.spark.source.arrow import RowColumns, record_batch
from geminga.spark.source.task_read import Decode


def decoder(options: SourceOptions, schema: StructType) -> Decode:
    """What makes rows of ``schema``."""
    arrow = arrow_schema(schema)
    if options.schema_mode != "raw":
        from geminga.spark.source.schema_decoding import SchemaDecoder

        return SchemaDecoder(session_for(options.client), arrow, by_newest=options.schema_mode == "topic")

    def decode(rows: RowColumns, topic: str) -> pa.RecordBatch:
        return record_batch(rows, topic, arrow)

    return decode
