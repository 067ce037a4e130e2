"""What becomes of messages that do not fit their columns: an error that names the first, nulls, or another topic.

To another topic (``badRecordsTopic``) they go from the task that reads them, before its rows: a task that is repeated
sends them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa

from geminga.spark.process.clients import session_for
from geminga.spark.rules.metadata_columns import INVALID
from geminga.spark.source.arrow import RowColumns, metadata_column
from geminga.spark.source_rules.errors import SchemaError
from geminga.spark.source_rules.options import SourceOptions

#: What says of such a message where it was, and why it is there.
TOPIC_PROPERTY: Final = "geminga.invalid.topic"
ID_PROPERTY: Final = "geminga.invalid.message_id"
REASON_PROPERTY: Final = "geminga.invalid.reason"
#: A payload that is larger is no part of a batch, and goes in chunks if it is larger than the broker takes.
ALONE_ABOVE_BYTES: Final = 128 * 1024
_PROPERTIES: Final = pa.map_(pa.string(), pa.string())


class Misfits:
    """By the options of one source."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @property
    def are_kept(self) -> bool:
        """Whether reading goes on behind a message that does not fit."""
        return self._options.keeps_invalid or bool(self._options.bad_records_topic)

    def refuse(self, rows: RowColumns, topic: str, misfits: Mapping[int, str]) -> NoReturn:
        """Raise SchemaError, which names the first of them."""
        row = min(misfits)
        more = f" ({len(misfits) - 1} more near it)" if len(misfits) > 1 else ""
        raise SchemaError(
            f"{topic}: message {rows.place_of(row)} {misfits[row]}{more}. Nothing of the batch counts; invalid=keep "
            "reads such messages as nulls, badRecordsTopic sends them to another topic"
        )

    def batch(
        self,
        rows: RowColumns,
        topic: str,
        columns: Mapping[str, pa.Array],
        schema: pa.Schema,
        misfits: Mapping[int, str],
    ) -> pa.RecordBatch:
        """The rows of ``columns`` and the metadata, without those that go elsewhere, which are sent."""
        reasons = pa.array([misfits.get(row) for row in range(rows.count)], pa.string()) if misfits else None
        own = dict(columns)
        own[INVALID] = pa.nulls(rows.count, pa.string()) if reasons is None else reasons
        arrays = [
            own[field.name] if field.name in own else metadata_column(rows, field.name, topic, field.type)
            for field in schema
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if not misfits or not self._options.bad_records_topic:
            return batch
        self._send(rows, topic, misfits)
        fits = np.ones(rows.count, np.bool_)
        fits[list(misfits)] = False
        return batch.filter(pa.array(fits))

    def _send(self, rows: RowColumns, topic: str, misfits: Mapping[int, str]) -> None:
        """Each with its key, event time and properties. Raises what sending raises."""
        chosen = pa.array(sorted(misfits), pa.int32())
        values, keys, times, properties = (
            column.take(chosen).to_pylist()
            for column in (
                rows.value(),
                rows.key(),
                rows.event_time().cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()),
                rows.properties(_PROPERTIES),
            )
        )
        client = session_for(self._options.client).blocking
        is_large = any(len(value or b"") > ALONE_ABOVE_BYTES for value in values)
        with client.create_producer(
            self._options.bad_records_topic,
            block_if_queue_full=True,
            batching_enabled=not is_large,
            chunking_enabled=is_large,
        ) as producer:
            for index, row in enumerate(sorted(misfits)):
                said = {
                    **dict(properties[index]),
                    TOPIC_PROPERTY: topic,
                    ID_PROPERTY: rows.place_of(row),
                    REASON_PROPERTY: misfits[row],
                }
                producer.send_nowait(
                    values[index] or b"",
                    properties=said,
                    partition_key=_as_sent(keys[index]),
                    event_timestamp=times[index],
                )
            producer.flush()


def _as_sent(key: bytes | None) -> str | bytes | None:
    """Text where it is text: bytes travel as base64."""
    if key is None:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
