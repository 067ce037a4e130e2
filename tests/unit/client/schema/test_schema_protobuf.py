"""Protobuf schemas."""

from __future__ import annotations

import json

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema import _protobuf as protobuf
from geminga.client.schema._base import SchemaSerializationError
from geminga.wire._generated import pulsar_api_pb2 as pb


@pytest.mark.parametrize("kind", [protobuf.ProtobufSchema, protobuf.ProtobufNativeSchema])
def test_messages_survive_and_others_are_refused(kind: type) -> None:
    schema = kind(pb.MessageIdData)
    value = pb.MessageIdData(ledgerId=1, entryId=2)
    assert schema.encode(value) == value.SerializeToString()
    assert schema.decode(schema.encode(value)) == value
    with pytest.raises(SchemaSerializationError, match="MessageIdData"):
        schema.encode(pb.KeyValue(key="", value=""))
    with pytest.raises(SchemaSerializationError, match="MessageIdData"):
        schema.encode(pb.MessageIdData())
    with pytest.raises(SchemaSerializationError, match="MessageIdData"):
        schema.decode(b"\xff")
    with pytest.raises(InvalidConfiguration):
        kind(dict)


def test_native_definition_names_the_message_and_its_files() -> None:
    definition = json.loads(protobuf.ProtobufNativeSchema(descriptor_pb2.FileDescriptorProto).info.schema)
    assert definition["rootMessageTypeName"] == "google.protobuf.FileDescriptorProto"
    assert definition["rootFileDescriptorName"] == "google/protobuf/descriptor.proto"


@pytest.mark.parametrize("message", [pb.BaseCommand, pb.CommandSubscribe, descriptor_pb2.FileDescriptorSet])
def test_the_avro_schema_of_a_message_is_one(message: type) -> None:
    definition = json.loads(protobuf.ProtobufSchema(message).info.schema)
    assert fastavro.parse_schema(definition)
    assert definition["name"] == message.DESCRIPTOR.name


def test_the_avro_schema_has_defaults_for_every_field() -> None:
    fields = {f["name"]: f for f in json.loads(protobuf.ProtobufSchema(pb.MessageIdData).info.schema)["fields"]}
    assert fields["ledgerId"] == {"name": "ledgerId", "type": "long", "default": 0}
    assert fields["partition"]["default"] == -1
    assert fields["ack_set"] == {"name": "ack_set", "type": {"type": "array", "items": "long"}, "default": []}
    chunk = fields["first_chunk_message_id"]
    assert (chunk["type"], chunk["default"]) == (["null", "geminga.pulsar.MessageIdData"], None)
