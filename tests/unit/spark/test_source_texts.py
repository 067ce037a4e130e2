"""Rows of messages whose texts are no UTF-8, or whose metadata can not be read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from geminga.client._messages.entry_batch import EntryBatch
from geminga.spark.rules import metadata_columns as names
from geminga.spark.source.arrow import MessageRows, metadata_column, record_batch
from geminga.spark.source.range_read import Piece
from geminga.spark.source.single_metadata import GROUP_MIN, single_fields
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import encode_batch, single_message_head

MARK = b"BROKEN"
BROKEN = b"a\xff\xc3(\xed\xa0"
READ = "a\ufffd\ufffd(\ufffd\ufffd"
TEXT = MARK.decode()
MAP = pa.map_(pa.string(), pa.string())


def entry_of(batch_size: int, **fields) -> EntryBatch:
    metadata = pb.MessageMetadata(producer_name=TEXT, sequence_id=1, publish_time=5, **fields)
    data = b"payload"
    if batch_size:
        metadata.num_messages_in_batch = batch_size
        head = single_message_head(7, 1, partition_key=TEXT, properties={TEXT: "v", "k": TEXT}, event_time_ms=9)
        data = encode_batch([b"payload"] * batch_size, 1, dict.fromkeys(range(batch_size), head))
    else:
        metadata.partition_key, metadata.event_time = TEXT, 9
        metadata.properties.add(key=TEXT, value="v")
        metadata.properties.add(key="k", value=TEXT)
    encoded = metadata.SerializeToString().replace(MARK, BROKEN)
    return EntryBatch(data.replace(MARK, BROKEN), 0, pb.MessageMetadata.FromString(encoded), 7, 8)


@pytest.mark.parametrize("batch_size", [0, 2, 3 * GROUP_MIN])
def test_rows_hold_keys_as_sent_and_texts_as_read(batch_size: int) -> None:
    schema = pa.schema([("value", pa.binary()), (names.KEY, pa.binary()), (names.PRODUCER_NAME, pa.string())])
    schema = schema.append(pa.field(names.PROPERTIES, MAP)).append(pa.field(names.SEQUENCE_ID, pa.int64()))
    batch = record_batch(MessageRows([Piece(entry_of(batch_size), None), Piece(entry_of(0), None)]), "t", schema)
    batch.validate(full=True)
    rows = batch.to_pylist()
    assert len(rows) == (batch_size or 1) + 1
    for row in rows:
        assert (row["value"], row[names.KEY], row[names.PRODUCER_NAME]) == (b"payload", BROKEN, READ)
        assert dict(row[names.PROPERTIES]) == {READ: "v", "k": READ}


def test_key_that_is_not_the_base64_it_says_is_given_as_sent() -> None:

    rows = MessageRows([Piece(entry_of(0, partition_key_b64_encoded=True), None)])
    assert metadata_column(rows, names.KEY, "t", pa.binary()).to_pylist() == [BROKEN]


def test_metadata_that_can_not_be_read_have_no_fields() -> None:
    good = pb.SingleMessageMetadata(payload_size=1, event_time=9).SerializeToString()
    data = good + b"\x0a\x02\x0f\x0f"
    starts, ends = np.array([0, len(good)]), np.array([len(good), len(data)])
    found = single_fields(np.frombuffer(data, np.uint8), starts, ends)
    assert found.event_times_ms.tolist() == [9, -1]
    assert found.has_properties.tolist() == [False, False]
