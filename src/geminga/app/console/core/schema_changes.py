"""Versions of a schema as they read, and what is different between two of them."""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from geminga.broker.schema.core.avro import JsonValue

#: Lines of a definition above which two of them are not compared line by line: it takes their product.
COMPARED_LINES_MAX: Final = 1_000
#: Fields of a definition, and how deep they may be nested.
FIELDS_MAX: Final = 5_000
DEPTH_MAX: Final = 64
#: Characters of a field's path, and of a definition that is taken apart.
PATH_CHARACTERS_MAX: Final = 1_000
READ_CHARACTERS_MAX: Final = 1 << 20
#: Characters of a definition that a page shows.
DEFINITION_CHARACTERS: Final = 100_000
#: Types whose definition is an Avro schema.
_AVRO_BASED: Final = frozenset({"AVRO", "JSON", "PROTOBUF"})
_NO_DEFAULT: Final = object()


class SchemaField(NamedTuple):
    """A field of a definition: what readers and writers agree about."""

    type: str
    #: As JSON; empty: none.
    default: str = ""


class Change(NamedTuple):
    """What is different about one field."""

    #: ``added``, ``removed``, ``type`` or ``default``.
    kind: str
    field: str
    before: str
    after: str


class TextLine(NamedTuple):
    """A line of a comparison of texts."""

    #: ``+``, ``-`` or a blank.
    sign: str
    text: str


class Difference(NamedTuple):
    """Between two versions."""

    #: None: their definitions have no fields that could be compared.
    changes: tuple[Change, ...] | None
    #: Of the definitions, where there are no fields.
    lines: tuple[TextLine, ...] = ()
    #: About the whole: another type, other properties, or why nothing can be compared.
    remarks: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        """Whether they are alike."""
        return not self.changes and not self.lines and not self.remarks


class UnreadableSchemaError(ValueError):
    """A definition whose fields can not be told; the text says why."""


def readable(document: Mapping[str, Any]) -> str:
    """The definition of a version as people read it; empty for primitive types, which have none."""
    text = str(document.get("data") or "")
    if len(text) > READ_CHARACTERS_MAX:
        return text[:DEFINITION_CHARACTERS]
    if str(document.get("type")) == "PROTOBUF_NATIVE":
        try:
            lines = [f"{name}: {field.type}" for name, field in fields_of(document).items()]
        except UnreadableSchemaError:
            lines = []
        if lines:
            return "\n".join(lines)[:DEFINITION_CHARACTERS]
    try:
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        pass  # shown as it is
    return text[:DEFINITION_CHARACTERS]


def fields_of(document: Mapping[str, Any]) -> dict[str, SchemaField]:
    """By path: ``address.city``. Raises UnreadableSchemaError."""
    kind, data = str(document.get("type")), str(document.get("data") or "")
    if len(data) > READ_CHARACTERS_MAX:
        raise UnreadableSchemaError(f"the definition has more than {READ_CHARACTERS_MAX:,} characters")
    try:
        return _bounded(_fields(kind, json.loads(data) if data else "", document.get("properties") or {}))
    except UnreadableSchemaError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, DecodeError) as error:
        raise UnreadableSchemaError(f"the definition can not be read: {str(error) or type(error).__name__}") from error


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference:
    """What changed from one version to another."""
    remarks = [*_remarks(before, after)]
    if before.get("type") == after.get("type"):
        try:
            return Difference(tuple(_changes(fields_of(before), fields_of(after))), (), tuple(remarks))
        except UnreadableSchemaError:
            pass  # by their texts
    old, new = readable(before).splitlines(), readable(after).splitlines()
    if max(len(old), len(new)) > COMPARED_LINES_MAX:
        remarks.append(f"Definitions of more than {COMPARED_LINES_MAX} lines are not compared.")
        return Difference(None, (), tuple(remarks))
    return Difference(None, tuple(_text_lines(old, new)), tuple(remarks))


