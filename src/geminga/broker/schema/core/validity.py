"""Whether a schema is one at all, before it is compared or stored."""

from __future__ import annotations

import json
from typing import Final

from geminga.broker.schema.core.avro import AvroDefinitionError, parse_definition
from geminga.wire.pulsar.protobuf_definition import root_message_name
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, key_value_parts

#: What the official C++ and Python clients send as the definition of types that have none.
NO_DEFINITION: Final = (b"", b"null", b'""')
#: Types of Jackson's JSON Schema, in which old clients described JSON messages.
_JSON_SCHEMA_TYPES: Final = frozenset(
    ("object", "array", "string", "number", "integer", "boolean", "any", "null", "binary")
)


def why_invalid(info: SchemaInfo) -> str:
    """Empty for a valid schema; otherwise what is wrong with it."""
    kind = info.type
    if kind in (SchemaType.AUTO_CONSUME, SchemaType.EXTERNAL):
        return f"schema {kind.name} is not a concrete schema type"
    try:
        if kind is SchemaType.KEY_VALUE:
            parts = key_value_parts(info)
            reason = why_invalid(parts.key) or why_invalid(parts.value)
        elif kind is SchemaType.PROTOBUF_NATIVE:
            root_message_name(info.schema)
            reason = ""
        elif kind.is_avro_based:
            reason = _why_no_definition(info)
        else:
            reason = "" if info.schema in NO_DEFINITION else f"it has none, but {len(info.schema)} bytes were given"
    except ValueError as error:
        reason = str(error)
    return f"invalid definition of a {kind.name} schema: {reason}" if reason else ""


def _no_constant(name: str) -> None:
    raise AvroDefinitionError(f"not JSON: {name} is no value of it")


def json_schema_id(definition: bytes) -> str | None:
    """The id of a definition in JSON Schema, as old clients sent it (empty without one); None for anything else."""
    try:
        value = json.loads(definition.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("type") not in _JSON_SCHEMA_TYPES:
        return None
    return str(value.get("id", ""))


def _why_no_definition(info: SchemaInfo) -> str:
    try:
        declared = parse_definition(info.schema)
        # NaN and Infinity are read here, and by no client of another make: none could use the topic.
        json.loads(info.schema.decode(), parse_constant=_no_constant)
    except AvroDefinitionError as error:
        if info.type is SchemaType.JSON and json_schema_id(info.schema) is not None:
            return ""
        return str(error)
    if info.type is SchemaType.AVRO and declared.kind == "union":
        return "a union can not be the whole schema"
    return ""
