"""Avro schema definitions: JSON text -> a tree of types, by the Avro 1.12 specification ("Schema Declaration").

As Pulsar parses them: default values are not checked against their types; attributes that the specification does not
know, logical types among them, are kept by :func:`canonical_form` and mean nothing otherwise.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
#: Types nested deeper than this are refused: both walking and encoding them recurse.
DEPTH_MAX: Final = 128

_RECORDS: Final = ("record", "error")
_NAMED: Final = (*_RECORDS, "enum", "fixed")
#: With the dollar that names of nested Java classes have, and that Pulsar takes.
_NAME: Final = re.compile(r"(?!\d)[\w$]+\Z")

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


class AvroDefinitionError(ValueError):
    """Not an Avro schema; the text says where and why."""


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    has_default: bool


@dataclass(slots=True, eq=False)
class AvroType:
    """One type; records may refer to themselves, so types compare by identity."""

    #: A primitive's name, or one of record, enum, fixed, array, map, union.
    kind: str
    #: Of a named type: with its namespace.
    full_name: str = ""
    #: Of a named type: other full names it goes by.
    aliases: tuple[str, ...] = ()
    #: Of a record.
    fields: tuple[AvroField, ...] = ()
    #: Of an enum.
    symbols: tuple[str, ...] = ()
    has_enum_default: bool = False
    #: Of a fixed, bytes.
    size: int = 0
    #: The element of an array, the value of a map.
    items: AvroType | None = None
    #: Of a union.
    branches: tuple[AvroType, ...] = ()

    @property
    def name(self) -> str:
        """Without its namespace."""
        return self.full_name.rpartition(".")[2]


def load_json(definition: bytes) -> JsonValue:
    """The definition as JSON. Raises AvroDefinitionError."""
    try:
        value: JsonValue = json.loads(definition.decode())
    except (ValueError, RecursionError) as error:
        raise AvroDefinitionError(f"not JSON: {str(error) or type(error).__name__}") from error
    return value


def parse_definition(definition: bytes) -> AvroType:
    """The type that a definition declares. Raises AvroDefinitionError."""
    value = load_json(definition)
    if isinstance(value, str) and value not in PRIMITIVES:
        raise AvroDefinitionError(f"unknown type {value!r}")
    return _Parser().parse(value, "", 0)


class _Parser:
    """The names declared so far."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, AvroType] = {}

    def parse(self, value: JsonValue, namespace: str, depth: int) -> AvroType:
        """One type; ``namespace`` encloses it."""
        if depth > DEPTH_MAX:
            raise AvroDefinitionError(f"types nested deeper than {DEPTH_MAX}")
        if isinstance(value, str):
            return self._reference(value, namespace)
        if isinstance(value, list):
            return self._union(value, namespace, depth)
        if not isinstance(value, dict):
            raise AvroDefinitionError(f"a type is a text, a list or an object, not {value!r}")
        kind = value.get("type")
        if isinstance(kind, (dict, list)):
            return self.parse(kind, namespace, depth + 1)
        if kind in _RECORDS:
            return self._record(value, namespace, depth)
        if kind == "enum":
            return self._enum(value, namespace)
        if kind == "fixed":
            return self._fixed(value, namespace)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            if inner not in value:
                raise AvroDefinitionError(f"{kind} without {inner!r}")
            return AvroType(str(kind), items=self.parse(value[inner], namespace, depth + 1))
        if isinstance(kind, str):
            return self._reference(kind, namespace)
        raise AvroDefinitionError(f"no type: {_short(value)}")

    def _reference(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full_name = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full_name) or self._names.get(name)
        if found is None:
            raise AvroDefinitionError(f"unknown type {name!r}")
        return found

    def _union(self, value: list[JsonValue], namespace: str, depth: int) -> AvroType:
        branches = tuple(self.parse(branch, namespace, depth + 1) for branch in value)
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise AvroDefinitionError("a union within a union")
            key = branch.full_name or branch.kind
            if key in seen:
                raise AvroDefinitionError(f"{key} twice in a union")
            seen.add(key)
        return AvroType("union", branches=branches)

    def _declare(self, value: dict[str, JsonValue], namespace: str, kind: str) -> tuple[AvroType, str]:
        full_name = qualified_name(value, namespace)
        for part in full_name.split("."):
            if not _NAME.match(part):
                raise AvroDefinitionError(f"{full_name!r} is no name of a type")
        if full_name in self._names or full_name in PRIMITIVES:
            raise AvroDefinitionError(f"{full_name} is declared twice")
        own = full_name.rpartition(".")[0]
        aliases = tuple(alias if "." in alias or not own else f"{own}.{alias}" for alias in _texts(value, "aliases"))
        declared = self._names[full_name] = AvroType(kind, full_name, aliases)
        return declared, own

    def _record(self, value: dict[str, JsonValue], namespace: str, depth: int) -> AvroType:
        record, own = self._declare(value, namespace, "record")
        declared = value.get("fields")
        if not isinstance(declared, list):
            raise AvroDefinitionError(f"record {record.full_name} without a list of fields")
        fields: dict[str, AvroField] = {}
        for item in declared:
            if not isinstance(item, dict) or "type" not in item:
                raise AvroDefinitionError(f"a field of {record.full_name} without a type: {_short(item)}")
            name = item.get("name")
            if not isinstance(name, str) or not _NAME.match(name):
                raise AvroDefinitionError(f"{name!r} is no name of a field of {record.full_name}")
            if name in fields:
                raise AvroDefinitionError(f"field {name} of {record.full_name} is declared twice")
            parsed = self.parse(item["type"], own, depth + 1)
            fields[name] = AvroField(name, _texts(item, "aliases"), parsed, "default" in item)
        record.fields = tuple(fields.values())
        return record

    def _enum(self, value: dict[str, JsonValue], namespace: str) -> AvroType:
        enum, _ = self._declare(value, namespace, "enum")
        symbols = value.get("symbols")
        if not isinstance(symbols, list):
            raise AvroDefinitionError(f"enum {enum.full_name} without a list of symbols")
        for symbol in symbols:
            if not isinstance(symbol, str) or not _NAME.match(symbol):
                raise AvroDefinitionError(f"{symbol!r} is no symbol of enum {enum.full_name}")
        enum.symbols = tuple(str(symbol) for symbol in symbols)
        if len(set(enum.symbols)) != len(enum.symbols):
            raise AvroDefinitionError(f"a symbol of enum {enum.full_name} is declared twice")
        default = value.get("default")
        if default is not None and default not in enum.symbols:
            raise AvroDefinitionError(f"the default {default!r} of enum {enum.full_name} is none of its symbols")
        enum.has_enum_default = default is not None
        return enum

    def _fixed(self, value: dict[str, JsonValue], namespace: str) -> AvroType:
        fixed, _ = self._declare(value, namespace, "fixed")
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise AvroDefinitionError(f"fixed {fixed.full_name} needs a size of 0 or more bytes")
        fixed.size = size
        return fixed


