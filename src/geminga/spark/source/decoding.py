"""From messages to rows, as ``schemaMode`` says: payloads as they are, or by their schemas.

What knows schemas is loaded by those who need it.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from geminga.spark.process.clients import session_for
from geminga.spark.rules.columns import VALUE, arrow_schema
from geminga.spark.source.arrow import RowColumns, record_batch
from geminga.spark.source.task_read import Decode
from geminga.spark.source_rules.options import SourceOptions


def decoder(options: SourceOptions, schema: StructType) -> Decode:
    """What makes rows of ``schema``."""
    arrow = arrow_schema(schema)
    if options.schema_mode != "raw":
        from geminga.spark.source.misfits import Misfits
        from geminga.spark.source.schema_decoding import PartsDecoder

        by_newest = options.schema_mode == "topic"
        return PartsDecoder(
            session_for(options.client),
            arrow,
            Misfits(options),
            by_newest=by_newest,
            are_bytes_text=options.are_json_bytes_text,
        )
    if options.json_columns:
        return _gated(options, arrow)

    def decode(rows: RowColumns, topic: str) -> pa.RecordBatch:
        return record_batch(rows, topic, arrow)

    return decode


def _gated(options: SourceOptions, arrow: pa.Schema) -> Decode:
    """Payloads as they are, if they are JSON of the columns that the options ask for."""
    from geminga.spark.decoding.json_gate import JsonGate
    from geminga.spark.source.misfits import Misfits
    from geminga.spark.source_rules.ddl import parse_columns

    gate, policy = JsonGate(parse_columns(options.json_columns), takes_empty=options.takes_empty), Misfits(options)

    def decode(rows: RowColumns, topic: str) -> pa.RecordBatch:
        values = rows.value()
        misfits = gate.misfits(values)
        if misfits and not policy.are_kept:
            policy.refuse(rows, topic, misfits)
        return policy.batch(rows, topic, {VALUE: values}, arrow, misfits)

    return decode