def _remarks(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if before.get("type") != after.get("type"):
        yield f"The type changed from {before.get('type')} to {after.get('type')}."
    old, new = before.get("properties") or {}, after.get("properties") or {}
    for name in sorted({*old, *new}):
        if old.get(name) == new.get(name):
            continue
        if name not in old:
            yield f"Property {name} was added: {new[name]}."
        elif name not in new:
            yield f"Property {name} was removed; it was {old[name]}."
        else:
            yield f"Property {name} changed from {old[name]} to {new[name]}."


def _changes(before: Mapping[str, SchemaField], after: Mapping[str, SchemaField]) -> Iterator[Change]:
    """In the order of the newer definition, what was removed last."""
    for name, new in after.items():
        old = before.get(name)
        if old is None:
            yield Change("added", name, "", new.type + (f" = {new.default}" if new.default else ""))
            continue
        if old.type != new.type:
            yield Change("type", name, old.type, new.type)
        if old.default != new.default:
            yield Change("default", name, old.default or "none", new.default or "none")
    for name, old in before.items():
        if name not in after:
            yield Change("removed", name, old.type, "")


def _text_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[TextLine]:
    for line in difflib.unified_diff(old, new, n=3, lineterm=""):
        if not line.startswith(("+++", "---", "@@")):
            yield TextLine(line[:1], line[1:])


# ---- fields


def _bounded(found: Iterator[tuple[str, SchemaField]]) -> dict[str, SchemaField]:
    fields: dict[str, SchemaField] = {}
    for name, field in found:
        if len(fields) >= FIELDS_MAX:
            raise UnreadableSchemaError(f"the definition has more than {FIELDS_MAX} fields")
        if len(name) > PATH_CHARACTERS_MAX:
            raise UnreadableSchemaError(f"the path of a field has more than {PATH_CHARACTERS_MAX} characters")
        fields[name] = field
    return fields


def _fields(kind: str, definition: Any, properties: Mapping[str, Any]) -> Iterator[tuple[str, SchemaField]]:  # noqa: ANN401
    if kind in _AVRO_BASED:
        yield from _avro_fields(definition, "", 0)
    elif kind == "PROTOBUF_NATIVE":
        yield from _protobuf_fields(definition)
    elif kind == "KEY_VALUE":
        for side in ("key", "value"):
            inner = str(properties.get(f"{side}.schema.type", "BYTES"))
            if inner not in (*_AVRO_BASED, "PROTOBUF_NATIVE"):
                yield side, SchemaField(inner)
                continue
            for name, field in _fields(inner, definition[side], {}):
                yield f"{side}.{name}", field
    else:
        raise UnreadableSchemaError(f"a schema of type {kind} has no fields")


def _avro_fields(definition: JsonValue, path: str, depth: int) -> Iterator[tuple[str, SchemaField]]:
    """Those of a record, and of the records within it where they are declared."""
    if depth > DEPTH_MAX:
        raise UnreadableSchemaError(f"the definition is nested deeper than {DEPTH_MAX}")
    if isinstance(definition, list):
        for branch in definition:
            yield from _avro_fields(branch, path, depth + 1)
        return
    if not isinstance(definition, dict):
        if not depth:
            yield path or "(value)", SchemaField(str(definition))
        return
    kind = definition.get("type")
    if kind in ("record", "error"):
        fields = definition.get("fields")
        if not isinstance(fields, list):
            raise UnreadableSchemaError("a record without a list of fields")
        for field in fields:
            if not isinstance(field, dict):
                raise UnreadableSchemaError("a field that is no object")
            name = f"{path}{field['name']}"
            default = field.get("default", _NO_DEFAULT)
            yield name, SchemaField(_type_text(field["type"], 0), "" if default is _NO_DEFAULT else json.dumps(default))
            yield from _avro_fields(field["type"], f"{name}.", depth + 1)
    elif isinstance(kind, (dict, list)):
        yield from _avro_fields(kind, path, depth + 1)
    elif kind == "array":
        yield from _avro_fields(definition.get("items"), f"{path.removesuffix('.')}[].", depth + 1)
    elif kind == "map":
        yield from _avro_fields(definition.get("values"), f"{path.removesuffix('.')}{{}}.", depth + 1)
    elif not depth:
        yield path or "(value)", SchemaField(_type_text(definition, 0))


def _type_text(definition: JsonValue, depth: int) -> str:
    """``null | string``, ``array of long``, ``record Address``, ``int (date)``."""
    if depth > DEPTH_MAX:
        raise UnreadableSchemaError(f"the definition is nested deeper than {DEPTH_MAX}")
    if isinstance(definition, str):
        return definition
    if isinstance(definition, list):
        return " | ".join(_type_text(branch, depth + 1) for branch in definition)
    if not isinstance(definition, dict):
        raise UnreadableSchemaError("a type that is no text, list or object")
    kind = definition.get("type")
    if isinstance(kind, (dict, list)):
        return _type_text(kind, depth + 1)
    if kind == "array":
        return f"array of {_type_text(definition.get('items'), depth + 1)}"
    if kind == "map":
        return f"map of {_type_text(definition.get('values'), depth + 1)}"
    text = f"{kind} {definition['name']}" if "name" in definition else str(kind)
    if kind == "enum":
        text += f" ({', '.join(map(str, definition.get('symbols') or []))})"  # type: ignore[arg-type]
    elif kind == "fixed":
        text += f" ({definition.get('size')} bytes)"
    logical = definition.get("logicalType")
    if logical == "decimal":
        logical = f"decimal, precision {definition.get('precision')}, scale {definition.get('scale', 0)}"
    return f"{text} ({logical})" if logical else text


def _protobuf_fields(definition: Mapping[str, Any]) -> Iterator[tuple[str, SchemaField]]:
    """Of all messages that the descriptors have."""
    files = FileDescriptorSet.FromString(base64.b64decode(definition["fileDescriptorSet"], validate=True))
    for file in files.file:
        prefix = f"{file.package}." if file.package else ""
        for message in file.message_type:
            yield from _message_fields(message, f"{prefix}{message.name}", 0)


def _message_fields(message: DescriptorProto, path: str, depth: int) -> Iterator[tuple[str, SchemaField]]:
    if depth > DEPTH_MAX:
        raise UnreadableSchemaError(f"the definition is nested deeper than {DEPTH_MAX}")
    for field in message.field:
        kind = (
            field.type_name.removeprefix(".")
            or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        )
        label = FieldDescriptorProto.Label.Name(field.label).removeprefix("LABEL_").lower()
        yield f"{path}.{field.name}", SchemaField(f"{label} {kind} = {field.number}", field.default_value)
    for inner in message.nested_type:
        yield from _message_fields(inner, f"{path}.{inner.name}", depth + 1)
