"""Protobuf schemas of the registry as Spark's types, and their messages as what Arrow takes.

A PROTOBUF_NATIVE schema has the descriptors of its message, one of type PROTOBUF an Avro definition and, as a property,
numbers and types of the outermost fields: a descriptor is made of them. A descriptor comes from whoever registered the
schema: one that can not be built is an error that says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from geminga.client.schema import SchemaInfo, SchemaType
from geminga.spark.source_rules.errors import SchemaError
from geminga.wire.pulsar.protobuf_definition import root_message

#: The property of a PROTOBUF schema that names its fields' numbers, as Java's client writes it.
PARSING_INFO: Final = "__PARSING_INFO__"
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_MICROS: Final = 1_000_000
#: Numbers of field types by name, as STRING.
_NUMBERS: Final = {name.removeprefix("TYPE_"): number for name, number in FieldDescriptorProto.Type.items()}
_TYPES: Final[Mapping[int, DataType]] = {
    FieldDescriptor.TYPE_BOOL: BooleanType(),
    FieldDescriptor.TYPE_STRING: StringType(),
    FieldDescriptor.TYPE_BYTES: BinaryType(),
    FieldDescriptor.TYPE_ENUM: StringType(),
    FieldDescriptor.TYPE_FLOAT: FloatType(),
    FieldDescriptor.TYPE_DOUBLE: DoubleType(),
    FieldDescriptor.TYPE_INT32: IntegerType(),
    FieldDescriptor.TYPE_SINT32: IntegerType(),
    FieldDescriptor.TYPE_SFIXED32: IntegerType(),
    FieldDescriptor.TYPE_UINT32: LongType(),
    FieldDescriptor.TYPE_FIXED32: LongType(),
    FieldDescriptor.TYPE_INT64: LongType(),
    FieldDescriptor.TYPE_SINT64: LongType(),
    FieldDescriptor.TYPE_SFIXED64: LongType(),
    FieldDescriptor.TYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FIXED64: DecimalType(20, 0),
}

#: A message's field -> what Arrow takes.
Convert = Callable[[Any], Any]


def descriptor_of(info: SchemaInfo) -> Descriptor:
    """The message of a PROTOBUF_NATIVE or PROTOBUF schema; raises SchemaError."""
    try:
        if info.type is SchemaType.PROTOBUF:
            return _of_parsing_info(info)
        return root_message(info.schema)
    except (ValueError, KeyError, TypeError, DecodeError) as error:
        raise SchemaError(f"the {info.type.name} schema has no message that can be built: {error}") from error


def _of_parsing_info(info: SchemaInfo) -> Descriptor:
    text = info.properties.get(PARSING_INFO)
    if text is None:
        raise SchemaError(
            f"the PROTOBUF schema does not name the numbers of its fields ({PARSING_INFO}); use PROTOBUF_NATIVE, or "
            "schemaMode=raw"
        )
    defaults = {field["name"]: field.get("default") for field in json.loads(info.schema).get("fields", ())}
    file = FileDescriptorProto(name="schema.proto", package="geminga.spark.registered", syntax="proto2")
    message = file.message_type.add(name="Value")
    for field in json.loads(text):
        name, kind = str(field["name"]), str(field["type"])
        if kind in ("MESSAGE", "GROUP", "ENUM"):
            raise SchemaError(
                f"{name}: a PROTOBUF schema does not say what is in a field of type {kind}; use PROTOBUF_NATIVE, or "
                "schemaMode=raw"
            )
        made = message.field.add(name=name, number=int(field["number"]), label=FieldDescriptorProto.LABEL_OPTIONAL)
        made.type = _NUMBERS[kind]
        if field.get("label") == "LABEL_REPEATED":
            made.label = FieldDescriptorProto.LABEL_REPEATED
        elif isinstance(default := defaults.get(name), str | int | float) and kind != "BYTES":
            made.default_value = str(default).lower() if isinstance(default, bool) else str(default)
    pool = DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName("geminga.spark.registered.Value")


def message_type(descriptor: Descriptor, path: str = "", within: tuple[str, ...] = ()) -> StructType:
    """The columns of a message; raises SchemaError for one that holds itself."""
    if descriptor.full_name in within:
        raise SchemaError(f"{path}: {descriptor.full_name} holds itself; Spark has no such type: use schemaMode=raw")
    within = (*within, descriptor.full_name)
    fields = []
    for field in descriptor.fields:
        fields.append(StructField(field.name, _field_type(field, f"{path}.{field.name}".lstrip("."), within)))
    return StructType(fields)


def _field_type(field: FieldDescriptor, path: str, within: tuple[str, ...]) -> DataType:
    inner = field.message_type
    if inner is None:
        one = _TYPES[field.type]
    elif inner.GetOptions().map_entry:
        key, value = inner.fields
        return MapType(_field_type(key, path, within), _field_type(value, path, within))
    elif inner.full_name == _TIMESTAMP:
        one = TimestampType()
    else:
        one = message_type(inner, path, within)
    return ArrayType(one) if field.is_repeated else one


def message_reader(info: SchemaInfo) -> Callable[[bytes], dict[str, Any]]:
    """What makes fields of a payload; raises SchemaError, and what it returns DecodeError."""
    descriptor = descriptor_of(info)
    parse = GetMessageClass(descriptor).FromString
    fields = _fields(descriptor, has_presence=info.type is not SchemaType.PROTOBUF)
    return lambda payload: fields(parse(payload))


def _fields(descriptor: Descriptor, *, has_presence: bool = True) -> Callable[[Message], dict[str, Any]]:
    always: list[tuple[str, Convert]] = []
    at_times: list[tuple[str, Convert]] = []
    for field in descriptor.fields:
        may_miss = has_presence and field.has_presence and not field.is_repeated
        (at_times if may_miss else always).append((field.name, _converter(field)))

    def read(message: Message) -> dict[str, Any]:
        found = {name: convert(getattr(message, name)) for name, convert in always}
        for name, convert in at_times:
            if message.HasField(name):
                found[name] = convert(getattr(message, name))
        return found

    return read


def _converter(field: FieldDescriptor) -> Convert:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, value = (_single(one) for one in inner.fields)
        return lambda found: [(key(one), value(found[one])) for one in found]
    single = _single(field)
    return (lambda found: [single(one) for one in found]) if field.is_repeated else single


def _single(field: FieldDescriptor) -> Convert:
    inner, enum = field.message_type, field.enum_type
    if enum is not None:
        names = {value.number: value.name for value in list(enum.values)[::-1]}
        return lambda number: names.get(number, str(number))
    if inner is None:
        return lambda value: value
    if inner.full_name == _TIMESTAMP:
        return lambda found: found.seconds * _MICROS + found.nanos // 1000
    # Only when it is needed: a message may hold itself where no column is asked for.
    made: list[Callable[[Message], dict[str, Any]]] = []

    def read(message: Message) -> dict[str, Any]:
        if not made:
            made.append(_fields(inner))
        return made[0](message)

    return read
