"""Rows as Arrow tables, and the Parquet schema of lake files. Imports ``pyarrow``: loaded by who writes them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from geminga.lake.core.rows import OF_ENTRY, TakenRows

_TIME: Final = pa.timestamp("ms", tz="UTC")
_PROPERTIES: Final = pa.map_(pa.string(), pa.string())

#: The columns, in their order.
SCHEMA: Final = pa.schema(
    [
        pa.field("ledger", pa.int64(), nullable=False),
        pa.field("entry", pa.int64(), nullable=False),
        pa.field("batch_index", pa.int32(), nullable=False),
        pa.field("batch_size", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("publish_time", _TIME),
        pa.field("broker_time", _TIME),
        pa.field("index", pa.int64()),
        pa.field("event_time", _TIME),
        pa.field("key", pa.binary()),
        pa.field("key_is_base64", pa.bool_(), nullable=False),
        pa.field("key_is_null", pa.bool_(), nullable=False),
        pa.field("ordering_key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("value_is_null", pa.bool_(), nullable=False),
        pa.field("properties", _PROPERTIES, nullable=False),
        pa.field("producer_name", pa.string()),
        pa.field("sequence_id", pa.int64()),
        pa.field("schema_version", pa.binary()),
        pa.field("replicated_from", pa.string()),
        pa.field("replicate_to", pa.list_(pa.string()), nullable=False),
        pa.field("txn_most", pa.int64()),
        pa.field("txn_least", pa.int64()),
        pa.field("deliver_at", _TIME),
        pa.field("chunk_uuid", pa.string()),
        pa.field("chunk_id", pa.int32()),
        pa.field("chunk_count", pa.int32()),
        pa.field("chunked_bytes", pa.int32()),
        pa.field("marker_type", pa.int32()),
        pa.field("entry_head", pa.binary()),
        pa.field("message_head", pa.binary()),
        pa.field("raw", pa.binary()),
        pa.field("message_id", pa.binary()),
    ]
)
#: What entries are rebuilt from.
REBUILD_COLUMNS: Final = ("entry", "entry_head", "message_head", "value", "raw")
#: Columns whose least and greatest values readers go by.
STATISTICS_COLUMNS: Final = ("ledger", "entry", "kind", "publish_time", "event_time", "broker_time", "index")
#: Columns with few different values.
DICTIONARY_COLUMNS: Final = (
    *("ledger", "kind", "producer_name", "schema_version", "replicated_from", "replicate_to.list.element"),
    *("properties.key_value.key", "batch_size"),
)


def table_of(taken: TakenRows, ledger_id: int) -> pa.Table:
    """The rows as a table of :data:`SCHEMA`."""
    which: list[int] = []
    for number, count in enumerate(taken.counts):
        which += [number] * count
    indices = pa.array(which, pa.int32())
    arrays = []
    for field in SCHEMA:
        if field.name == "ledger":
            arrays.append(pa.repeat(pa.scalar(ledger_id, pa.int64()), taken.rows))
        elif field.name in OF_ENTRY:
            arrays.append(pa.array(taken.of_entry[field.name], field.type).take(indices))
        else:
            arrays.append(pa.array(taken.of_message[field.name], field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
