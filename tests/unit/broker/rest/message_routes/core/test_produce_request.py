"""The body of a request that publishes."""

from __future__ import annotations

import base64
import json

import pytest

from geminga.broker.core.coercion import LONG_MAX, BodyError, Json
from geminga.broker.core.steps import drained
from geminga.broker.rest.message_routes.core.produce_request import (
    MESSAGES_MAX,
    Encoders,
    GivenMessage,
    Outgoing,
    encoders_of,
    outgoing_steps,
    parse_request,
    partition_of,
)
from geminga.wire.pulsar.schema_info import (
    INLINE,
    KeyValueParts,
    SchemaInfo,
    SchemaType,
    key_value_parts,
    key_value_schema,
    split_key_value,
)


def body(*messages: Json, **more: Json) -> Json:
    return {"messages": list(messages), **more}


def outgoing_of(given: GivenMessage, encoders: Encoders, now_ms: int, what: str) -> Outgoing:
    return drained(outgoing_steps(given, encoders, now_ms, what))


def test_what_is_left_out_has_pulsars_defaults() -> None:
    request = parse_request(body({"payload": "a"}), "t")
    (message,) = request.messages
    assert (request.producer_name, request.version) == ("", -1)
    assert request.schema == SchemaInfo("String", SchemaType.STRING)
    assert (message.key, message.sequence_id, message.clusters) == (None, None, ())
    sent = outgoing_of(message, encoders_of(request.schema), 1000, "message 0")
    assert (sent.payload, sent.metadata.publish_time) == (b"a", 1000)
    for name in ("event_time", "deliver_at_time", "partition_key", "schema_version"):
        assert not sent.metadata.HasField(name)


def test_delays_count_from_now_and_a_time_comes_before_them() -> None:
    given = [
        {"payload": "a", "deliverAfterMs": 5},
        {"payload": "a", "deliverAt": 7, "deliverAfterMs": 5},
        {"payload": "a", "deliverAfterMs": LONG_MAX},
    ]
    request = parse_request(body(*given), "t")
    times = [
        outgoing_of(one, encoders_of(request.schema), 1000, "it").metadata.deliver_at_time for one in request.messages
    ]
    assert times == [1005, 7, LONG_MAX]


def test_local_messages_name_no_cluster_but_pulsars_word_for_none() -> None:
    given = {"payload": "a", "disableReplication": True, "replicationClusters": ["east"]}
    assert parse_request(body(given), "t").messages[0].clusters == ("__local__",)


def test_schema_of_both_keeps_key_and_value_apart() -> None:
    encoded = base64.b64encode(b"{}").decode()
    request = parse_request(
        body(
            {"payload": "{}", "key": "7"},
            keySchema=json.dumps({"type": "INT32", "name": "k"}),
            valueSchema={"type": "JSON", "schema": encoded, "properties": {"a": "b"}},
        ),
        "topic",
    )
    assert request.schema is not None
    assert request.schema.name == "KVSchema-topic"
    parts = key_value_parts(request.schema)
    assert parts.key == SchemaInfo("k", SchemaType.INT32)
    assert parts.value == SchemaInfo("JSON", SchemaType.JSON, b"{}", {"a": "b"})
    sent = outgoing_of(request.messages[0], encoders_of(request.schema), 0, "it")
    assert base64.b64decode(sent.metadata.partition_key) == bytes((0, 0, 0, 7))
    assert (sent.metadata.partition_key_b64_encoded, sent.payload) == (True, b"{}")


def test_inline_schema_of_a_topic_has_the_key_in_the_payload() -> None:
    text = SchemaInfo("", SchemaType.STRING)
    encoders = encoders_of(key_value_schema("", KeyValueParts(text, text, INLINE)))
    messages = parse_request(body({"payload": "v", "key": "k"}, {"payload": "v"}, schemaVersion=0), "t").messages
    found = [split_key_value(outgoing_of(one, encoders, 0, "it").payload) for one in messages]
    assert found == [(b"k", b"v"), (None, b"v")]
    with pytest.raises(BodyError, match="can not be read"):
        encoders_of(SchemaInfo("", SchemaType.KEY_VALUE, b"x"))


def test_version_comes_before_schemas_of_the_request() -> None:
    request = parse_request(body(schemaVersion=3, valueSchema="{"), "t")
    assert (request.version, request.schema) == (3, None)
    assert parse_request(body(valueSchema={"type": "BYTES"}), "t").schema is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "the body must be a JSON object, not a list"),
        ({}, "messages must be a list of messages, not nothing"),
        (body(5), "message 0 must be a JSON object, not 5"),
        (body({"payload": {}}), "payload of message 0 must be a text, not an object"),
        (body({"payload": "a"}, {"payload": "a", "sequenceId": -1}), "sequenceId of message 1 must be 0 or more"),
        (body({"payload": "a", "eventTime": "x"}), "eventTime of message 0 must be a whole number, not 'x'"),
        (body({"payload": "a", "properties": {"a": None}}), "property 'a' of message 0 must be a text, not nothing"),
        (body(schemaVersion="x"), "schemaVersion must be a whole number"),
        (body(valueSchema="["), "valueSchema is not the JSON of a schema"),
        (body(valueSchema="[]"), "valueSchema must be a JSON object"),
        (body(valueSchema={"type": "INT32", "schema": "!"}), "schema of valueSchema is not base64"),
        (body(keySchema={"type": 5}), "type of keySchema is 5; expected such as STRING"),
        (body(*[{"payload": ""}] * (MESSAGES_MAX + 1)), "10001 messages; a request has at most 10000"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_body_that_can_not_be_read_is_refused_with_what_was_expected(given: Json, told: str) -> None:
    with pytest.raises(BodyError) as caught:
        parse_request(given, "t")
    assert told in caught.value.told


def test_keys_go_where_a_java_client_sends_them() -> None:
    # String.hashCode of Java: "a" is 97, "hello" 99162322, "polygenelubricants" -2147483648.
    assert [partition_of(key, 10) for key in ("a", "hello", "polygenelubricants")] == [7, 2, 0]


def test_lists_are_as_long_as_they_may_be_and_no_longer() -> None:
    for count, refusal in ((1000, None), (1001, "message 7: replicate_to has 1001 items, more than 1000")):
        request = parse_request(
            body({"payload": "a", "replicationClusters": [f"c{number}" for number in range(count)]}), "t"
        )
        if refusal is None:
            assert (
                len(outgoing_of(request.messages[0], encoders_of(request.schema), 0, "message 7").metadata.replicate_to)
                == count
            )
        else:
            with pytest.raises(BodyError, match=refusal):
                outgoing_of(request.messages[0], encoders_of(request.schema), 0, "message 7")
