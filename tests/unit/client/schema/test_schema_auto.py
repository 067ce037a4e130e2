"""AUTO_CONSUME and AUTO_PRODUCE."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from geminga import sim
from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema import _auto as auto
from geminga.client.schema._base import SchemaSerializationError
from geminga.client.schema._key_value import KeyValue, KeyValueEncoding, KeyValueSchema
from geminga.client.schema._primitives import Int32Schema, StringSchema
from geminga.client.schema._protobuf import ProtobufNativeSchema, ProtobufSchema
from geminga.client.schema._protocol import SchemaInfo, SchemaType, VersionedSchema
from geminga.client.schema._struct import AvroSchema, JsonSchema
from geminga.wire._generated import pulsar_api_pb2 as pb


@dataclasses.dataclass
class Point:
    x: int
    y: str | None = None


class Source:
    def __init__(self, info: SchemaInfo | None) -> None:
        self.info = info

    async def get_schema(self, topic: str, version: bytes | None = None) -> VersionedSchema | None:
        return None if self.info is None else VersionedSchema(self.info, bytes(8))


@pytest.mark.parametrize("schema", [JsonSchema(Point), AvroSchema(Point)])
def test_records_come_as_generic_ones(schema: Any) -> None:
    reader = auto.AutoConsumeSchema()
    value = reader.decode(schema.encode(Point(1, "a")), writer=schema.info)
    assert isinstance(value, auto.GenericRecord)
    assert dict(value) == {"x": 1, "y": "a"}
    assert len(value) == 2
    assert value.schema_info == schema.info
    assert "'x': 1" in repr(value)


def test_other_schemas_come_as_their_values() -> None:
    reader = auto.AutoConsumeSchema()
    message = pb.MessageIdData(ledgerId=1, entryId=2)
    native = ProtobufNativeSchema(pb.MessageIdData)
    found = reader.decode(native.encode(message), writer=native.info)
    assert found.SerializeToString() == message.SerializeToString()
    pair: Any = KeyValueSchema(StringSchema(), Int32Schema(), KeyValueEncoding.SEPARATED)
    assert reader.decode(pair.encode(KeyValue("k", 1)), writer=pair.info, key=b"k") == ("k", 1)
    assert reader.decode(b"x", writer=StringSchema().info) == "x"
    assert reader.decode(b"x") == b"x"
    avro = ProtobufSchema(pb.MessageIdData)
    assert reader.decode(avro.encode(message), writer=avro.info) == message.SerializeToString()


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.KEY_VALUE, SchemaType.PROTOBUF_NATIVE])
def test_a_broken_definition_is_told(kind: SchemaType) -> None:
    with pytest.raises(SchemaSerializationError):
        auto.AutoConsumeSchema().decode(b"", writer=SchemaInfo("", kind, b"{}"))


def test_the_schemas_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "SCHEMAS_MAX", 2)
    reader = auto.AutoConsumeSchema()
    for number in range(4):
        assert reader.decode(b"x", writer=SchemaInfo("", SchemaType.STRING, b"", {"n": str(number)})) == "x"
    assert len(reader._schemas) == 2


def test_auto_consume_is_for_consumers() -> None:
    async def main(world: sim.SimWorld) -> None:
        with pytest.raises(InvalidConfiguration, match="AutoProduceBytesSchema"):
            await auto.AutoConsumeSchema().bind_producer("t", Source(None))
        decoder = await auto.AutoConsumeSchema().bind_consumer("t", Source(None))
        assert decoder.info is not None
        assert decoder.info.type is SchemaType.AUTO_CONSUME

    sim.run(main)
    with pytest.raises(SchemaSerializationError):
        auto.AutoConsumeSchema().encode("x")


def test_auto_produce_takes_the_topics_schema_and_checks_by_it() -> None:
    async def main(world: sim.SimWorld) -> None:
        avro = AvroSchema(Point)
        encoder = await auto.AutoProduceBytesSchema().bind_producer("t", Source(avro.info))
        assert encoder.info == avro.info
        data = avro.encode(Point(1))
        assert encoder.encode(data) == data
        for odd in (b"", "text"):
            with pytest.raises(SchemaSerializationError):
                encoder.encode(odd)  # type: ignore[arg-type]
        free = await auto.AutoProduceBytesSchema(validate=False).bind_producer("t", Source(avro.info))
        assert free.encode(b"") == b""
        without = await auto.AutoProduceBytesSchema().bind_producer("t", Source(None))
        assert without.info is None
        assert without.encode(b"x") == b"x"

    sim.run(main)
    with pytest.raises(SchemaSerializationError, match="create_producer"):
        auto.AutoProduceBytesSchema().encode(b"x")
