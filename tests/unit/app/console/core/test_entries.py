"""Entries as the administration hands them out, message by message."""

from __future__ import annotations

import base64
import json

from geminga.app.console.core.entries import BATCH_MESSAGES_MAX, ViewedMessage, messages_of
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import encode_batch
from geminga.wire.pulsar.schema_info import encode_version

HEADERS = {
    "content-length": "5",
    "x-pulsar-message-id": "3:7",
    "x-pulsar-producer-name": "till",
    "x-pulsar-sequence-id": "9",
    "x-pulsar-publish-time": "2026-11-28T12:00:00Z",
}


def single(payload: bytes, **fields: object) -> bytes:
    head = pb.SingleMessageMetadata(payload_size=len(payload), **fields)  # type: ignore[arg-type]
    data = head.SerializeToString()
    return len(data).to_bytes(4, "big") + data + payload


def test_message_has_all_that_the_headers_say() -> None:
    headers = {
        **HEADERS,
        "x-pulsar-partition-key": "k",
        "x-pulsar-property": json.dumps({"a": "1", "ü": "ö"}),
        "x-pulsar-event-time": "2026-11-28T11:00:00Z",
        "x-pulsar-deliver-at-time": "2026-11-28T13:00:00Z",
        "x-pulsar-base64-ordering-key": base64.b64encode(b"o\xff").decode(),
        "x-pulsar-base64-schema-version": base64.b64encode(encode_version(4)).decode(),
        "x-pulsar-compression": "LZ4",
        "x-pulsar-replicated-from": "west",
        "x-pulsar-txnid-most-bits": "1",
        "x-pulsar-txnid-least-bits": "2",
        "x-pulsar-property-total-chunks": "5",
        "x-pulsar-property-chunk-id": "1",
    }
    assert messages_of(b"hello", headers) == [
        ViewedMessage(
            "3:7",
            b"hello",
            "k",
            b"o\xff",
            {"a": "1", "ü": "ö"},
            "till",
            "9",
            "2026-11-28T12:00:00Z",
            "2026-11-28T11:00:00Z",
            "2026-11-28T13:00:00Z",
            4,
            "LZ4",
            replicated_from="west",
            transaction="(1,2)",
            chunk="2 of 5",
        )
    ]


def test_messages_of_a_batch_have_their_own_fields() -> None:
    payload = (
        single(b"one", partition_key="a", sequence_id=5, event_time=500)
        + single(b"", null_value=True)
        + single(b"gone", compacted_out=True)
        + single(b"k", partition_key=base64.b64encode(b"\xff").decode(), partition_key_b64_encoded=True)
    )
    found = messages_of(payload, {**HEADERS, "x-pulsar-num-batch-message": "4"})
    assert [(each.id, each.payload, each.key) for each in found] == [
        ("3:7:0", b"one", "a"),
        ("3:7:1", None, None),
        ("3:7:3", b"k", b"\xff"),
    ]
    assert (found[0].sequence_id, found[0].event_time) == ("5", "1970-01-01T00:00:00.5Z")
    assert all(each.batch_size == 4 and each.producer == "till" for each in found)


def test_batch_that_is_damaged_or_huge_is_one_message_that_says_so() -> None:
    [damaged] = messages_of(b"abc", {**HEADERS, "x-pulsar-num-batch-message": "2"})
    assert "ends within its metadata" in damaged.problem
    assert damaged.payload == b"abc"
    many = BATCH_MESSAGES_MAX + 1
    payload = encode_batch([b""] * many, 0)
    [huge] = messages_of(payload, {**HEADERS, "x-pulsar-num-batch-message": str(many)})
    assert huge.problem == f"a batch of {many} messages is not taken apart"


def test_encrypted_batch_stays_whole() -> None:
    headers = {**HEADERS, "x-pulsar-is-encrypted": "true", "x-pulsar-num-batch-message": "2"}
    [found] = messages_of(b"secret", headers)
    assert (found.encryption, found.payload) == ("yes", b"secret")
    assert found.problem == "a batch of 2 messages, encrypted as one"


def test_marker_says_what_it_is() -> None:
    [found] = messages_of(b"", {**HEADERS, "x-pulsar-marker-type": "21"})
    assert found.marker == "the commit of a transaction"
    [strange] = messages_of(b"", {**HEADERS, "x-pulsar-marker-type": "99"})
    assert strange.marker == "a marker of type 99"


def test_headers_that_make_no_sense_are_shown_as_they_are() -> None:
    headers = {
        **HEADERS,
        "x-pulsar-property": "{",
        "x-pulsar-base64-ordering-key": "?",
        "x-pulsar-base64-schema-version": "AAAA",
        "x-pulsar-null-value": "true",
        "x-pulsar-base64-partition-key": base64.b64encode("schlüssel".encode()).decode(),
    }
    [found] = messages_of(b"", headers)
    assert (found.properties, found.ordering_key, found.schema_version) == ({}, b"?", None)
    assert (found.payload, found.key) == (None, "schlüssel")


def test_key_reads_as_a_text_where_it_is_one() -> None:
    keys = ["k", b"pair", b"\xff", b"\0", None]
    assert [ViewedMessage("3:7", b"", key).key_text for key in keys] == ["k", "pair", None, None, None]
