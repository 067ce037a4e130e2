"""The place of a message in its topic, as a column that can be compared: from the bytes of its id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from geminga.client import MessageId

if TYPE_CHECKING:
    from pyspark.sql import Column

#: (ledger, entry, index in the batch); all messages of a topic are ordered by it.
TYPE = "struct<ledger:bigint,entry:bigint,index:int>"


def position_of(ids: Column) -> Column:
    """The position of each message id."""
    from pyspark.sql.pandas.functions import arrow_udf

    def positions(values: pa.Array) -> pa.Array:
        from geminga.spark.pipelines.positions import positions_of

        return positions_of(values)

    made: Column = arrow_udf(positions, TYPE)(ids)  # type: ignore[call-overload]
    return made


def positions_of(values: pa.Array) -> pa.Array:
    """Of one Arrow array of serialized ids."""
    ids = [MessageId.deserialize(value) for value in values.to_pylist()]
    return pa.StructArray.from_arrays(
        [
            pa.array([one.ledger_id() for one in ids], pa.int64()),
            pa.array([one.entry_id() for one in ids], pa.int64()),
            pa.array([one.batch_index() for one in ids], pa.int32()),
        ],
        ["ledger", "entry", "index"],
    )
