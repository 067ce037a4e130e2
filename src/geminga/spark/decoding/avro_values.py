"""Decoded values of AVRO and JSON schemas as what Arrow takes: times, base64, and unions of several types.

A value of such a union becomes a struct with the member it is. Which one that is says the class of the value; two
members whose values have one class can not be told apart, which is an error when the query begins to read.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from geminga.spark.decoding.avro_names import short_name, with_full_names
from geminga.spark.decoding.avro_types import at, logical_of
from geminga.spark.decoding.exact import shown, whole
from geminga.spark.source_rules.errors import SchemaError
from geminga.wire.avro_exact import TIMES

#: A decoded value -> what Arrow takes.
Convert = Callable[[Any], Any]


def as_it_is(value: object) -> object:
    """Nothing to convert."""
    return value


def _of_whole(convert: Callable[[int], Any]) -> Convert:
    return lambda value: convert(whole(value))


def _base64(value: object) -> bytes:
    if type(value) is not str:
        raise ValueError(f"{shown(value)} is no base64")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise ValueError(f"{shown(value)} is no base64: {error}") from None


def _text(value: object) -> bytes:
    if type(value) is not str:
        raise ValueError(f"{shown(value)} is no text")
    return value.encode()


def _fixed(size: int, bytes_of: Convert) -> Convert:
    def convert(value: object) -> bytes:
        found: bytes = bytes_of(value)
        if len(found) != size:
            raise ValueError(f"{shown(value)} is {len(found)} bytes: expected {size}")
        return found

    return convert


def _uuid_of(convert: Convert) -> Convert:
    """Of 16 bytes, which no decoder makes a UUID of."""
    return lambda value: str(UUID(bytes=convert(value)))


def _number(value: object) -> Decimal:
    if type(value) not in (int, str, float, Decimal):
        raise ValueError(f"{shown(value)} is no decimal")
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"{shown(value)} is no decimal") from None


@dataclass(frozen=True, slots=True)
class _Form:
    """What a decoder gives: how simple and logical types are converted, and of what class their values are."""

    simple: Mapping[str, Convert]
    logical: Mapping[str, Convert]
    classes: Mapping[str, tuple[type, ...]]
    #: Records of a union with several come as (name, record).
    names_records: bool


_SIMPLE_CLASSES: Final[Mapping[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "string": (str,),
    "enum": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
    "error": (dict,),
}
#: Times that are numbers, as they travel.
_TIMES: Final[Mapping[str, Convert]] = {name: _of_whole(convert) for name, convert in TIMES.items()}
#: As :func:`load_json` gives it: times are numbers, bytes are base64.
_JSON: Final = _Form(
    simple=dict.fromkeys(("bytes", "fixed"), _base64),
    logical={**_TIMES, "decimal": _number},
    classes={
        **_SIMPLE_CLASSES,
        **dict.fromkeys(("bytes", "fixed"), (str,)),
        **dict.fromkeys(("float", "double", "decimal"), (float, Decimal, int)),
    },
    names_records=False,
)
#: The same, but for bytes, which are text in UTF-8.
_JSON_OF_TEXTS: Final = replace(_JSON, simple=dict.fromkeys(("bytes", "fixed"), _text))
#: As fastavro gives it.
_AVRO: Final = _Form(
    simple={},
    logical={"uuid": str},
    classes={
        **_SIMPLE_CLASSES,
        **dict.fromkeys(("bytes", "fixed"), (bytes,)),
        "date": (date,),
        **dict.fromkeys(("time-millis", "time-micros"), (time,)),
        **dict.fromkeys(("timestamp-millis", "timestamp-micros"), (datetime,)),
        **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), (datetime,)),
        "decimal": (Decimal,),
        "uuid": (UUID,),
    },
    names_records=True,
)


def load_json(payload: bytes | str) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value whose numbers are what was written; raises ValueError."""
    try:
        return json.loads(payload, parse_float=Decimal)
    except InvalidOperation:
        raise ValueError("a number beyond all columns") from None


def _of_class(value: Any, kind: type, name: str) -> Any:  # noqa: ANN401 - a value of that class
    if type(value) is not kind:
        raise ValueError(f"{shown(value)} ({type(value).__name__}) is no {name}")
    return value


def json_converter(definition: object, *, are_bytes_text: bool = False) -> Convert:
    """For values of a JSON schema, whose bytes are base64 or, from some clients, text; raises SchemaError."""
    return _Converters(_JSON_OF_TEXTS if are_bytes_text else _JSON).of(with_full_names(definition), "")


def avro_converter(definition: object) -> Convert:
    """For values of an AVRO schema; :func:`as_it_is` if there is nothing to do. Raises SchemaError."""
    return _Converters(_AVRO).of(with_full_names(definition), "")


