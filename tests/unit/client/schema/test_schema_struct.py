"""JSON and Avro schemas."""

from __future__ import annotations

import builtins
import dataclasses
import pickle
from typing import Any

import pytest

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema import _struct as struct
from geminga.client.schema._base import SchemaSerializationError
from geminga.client.schema._protocol import SchemaInfo, SchemaType


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


DEFINITION: dict[str, Any] = {
    "type": "record",
    "name": "Other",
    "fields": [{"name": "x", "type": "double"}, {"name": "z", "type": "string", "default": "zz"}],
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (struct.AvroSchema(Point), Point(3)),
        (struct.AvroSchema(schema_definition=DEFINITION), {"x": 3.0, "z": "a"}),
        (struct.JsonSchema(Point), Point(3)),
    ],
)
def test_schemas_travel_between_processes(schema: Any, value: object) -> None:
    found = pickle.loads(pickle.dumps(schema))
    assert found.info == schema.info
    assert found.decode(schema.encode(value)) == value
    assert schema.decode(found.encode(value), writer=found.info) == value


def test_json_is_compact_utf8() -> None:
    @dataclasses.dataclass
    class Text:
        s: str

    assert struct.JsonSchema(Text).encode(Text("é")) == '{"s":"é"}'.encode()
    assert struct.JsonSchema(Point).info.type is SchemaType.JSON


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(SchemaSerializationError, match="no JSON"):
        struct.JsonSchema(Point).decode(data)


def test_avro_has_the_bytes_of_the_specification() -> None:
    assert struct.AvroSchema(Point).encode(Point(-2, 1.0)).hex() == "03" + "000000000000f03f"


@pytest.mark.parametrize("data", [b"", b"\x03", b"\xff" * 20])
def test_bytes_that_are_cut_off_are_refused(data: bytes) -> None:
    with pytest.raises(SchemaSerializationError):
        struct.AvroSchema(Point).decode(data)


def test_values_of_another_class_are_refused() -> None:
    for schema in (struct.JsonSchema(Point), struct.AvroSchema(Point)):
        with pytest.raises(SchemaSerializationError, match="Point"):
            schema.encode({"x": 1})  # type: ignore[arg-type]


def test_dicts_go_by_a_definition_and_are_resolved_against_the_writer() -> None:
    reader = struct.AvroSchema(None, schema_definition=DEFINITION)
    assert reader.decode(reader.encode({"x": 1.0, "z": "a"})) == {"x": 1.0, "z": "a"}
    # Another name, a promoted type, a default.
    writer = struct.AvroSchema(Point)
    assert reader.decode(writer.encode(Point(3)), writer=writer.info) == {"x": 3.0, "z": "zz"}
    with pytest.raises(SchemaSerializationError, match="does not fit"):
        reader.encode({"z": "a"})


def test_a_definition_may_be_text_and_must_be_avro() -> None:
    assert struct.AvroSchema(schema_definition='"long"').encode(1) == b"\2"
    for odd in ("{", '{"type":"what"}', {"type": object()}, 5, "[" * 100_000):
        with pytest.raises(InvalidConfiguration):
            struct.AvroSchema(schema_definition=odd)
    with pytest.raises(InvalidConfiguration, match="one of them"):
        struct.AvroSchema()
    with pytest.raises(InvalidConfiguration, match="one of them"):
        struct.AvroSchema(Point, DEFINITION)


def test_a_writer_of_another_type_or_without_sense_is_told() -> None:
    schema = struct.AvroSchema(Point)
    with pytest.raises(SchemaSerializationError, match="JSON schema, not AVRO"):
        schema.decode(b"", writer=SchemaInfo("", SchemaType.JSON, b"{}"))
    with pytest.raises(SchemaSerializationError, match="writer's schema"):
        schema.decode(b"", writer=SchemaInfo("", SchemaType.AVRO, b'{"type":"what"}'))


def test_the_parsed_definitions_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(struct, "PARSED_MAX", 3)
    schema = struct.AvroSchema(Point)
    for number in range(5):
        name = f"W{number}"
        fields = [{"name": "x", "type": "long"}, {"name": "y", "type": "double"}]
        writer = struct.AvroSchema(schema_definition={"type": "record", "name": name, "fields": fields})
        assert schema.decode(schema.encode(Point(number)), writer=writer.info) == Point(number)
    assert len(schema._writers) == 3


def test_without_fastavro_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refusing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "fastavro":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(InvalidConfiguration, match=r"geminga\[avro\]"):
        struct.AvroSchema(Point)
