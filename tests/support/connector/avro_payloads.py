"""Avro definitions and payloads, and the columns that Spark would have of them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql.types import StructType

from geminga.client.schema import SchemaInfo, SchemaType
from geminga.spark.rules.columns import arrow_schema
from geminga.spark.source.schema_decoding import decode_columns
from geminga.spark.source.topic_schema import value_fields


def record(name: str, **fields: object) -> dict[str, Any]:
    """The definition of a record."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def avro(definition: object) -> SchemaInfo:
    """A topic's schema."""
    return SchemaInfo("AVRO", SchemaType.AVRO, json.dumps(definition).encode())


def written(definition: Any, value: object) -> bytes:
    """A payload, as others write it."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(definition), value)
    return buffer.getvalue()


def columns(
    info: SchemaInfo, payloads: Sequence[bytes], keys: Sequence[bytes] | None = None, newest: SchemaInfo | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """The columns that Spark would have, and their rows."""
    fields = value_fields(newest or info, "t")
    arrow = arrow_schema(StructType(fields))
    decode = decode_columns(info, newest or info, {field.name: field.type for field in arrow})
    found = decode(pa.array(payloads, pa.binary()), lambda: pa.array(keys, pa.binary()))
    batch = pa.RecordBatch.from_arrays([found[name] for name in arrow.names], schema=arrow)
    batch.validate(full=True)
    return StructType(fields).simpleString(), batch.to_pylist()
