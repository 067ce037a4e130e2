"""Frames of JSON: what they ask for, what is told, what is refused with which of Pulsar's numbers."""

from __future__ import annotations

import json

import pytest

from geminga.broker.websocket.core.frames import (
    CLOSE_REASON_BYTES_MAX,
    AckFrame,
    EncryptionFields,
    EndOfTopicFrame,
    ErrorCode,
    FrameError,
    NegativeAckFrame,
    PermitFrame,
    ToldMessage,
    UnsubscribeFrame,
    close_reason,
    decode_command,
    decode_outgoing,
    decode_passed,
    encode_message,
    encode_refused,
    encode_stored,
    message_id_bytes,
)


def test_message_of_pulsars_page_is_read() -> None:
    frame = decode_outgoing('{"payload":"SGVsbG8gV29ybGQ=","properties":{"key1":"value1"},"context":"1"}')
    assert (frame.payload, frame.properties, frame.context) == (b"Hello World", {"key1": "value1"}, "1")
    assert (frame.key, frame.replication_clusters, frame.event_time_ms, frame.sequence_id) == (None, None, None, None)
    assert (frame.deliver_at_ms, frame.deliver_after_ms, frame.disable_replication) == (None, None, False)


def test_every_field_of_a_message_is_read() -> None:
    frame = decode_outgoing(
        json.dumps(
            {
                "payload": "YQ",
                "key": 5,
                "context": True,
                "replicationClusters": ["east"],
                "disableReplication": True,
                "eventTime": "1970-01-01T00:00:01.5Z",
                "deliverAt": 7,
                "deliverAfterMs": 8,
                "sequenceId": 0,
                "schemaVersion": 1,
            }
        )
    )
    assert frame == (b"a", {}, "true", "5", ["east"], True, 1500, 7, 8, 0)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", ErrorCode.NOT_JSON),
        ("[" * 100_000, ErrorCode.NOT_JSON),
        ('"x"', ErrorCode.NOT_JSON),
        ('{"payload":"","key":"\\ud800"}', ErrorCode.NOT_JSON),
        ('{"payload":""', ErrorCode.NOT_JSON),
        ('{"payload":null}', ErrorCode.PAYLOAD_ENCODING),
        ('{"payload":"a"}', ErrorCode.PAYLOAD_ENCODING),
        ('{"payload":"YQ==\\n"}', ErrorCode.PAYLOAD_ENCODING),
        ('{"payload":"","eventTime":"2021-10-29T16:01:38"}', ErrorCode.PAYLOAD_ENCODING),
        ('{"payload":"","eventTime":"1969-10-29T16:01:38Z"}', ErrorCode.PAYLOAD_ENCODING),
        ('{"payload":"","replicationClusters":"a"}', ErrorCode.NOT_JSON),
        ('{"payload":"","deliverAfterMs":1.5}', ErrorCode.NOT_JSON),
        ('{"payload":"","deliverAfterMs":1e400}', ErrorCode.NOT_JSON),
        ('{"payload":"","properties":{"a":-1e400}}', ErrorCode.NOT_JSON),
        ('{"payload":"","properties":{"a":NaN}}', ErrorCode.NOT_JSON),
        ('{"payload":"","sequenceId":-1}', ErrorCode.NOT_JSON),
        ('{"payload":"","deliverAt":9223372036854775808}', ErrorCode.NOT_JSON),
        ('{"payload":"","disableReplication":"no"}', ErrorCode.NOT_JSON),
        ('{"payload":"","properties":{"a":{}}}', ErrorCode.NOT_JSON),
    ],
)
def test_message_that_can_not_be_is_refused_with_pulsars_number(text: str, code: ErrorCode) -> None:
    with pytest.raises(FrameError) as refused:
        decode_outgoing(text)
    assert refused.value.code is code
    assert refused.value.reason


def test_refusal_has_the_context_that_could_be_read() -> None:
    with pytest.raises(FrameError) as refused:
        decode_outgoing('{"context":"c","payload":"%"}')
    assert refused.value.context == "c"


def test_commands_are_pulsars() -> None:
    assert decode_command('{"messageId":"CAAQAw=="}') == AckFrame("CAAQAw==")
    assert decode_command('{"messageId":"x","ackType":"CUMULATIVE"}') == AckFrame("x", True)
    assert decode_command('{"type":"negativeAcknowledge","messageId":"x"}') == NegativeAckFrame("x")
    assert decode_command('{"type":"permit","permitMessages":100}') == PermitFrame(100)
    assert decode_command('{"type":"unsubscribe"}') == UnsubscribeFrame()
    assert decode_command('{"type":"isEndOfTopic"}') == EndOfTopicFrame()
    # As in Pulsar, a type that nobody knows acknowledges.
    assert decode_command('{"type":"other","messageId":"x"}') == AckFrame("x")
    assert decode_passed('{"messageId":"x"}')
    assert decode_passed("{}")
    assert not decode_passed('{"type":"isEndOfTopic"}')


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"type":"permit"}',
        '{"type":"permit","permitMessages":0}',
        '{"type":"permit","permitMessages":4294967296}',
        "1",
    ],
)
def test_command_that_can_not_be_is_refused(text: str) -> None:
    with pytest.raises(FrameError) as refused:
        decode_command(text)
    assert refused.value.code is ErrorCode.NOT_JSON


def test_message_id_is_base64() -> None:
    assert message_id_bytes("CAAQAw==") == b"\x08\x00\x10\x03"
    with pytest.raises(FrameError):
        message_id_bytes("CAAQAw")


def test_answers_to_producers_are_pulsars() -> None:
    assert json.loads(encode_stored(b"\x08\x00\x10\x03", "1")) == {
        "result": "ok",
        "messageId": "CAAQAw==",
        "context": "1",
    }
    assert json.loads(encode_refused(ErrorCode.NOT_JSON, "why", None)) == {
        "result": "send-error:3",
        "errorMsg": "why",
    }


def test_message_is_told_as_on_pulsars_page() -> None:
    encryption = EncryptionFields({"k": (b"key", {"a": "b"})}, b"iv", "", "LZ4", 10, 3)
    told = encode_message(ToldMessage("CAAQAw==", b"\x00", {"ä": "é"}, "now", "then", 4, "k", encryption))
    assert json.loads(told) == {
        "messageId": "CAAQAw==",
        "payload": "AA==",
        "properties": {"ä": "é"},
        "publishTime": "now",
        "redeliveryCount": 4,
        "eventTime": "then",
        "encryptionContext": {
            "keys": {"k": {"keyValue": "a2V5", "metadata": {"a": "b"}}},
            "param": "aXY=",
            "algorithm": "",
            "compressionType": "LZ4",
            "uncompressedMessageSize": 10,
            "batchSize": 3,
        },
        "key": "k",
    }
    plain = json.loads(encode_message(ToldMessage("x", b"", {}, "now", "", 0, None)))
    assert set(plain) == {"messageId", "payload", "properties", "publishTime", "redeliveryCount"}


def test_close_has_a_code_of_an_application_and_a_reason_that_fits() -> None:
    said = "Failed to de-serialize from JSON"
    assert close_reason(ErrorCode.NOT_JSON) == (4003, said)
    assert close_reason(ErrorCode.NOT_JSON, "no id") == (4003, f"{said}: no id")
    assert close_reason(ErrorCode.NOT_JSON, f"{said}: no id") == (4003, f"{said}: no id")
    code, reason = close_reason(ErrorCode.UNKNOWN, "é" * 200)
    assert code == 4008
    assert len(reason.encode()) <= CLOSE_REASON_BYTES_MAX
    assert reason.startswith("Unknown error: éé")