class _Converters:
    """Of one definition."""

    def __init__(self, form: _Form) -> None:
        self._form = form
        self._named: dict[str, tuple[object, Convert]] = {}

    def of(self, definition: object, path: str) -> Convert:
        """Raises SchemaError, which names the field."""
        if isinstance(definition, list):
            return self._union(definition, path)
        if isinstance(definition, str):
            known = self._named.get(definition)
            return known[1] if known is not None else self._form.simple.get(definition, as_it_is)
        assert isinstance(definition, Mapping)
        kind, logical = definition["type"], logical_of(definition)
        if logical in self._form.logical and (logical, kind) != ("uuid", "fixed"):
            return self._remember(definition, self._form.logical[logical])
        if kind == "array":
            item = self.of(definition["items"], f"{path}[]")
            return (
                as_it_is if item is as_it_is else lambda value: [item(one) for one in _of_class(value, list, "array")]
            )
        if kind == "map":
            inner = self.of(definition["values"], f"{path}[]")
            if inner is as_it_is:
                return inner
            return lambda value: [(key, inner(one)) for key, one in _of_class(value, dict, "map").items()]
        if kind in ("record", "error"):
            return self._record(definition, path)
        bytes_of = self._form.simple.get("fixed") if kind == "fixed" else None
        convert = self.of(kind, path) if bytes_of is None else _fixed(definition["size"], bytes_of)
        return self._remember(definition, _uuid_of(convert) if (logical, kind) == ("uuid", "fixed") else convert)

    def _remember(self, definition: Mapping[str, Any], convert: Convert) -> Convert:
        if "name" in definition:
            self._named[definition["name"]] = (definition, convert)
        return convert

    def _record(self, definition: Mapping[str, Any], path: str) -> Convert:
        fields: list[tuple[str, Convert]] = []

        def record(value: Mapping[str, Any]) -> dict[str, Any]:
            found = {}
            for name, convert in fields:
                given = _of_class(value, dict, "record").get(name)
                try:
                    if given is not None:
                        found[name] = convert(given)
                except (ValueError, OverflowError) as error:
                    raise ValueError(f"{name}: {error}") from error
            return found

        self._remember(definition, record)
        for field in definition["fields"]:
            fields.append((field["name"], self.of(field["type"], f"{path}.{field['name']}".lstrip("."))))
        # JSON may have nulls where there can be none, and fields that the schema does not know.
        is_plain = self._form is _AVRO and all(convert is as_it_is for _, convert in fields)
        return as_it_is if is_plain else record

    def _union(self, branches: list[object], path: str) -> Convert:
        others = [branch for branch in branches if branch != "null"]
        if len(others) < 2 or set(map(str, others)) in ({"int", "long"}, {"float", "double"}):
            inner = self.of(others[-1], path) if others else as_it_is
            return inner if inner is as_it_is else lambda value: None if value is None else inner(value)
        return self._members(others, path)

    def _members(self, branches: list[object], path: str) -> Convert:
        """A struct of a value: the member that it is."""
        records = [branch for branch in branches if self._kind(branch) in ("record", "error")]
        are_named = self._form.names_records and len(records) > 1
        of_class: dict[object, tuple[str, Convert]] = {}
        for index, branch in enumerate(branches):
            member = (f"member{index}", self.of(branch, f"{path}.member{index}"))
            classes: tuple[object, ...] = self._form.classes[self._kind(branch)]
            if are_named and branch in records:
                classes = (self._name(branch),)
            for one in classes:
                if one in of_class:
                    raise SchemaError(
                        f"{at(path)}a union of several types of which {of_class[one][0]} and {member[0]} can not be "
                        "told apart by their values; use schemaMode=raw"
                    )
                of_class[one] = member

        def convert(value: object) -> dict[str, Any] | None:
            if value is None:
                return None
            key: object = type(value)
            if isinstance(value, tuple):
                key, value = short_name(value[0]), value[1]
            if key not in of_class:
                raise ValueError(f"a {type(value).__name__} is none of the types of a union")
            name, inner = of_class[key]
            return {name: inner(value)}

        return convert

    def _name(self, branch: object) -> str:
        """Without a namespace: what was written with another one is read by this as well."""
        return short_name(branch if isinstance(branch, str) else branch["name"])  # type: ignore[index]

    def _kind(self, branch: object) -> str:
        """The type of a branch as the form's classes have it."""
        if isinstance(branch, str):
            known = self._named.get(branch)
            return branch if known is None else self._kind(known[0])
        assert isinstance(branch, Mapping)
        logical = logical_of(branch)
        is_named = logical in self._form.classes and (logical, branch["type"]) != ("uuid", "fixed")
        return logical if is_named else self._kind(branch["type"])
