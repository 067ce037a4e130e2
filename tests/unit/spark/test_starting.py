"""Where a query begins, from the ids of rows that were read."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import Row

from geminga.client import MessageId
from geminga.spark import starting_offsets
from geminga.spark.rules.option_values import OptionError
from geminga.spark.source_rules.offsets import ReadPosition
from geminga.spark.source_rules.options import SourceOptions

TOPIC = "persistent://public/default/t"


def positions(ids, **options):
    text = starting_offsets(ids, **options)
    parsed = SourceOptions.parse({"service.url": "pulsar://h", "topic": "t", "startingOffsets": text}, is_stream=True)
    return dict(parsed.start.topics)


@pytest.mark.parametrize(
    ("message_id", "behind", "at"),
    [
        (MessageId(-1, 5, 7), (5, 8, 0), (5, 7, 0)),
        (MessageId(-1, 5, 7, 0, 3), (5, 7, 1), (5, 7, 0)),
        (MessageId(-1, 5, 7, 1, 3), (5, 7, 2), (5, 7, 1)),
        (MessageId(-1, 5, 7, 2, 3), (5, 8, 0), (5, 7, 2)),
        (MessageId(-1, 5, 7, 2, 0), (5, 7, 3), (5, 7, 2)),
        (MessageId(-1, 5, 7, first_chunk=MessageId(-1, 5, 3)), (5, 8, 0), (5, 7, 0)),
    ],
)
def test_position_is_behind_the_message_or_with_inclusive_its_own(message_id, behind, at):
    for given in (message_id, message_id.serialize(), bytearray(message_id.serialize())):
        assert positions({"t": given}) == {TOPIC: ReadPosition(*behind)}
        assert positions({"t": given}, inclusive=True) == {TOPIC: ReadPosition(*at)}


def test_last_of_a_topics_rows_counts_in_whatever_order_they_come():
    ids = [MessageId(-1, 5, 200), MessageId(-1, 6, 1, 1, 9), MessageId(-1, 6, 1, 0, 9), MessageId(-1, 5, 300)]
    rows = [("t", one.serialize()) for one in ids] + [("u", MessageId(-1, 1, 1).serialize())]
    expected = {TOPIC: ReadPosition(6, 1, 2), "persistent://public/default/u": ReadPosition(1, 2)}
    assert positions(rows) == positions(rows[::-1]) == expected


def test_rows_of_a_data_frame_are_taken_as_they_are():
    row = Row(value=b"x", __topic=f"{TOPIC}-partition-2", __messageId=bytearray(MessageId(2, 5, 7).serialize()))
    assert positions([row]) == {f"{TOPIC}-partition-2": ReadPosition(5, 8)}


def test_id_of_a_partition_says_which_partition_of_a_topic_it_is():
    assert positions({"t": MessageId(2, 5, 7)}) == {f"{TOPIC}-partition-2": ReadPosition(5, 8)}


def test_text_is_the_offset_format():
    assert json.loads(starting_offsets({"t": MessageId(-1, 5, 7)})) == {"t": {TOPIC: "5:8:0"}, "v": 1}


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], "no rows"),
        ({}, "no rows"),
        ({"t": b"\xff\xff"}, "no message id"),
        ({"t": b""}, "no message id"),
        ({"t": 5}, "expected bytes, or a MessageId"),
        ({"t": "5:7"}, "expected bytes, or a MessageId"),
        ({"t": MessageId.latest}, "no place of a message"),
        ({"t": MessageId.earliest}, "no place of a message"),
        ({"a//b": MessageId(-1, 1, 1)}, "no topic"),
        ({3: MessageId(-1, 1, 1)}, "no topic"),
        ([5], "neither a row"),
        ([("t",)], "neither a row"),
        ([Row(value=b"x")], "neither a row"),
    ],
)
def test_what_is_no_id_is_an_error_that_says_so(ids, said):
    with pytest.raises(OptionError, match=said):
        starting_offsets(ids)