def qualified_name(value: dict[str, JsonValue], namespace: str) -> str:
    """The full name of a named type's declaration. Raises AvroDefinitionError if it has none."""
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise AvroDefinitionError(f"{value.get('type')} without a name")
    if "." in name:
        return name
    given = value.get("namespace")
    space = given if isinstance(given, str) else namespace
    return f"{space}.{name}" if space else name


def canonical_form(definition: bytes) -> str:
    """What two definitions have in common if Pulsar takes them for the same schema.

    Full names instead of namespaces; without documentation and aliases; attributes in one order, fields in theirs.
    Raises AvroDefinitionError.
    """
    parse_definition(definition)
    return json.dumps(_canonical(load_json(definition), ""), sort_keys=True, separators=(",", ":"))


def _canonical(value: JsonValue, namespace: str) -> JsonValue:
    if isinstance(value, str):
        return value if value in PRIMITIVES or "." in value or not namespace else f"{namespace}.{value}"
    if isinstance(value, list):
        return [_canonical(branch, namespace) for branch in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    rest = {key: item for key, item in value.items() if key not in ("doc", "aliases", "namespace")}
    if kind in _NAMED:
        full_name = qualified_name(value, namespace)
        rest["name"] = full_name
        fields = value.get("fields")
        if isinstance(fields, list):
            own = full_name.rpartition(".")[0]
            rest["fields"] = [_canonical_field(item, own) for item in fields]
        if kind == "enum" and rest.get("default") is None:
            rest.pop("default", None)
        return rest
    if kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        rest[inner] = _canonical(value[inner], namespace)
        return rest
    rest["type"] = _canonical(kind, namespace)
    return rest["type"] if len(rest) == 1 else rest


def _canonical_field(item: JsonValue, namespace: str) -> JsonValue:
    if not isinstance(item, dict):
        return item
    rest = {key: value for key, value in item.items() if key not in ("doc", "aliases")}
    rest["type"] = _canonical(item["type"], namespace)
    if str(rest.get("order")).lower() == "ascending":
        # What holds where nothing is said.
        del rest["order"]
    return rest


def _texts(value: dict[str, JsonValue], key: str) -> tuple[str, ...]:
    found = value.get(key)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise AvroDefinitionError(f"{key} must be a list of texts")
    return tuple(str(item) for item in found)


def _short(value: JsonValue) -> str:
    return json.dumps(value)[:120]
