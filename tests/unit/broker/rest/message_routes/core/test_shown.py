"""Entries as documents."""

from __future__ import annotations

import base64
import zlib
from typing import Any

from geminga.broker.rest.message_routes.core.shown import AROUND_BYTES, Shown, shown
from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_broker_entry_metadata, encode_entry

AT = Position(3, 4)


def look(data: bytes, **options: Any) -> Shown:
    usual = {"ack_set": (), "redeliveries": 0, "in_base64": False, "decompressed_max": 1000}
    return shown(data, -1, AT, **(usual | options))


def entry(payload: bytes, **metadata: Any) -> bytes:
    return encode_entry(pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1000, **metadata), payload)


def batch(*messages: tuple[bytes, dict[str, Any]], **metadata: Any) -> bytes:
    parts = []
    for payload, more in messages:
        head = pb.SingleMessageMetadata(payload_size=len(payload), **more).SerializeToString()
        parts.append(len(head).to_bytes(4, "big") + head + payload)
    return entry(b"".join(parts), num_messages_in_batch=len(messages), **metadata)


def pair(key: str, value: str) -> pb.KeyValue:
    return pb.KeyValue(key=key, value=value)


def test_all_that_is_known_of_a_message_is_told() -> None:
    data = entry(
        b"text",
        properties=[pair("a", "b")],
        partition_key="k",
        ordering_key=b"o",
        event_time=5,
        deliver_at_time=6,
        replicated_from="east",
        schema_version=(2).to_bytes(8, "big"),
    )
    head = encode_broker_entry_metadata(broker_timestamp_ms=2000, index=9)
    (piece,) = look(head + data, redeliveries=3).pieces
    assert piece.document == {
        "messageId": "3:4:-1",
        "payload": "text",
        "encoding": "text",
        "publishTime": 1000,
        "redeliveryCount": 3,
        "producerName": "p",
        "sequenceId": 7,
        "properties": {"a": "b"},
        "key": "k",
        "orderingKey": "bw==",
        "eventTime": 5,
        "deliverAt": 6,
        "replicatedFrom": "east",
        "schemaVersion": 2,
        "brokerPublishTime": 2000,
        "index": 9,
    }
    assert piece.size_bytes == AROUND_BYTES + len("text") + 2


def test_messages_of_a_batch_are_their_own_but_for_those_that_are_acknowledged_or_gone() -> None:
    data = batch(
        (b"a", {"partition_key": "Aw==", "partition_key_b64_encoded": True, "sequence_id": 1}),
        (b"b", {}),
        (b"", {"null_value": True, "event_time": 8, "properties": [pair("x", "y")]}),
        (b"d", {"compacted_out": True}),
    )
    head = encode_broker_entry_metadata(broker_timestamp_ms=None, index=19)
    found = look(head + data, ack_set=(0b1101,))
    assert found.unacknowledged == 0b0101
    first, third = (piece.document for piece in found.pieces)
    assert (first["messageId"], first["key"], first["keyEncoding"]) == ("3:4:-1:0", "Aw==", "base64")
    assert (first["sequenceId"], first["batchSize"], first["index"]) == (1, 4, 16)
    assert (third["messageId"], third["payload"], third["eventTime"]) == ("3:4:-1:2", None, 8)
    assert third["properties"] == {"x": "y"}
    # Words of an ack set are signed: the highest bit is a message, too.
    many = batch(*((b"%d" % index, {}) for index in range(70)))
    found = look(many, ack_set=(-(1 << 63), 0b1))
    assert [piece.document["payload"] for piece in found.pieces] == ["63", "64"]


def test_what_is_no_text_is_base64_and_all_is_where_that_is_wanted() -> None:
    (piece,) = look(entry(b"\xff")).pieces
    assert (piece.document["payload"], piece.document["encoding"]) == ("/w==", "base64")
    (piece,) = look(entry(b"t"), in_base64=True).pieces
    assert (piece.document["payload"], piece.document["encoding"]) == ("dA==", "base64")


def test_what_is_compressed_is_decompressed_unless_it_becomes_too_large() -> None:
    packed = zlib.compress(b"x" * 1000)
    data = entry(packed, compression=pb.ZLIB, uncompressed_size=1000)
    assert look(data).pieces[0].document["payload"] == "x" * 1000
    kept = look(data, decompressed_max=999).pieces[0].document
    assert (kept["compression"], kept["error"]) == ("ZLIB", "decompressed it has 1000 bytes")
    assert base64.b64decode(str(kept["payload"])) == packed
    damaged = look(entry(b"none", compression=pb.ZLIB, uncompressed_size=10)).pieces[0].document
    assert (damaged["compression"], damaged["payload"]) == ("ZLIB", base64.b64encode(b"none").decode())
    assert damaged["error"]


def test_encrypted_message_stays_so_and_says_what_its_reader_needs() -> None:
    data = entry(
        b"\x01",
        encryption_keys=[pb.EncryptionKeys(key="k", value=b"v", metadata=[pair("a", "b")])],
        encryption_param=b"p",
        encryption_algo="AES",
        compression=pb.LZ4,
        uncompressed_size=5,
        num_messages_in_batch=2,
    )
    found = look(data)
    document = found.pieces[0].document
    assert (document["messageId"], document["payload"], found.unacknowledged) == ("3:4:-1", "AQ==", 1)
    assert document["encryptionContext"] == {
        "keys": {"k": {"keyValue": "dg==", "metadata": {"a": "b"}}},
        "param": "cA==",
        "algorithm": "AES",
        "compressionType": "LZ4",
        "uncompressedMessageSize": 5,
        "batchSize": 2,
    }


def test_part_of_a_larger_message_says_which_it_is() -> None:
    data = entry(b"part", uuid="p-7", num_chunks_from_msg=3, chunk_id=1, total_chunk_msg_size=12)
    assert look(data).pieces[0].document["chunk"] == {"uuid": "p-7", "id": 1, "count": 3, "totalSize": 12}


def test_damage_is_told_and_takes_no_message_away() -> None:
    found = look(b"\x0e\x01nonsense")
    assert found.unacknowledged == 1
    assert found.pieces[0].document["error"] == "its metadata are damaged"
    many = look(entry(b"", num_messages_in_batch=10_001)).pieces
    assert [(one.document["error"], one.ref.batch_index) for one in many] == [("a batch of 10001 messages", -1)]
    document = look(entry(b"\x00\x00", num_messages_in_batch=5)).pieces[0].document
    assert (document["encoding"], "ends within" in str(document["error"])) == ("base64", True)
