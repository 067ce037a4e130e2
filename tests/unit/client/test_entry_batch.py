"""Entry batches, messages and message ids."""

from __future__ import annotations

import copy
import pickle
from array import array

import pulsar
import pytest

from geminga.client._api.message_id import MessageId
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.message import Message
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import encode_batch, single_message_head
from geminga.wire.pulsar.batches.batch_layout import BatchFormatError


def batch(payloads, heads=None, **fields) -> EntryBatch:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=10, publish_time=5, num_messages_in_batch=len(payloads), **fields
    )
    data = b"head" + encode_batch(payloads, 10, heads)
    return EntryBatch(data, 4, metadata, 7, 8, partition=2, topic_name="topic", redelivery_count=3)


def single(payload=b"payload", **fields) -> EntryBatch:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=10, publish_time=5, **fields)
    return EntryBatch(b"head" + payload, 4, metadata, 7, 8)


def test_flat_arrays_of_a_batch_point_at_payloads_and_keys() -> None:
    heads = {
        1: single_message_head(3, 11, partition_key="key"),
        2: single_message_head(0, 12, partition_key="a2V5", is_key_base64=True, is_null=True),
    }
    entry = batch([b"one", b"two", b"", b"four"], heads)
    starts, ends = entry.payload_starts, entry.payload_ends
    assert isinstance(starts, array)
    assert [entry.data[s:e] for s, e in zip(starts, ends, strict=True)] == [b"one", b"two", b"", b"four"]
    keys = [entry.key_data[s:e] for s, e in zip(entry.key_starts, entry.key_ends, strict=True)]
    assert keys == [b"", b"key", b"a2V5", b""]
    assert list(entry.batch_indexes) == [0, 1, 2, 3]
    assert list(entry.flags) == [0, 8, 11, 0]
    assert (len(entry), entry.message_count, entry.batch_size) == (4, 4, 4)
    messages = [Message(entry, index) for index in entry.order]
    assert [message.partition_key() for message in messages] == ["", "key", "a2V5", ""]
    assert [message.key_bytes() for message in messages] == [b"", b"key", b"key", b""]
    assert [message.has_key() for message in messages] == [False, True, True, False]
    assert messages[2].has_null_value()
    assert messages[2].value() is None
    assert [message.sequence_id() for message in messages] == [10, 11, 12, 13]
    assert entry.message_id(3) == messages[3].message_id() == MessageId(2, 7, 8, 3)
    assert messages[0].redelivery_count() == 3
    assert messages[0].index() is None
    assert entry.payload(1) == b"two"


def test_single_entry_reads_its_fields_from_the_entry() -> None:
    entry = single(partition_key="k", event_time=9, ordering_key=b"o", properties=[pb.KeyValue(key="a", value="b")])
    message: Message[bytes] = Message(entry, 0)
    assert (message.data(), message.value(), message.partition_key()) == (b"payload", b"payload", "k")
    assert (message.event_timestamp(), message.ordering_key(), message.properties()) == (9, "o", {"a": "b"})
    assert message.message_id() == MessageId(-1, 7, 8)
    assert list(entry.batch_indexes) == [-1]
    assert entry.key_data[entry.key_starts[0] : entry.key_ends[0]] == b"k"
    assert "payload" not in repr(message)
    assert message.schema_version() == b""
    entry.keep_unacknowledged((1,), None)
    assert entry.acker is None
    assert entry.message_metadata(0).payload_size == 0


def test_key_that_is_no_base64_is_taken_as_it_is() -> None:
    assert Message(single(partition_key="?", partition_key_b64_encoded=True), 0).key_bytes() == b"?"


def test_broker_entry_metadata_gives_each_message_its_index() -> None:
    entry = batch([b"a", b"b", b"c"])
    entry.broker_entry_metadata = pb.BrokerEntryMetadata(index=41, broker_timestamp=99)
    assert [Message(entry, index).index() for index in entry.order] == [39, 40, 41]
    assert Message(entry, 0).broker_publish_timestamp() == 99
    alone = single()
    alone.broker_entry_metadata = pb.BrokerEntryMetadata(index=41)
    assert Message(alone, 0).index() == 41
    assert Message(alone, 0).broker_publish_timestamp() is None


def test_compacted_messages_are_left_out_and_do_not_hold_the_batch_back() -> None:
    left_out = pb.SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString()
    # The indexes of a compacted batch are those that were kept (Pulsar's PIP-429); each message says it, too.
    head = len(left_out).to_bytes(4, "big") + left_out
    entry = batch([b"a", b"", b"c"], {1: head}, compacted_batch_indexes=[0, 2])
    entry.keep_unacknowledged((), None)
    assert list(entry.order) == [0, 2]
    assert entry.acker is not None
    assert [entry.acker.acknowledge(index) for index in (0, 2)] == [False, True]


def test_batch_that_is_none_is_refused() -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, num_messages_in_batch=2)
    with pytest.raises(BatchFormatError):
        EntryBatch(b"\0\0\0\2\x18\x01x", 0, metadata, 1, 1)


def test_message_that_is_to_go_to_another_process_says_what_may_go() -> None:
    message: Message[bytes] = Message(single(), 0)
    with pytest.raises(TypeError, match=r"a message stays in its process: .*data\(\)"):
        pickle.dumps(message)
    assert copy.copy(message).data() == b"payload"


def test_message_ids_compare_hash_pickle_and_travel() -> None:
    message_id = MessageId(3, 5, 7, 2, 10, topic_name="t")
    assert message_id == MessageId.deserialize(message_id.serialize(), "other")
    assert message_id != MessageId(3, 5, 7, 1)
    assert message_id != (5, 7, 3, 2)
    assert pickle.loads(pickle.dumps(message_id)) == message_id
    assert pickle.loads(pickle.dumps(message_id)).topic_name() == "t"
    assert message_id.with_topic("u").topic_name() == "u"
    assert len({message_id, MessageId.deserialize(message_id.serialize())}) == 1
    assert str(message_id) == "(5,7,3,2)"
    assert repr(message_id) == "MessageId(5,7,3,2)"
    theirs = pulsar.MessageId.deserialize(message_id.serialize())
    assert (theirs.ledger_id(), theirs.entry_id(), theirs.partition(), theirs.batch_index()) == (5, 7, 3, 2)
    for bad in (b"", b"\xff", b"\x08\x01"):
        with pytest.raises(ValueError, match="message id"):
            MessageId.deserialize(bad)


def test_message_ids_are_ordered_and_an_entry_is_behind_its_messages() -> None:
    ordered = [
        MessageId.earliest,
        MessageId(-1, 1, 1, 0),
        MessageId(-1, 1, 1, 5),
        MessageId(-1, 1, 1),
        MessageId(-1, 1, 2),
        MessageId(-1, 2, 0),
        MessageId.latest,
    ]
    shuffled = ordered[::-1]
    assert sorted(shuffled) == ordered
    assert ordered[0] < ordered[1] <= ordered[1]
    assert ordered[2] > ordered[1] >= ordered[1]
    with pytest.raises(TypeError):
        _ = ordered[0] < 3


def test_id_of_a_chunked_message_knows_its_first_chunk() -> None:
    first = MessageId(-1, 1, 1)
    message_id = MessageId(-1, 1, 4, first_chunk=first)
    assert MessageId.deserialize(message_id.serialize()).first_chunk_message_id() == first
