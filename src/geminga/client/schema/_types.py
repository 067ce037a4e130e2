"""Python's types as Avro types: for each one its definition, and the way of its values to Avro or JSON and back.

==========================  ==========================================  ======================
Python                      Avro                                        in JSON
==========================  ==========================================  ======================
bool, float, str            boolean, double, string                     the same
int                         long                                        number
``Int32``, ``Float32``      int, float                                  number
bytes                       bytes                                       text in UTF-8
list[T], dict[str, T]       array, map                                  list, object
tuple[T, ...]               array                                       list
T | None                    union with null                             null
A | B                       union                                       what fits first
Enum                        enum of the members' names                  the name
datetime (with time zone)   long, timestamp-micros                      microseconds since 1970
date                        int, date                                   days since 1970
time                        long, time-micros                           microseconds of the day
UUID                        string, uuid                                text
Decimal                     bytes, decimal(38, 18) or ``AvroDecimal``   text
Literal["a", "b"]           string, or long of ints                     the same
dataclass, pydantic model   record                                      object
NewType, ``type A = ...``   of what it stands for                       the same
==========================  ==========================================  ======================

In JSON, bytes and enums are as the official Python client has them.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema._base import SchemaSerializationError
from geminga.client.schema._scalars import (
    AvroType,
    DecimalAnnotation,
    DecimalCodec,
    EnumCodec,
    Json,
    TypeCodec,
    chosen_codec,
    digits_among,
    literal_codec,
    plain_codec,
    with_digits,
)

#: Types nested deeper than this are refused: values are walked recursively.
DEPTH_MAX: Final = 100


class ArrayCodec(TypeCodec):
    """A list (or any other sequence but text) of one type; loaded as a list."""

    union_key = "array"

    def __init__(self, items: TypeCodec) -> None:
        self._items = items

    def definition(self, declared: set[str]) -> Json:
        """With the items' definition."""
        return {"type": "array", "items": self._items.definition(declared)}

    def matches(self, value: object) -> bool:
        """Any sequence but text."""
        return isinstance(value, Sequence) and not isinstance(value, str | bytes)

    def dump(self, value: Any, is_json: bool) -> list[Any]:  # noqa: ANN401
        """Each item."""
        dump = self._items.dump
        return [_at(index, dump, item, is_json) for index, item in enumerate(super().dump(value, is_json))]

    def load(self, value: Any, is_json: bool) -> Sequence[Any]:  # noqa: ANN401
        """Each item."""
        load = self._items.load
        return [_at(index, load, item, is_json) for index, item in enumerate(super().load(value, is_json))]


class TupleCodec(ArrayCodec):
    """The same, loaded as a tuple."""

    def load(self, value: Any, is_json: bool) -> Sequence[Any]:  # noqa: ANN401
        """Each item."""
        return tuple(super().load(value, is_json))


class MapCodec(TypeCodec):
    """A dict with text as keys."""

    union_key = "map"

    def __init__(self, values: TypeCodec) -> None:
        self._values = values

    def definition(self, declared: set[str]) -> Json:
        """With the values' definition."""
        return {"type": "map", "values": self._values.definition(declared)}

    def matches(self, value: object) -> bool:
        """Any mapping; keys are looked at when it is dumped."""
        return isinstance(value, Mapping)

    def dump(self, value: Any, is_json: bool) -> dict[str, Any]:  # noqa: ANN401
        """Each value. Raises SchemaSerializationError."""
        dump = self._values.dump
        found: Mapping[object, object] = super().dump(value, is_json)
        for key in found:
            if not isinstance(key, str):
                raise SchemaSerializationError(f"keys of maps are str, not {type(key).__name__}")
        return {str(key): _at(key, dump, item, is_json) for key, item in found.items()}

    def load(self, value: Any, is_json: bool) -> dict[str, Any]:  # noqa: ANN401
        """Each value."""
        load = self._values.load
        return {key: _at(key, load, item, is_json) for key, item in super().load(value, is_json).items()}


class UnionCodec(TypeCodec):
    """A union; ``T | None`` is the usual one."""

    union_key = "union"

    def __init__(self, branches: Sequence[TypeCodec]) -> None:
        keys = [branch.union_key for branch in branches]
        if len(set(keys)) != len(keys):
            raise InvalidConfiguration(f"a union of {', '.join(keys)}: two of them are one type of Avro")
        self.branches = tuple(branches)
        # Two records can not be told apart when they come back, unless Avro says which it was.
        self._records = sum(isinstance(branch, RecordCodec) for branch in branches)

    def definition(self, declared: set[str]) -> Json:
        """The branches."""
        return [branch.definition(declared) for branch in self.branches]

    def matches(self, value: object) -> bool:
        """Any branch."""
        return any(branch.matches(value) for branch in self.branches)

    def dump(self, value: Any, is_json: bool) -> Any:  # noqa: ANN401
        """By the first branch that takes it. Raises SchemaSerializationError."""
        for branch in self.branches:
            if branch.matches(value):
                dumped = branch.dump(value, is_json)
                if self._records > 1 and not is_json and isinstance(branch, RecordCodec):
                    return (branch.union_key, dumped)
                return dumped
        wanted = ", ".join(branch.union_key for branch in self.branches)
        raise SchemaSerializationError(f"expected one of {wanted}, not {type(value).__name__}: {value!r:.100}")

    def default_form(self, value: Any) -> Any:  # noqa: ANN401
        """By the first branch that takes it."""
        for branch in self.branches:
            if branch.matches(value):
                return branch.default_form(value)
        return super().default_form(value)

    def load(self, value: Any, is_json: bool) -> Any:  # noqa: ANN401
        """By the branch that Avro names, or the first that takes it."""
        if isinstance(value, tuple) and len(value) == 2:
            for branch in self.branches:
                if branch.union_key == value[0]:
                    return branch.load(value[1], is_json)
            value = value[1]
        problem: SchemaSerializationError | None = None
        for branch in self.branches:
            if branch.matches_loaded(value, is_json):
                try:
                    return branch.load(value, is_json)
                except SchemaSerializationError as error:
                    problem = problem or error
        wanted = ", ".join(branch.union_key for branch in self.branches)
        raise problem or SchemaSerializationError(f"{value!r:.100} is none of {wanted}")


@dataclass(slots=True)
class FieldCodec:
    """A field of a record."""

    name: str
    type: TypeCodec
    #: Whether the definition has a default, and which; in JSON.
    has_default: bool = False
    default: Json = None


class RecordCodec(TypeCodec):
    """A record of any kind: a class whose values have its fields as attributes, made by :meth:`construct`."""

    def __init__(self, python_type: type, name: str, namespace: str = "") -> None:
        self.python_type = python_type
        self._name, self._namespace = name, namespace
        #: Full name.
        self.union_key = f"{namespace}.{name}" if namespace else name
        #: Filled after it was made: a record may hold itself.
        self.fields: list[FieldCodec] = []

    def construct(self, values: dict[str, Any]) -> Any:  # noqa: ANN401
        """A value of the class; raises what the class raises."""
        return self.python_type(**values)

    def definition(self, declared: set[str]) -> Json:
        """The fields; by name the second time."""
        if self.union_key in declared:
            return self.union_key
        declared.add(self.union_key)
        record: dict[str, Json] = {"type": "record", "name": self._name}
        if self._namespace:
            record["namespace"] = self._namespace
        fields: list[Json] = []
        for field in self.fields:
            item: dict[str, Json] = {"name": field.name}
            if field.has_default:
                item["default"] = field.default
            item["type"] = field.type.definition(declared)
            fields.append(item)
        record["fields"] = fields
        return record

    def matches(self, value: object) -> bool:
        """An instance of the class."""
        return isinstance(value, self.python_type)

    def matches_loaded(self, value: object, is_json: bool) -> bool:
        """An object of JSON, or a record of Avro."""
        return isinstance(value, dict)

    def dump(self, value: Any, is_json: bool) -> dict[str, Any]:  # noqa: ANN401
        """Each field. Raises SchemaSerializationError."""
        super().dump(value, is_json)
        dumped = {}
        for field in self.fields:
            try:
                dumped[field.name] = field.type.dump(getattr(value, field.name), is_json)
            except SchemaSerializationError as error:
                raise SchemaSerializationError(f"{self._name}.{field.name}: {error}") from error
        return dumped

    def load(self, value: Any, is_json: bool) -> Any:  # noqa: ANN401
        """Each field that is there; the class has defaults for the others, or refuses.

        Raises SchemaSerializationError.
        """
        found: dict[str, Any] = super().load(value, is_json)
        values = {}
        for field in self.fields:
            if field.name in found:
                try:
                    values[field.name] = field.type.load(found[field.name], is_json)
                except SchemaSerializationError as error:
                    raise SchemaSerializationError(f"{self._name}.{field.name}: {error}") from error
        try:
            return self.construct(values)
        except (TypeError, ValueError) as error:
            raise SchemaSerializationError(f"{self._name}: {error}") from error


def _at(place: object, convert: Any, value: object, is_json: bool) -> Any:  # noqa: ANN401
    try:
        return convert(value, is_json)
    except SchemaSerializationError as error:
        raise SchemaSerializationError(f"[{place!r}]: {error}") from error


class TypeReader:
    """Makes codecs of annotations; ``record_codec`` is asked for classes that are records."""

    def __init__(self) -> None:
        #: Records made so far: they may refer to themselves and to each other.
        self.records: dict[type, RecordCodec] = {}

    def record_of(self, python_type: type) -> RecordCodec | None:
        """The codec of a class that is a record; None for any other class."""
        raise AssertionError

    def codec_of(self, annotation: Any, depth: int = 0) -> TypeCodec:  # noqa: ANN401
        """The codec of an annotation. Raises InvalidConfiguration for what has no type in Avro."""
        if depth > DEPTH_MAX:
            raise InvalidConfiguration(f"types nested deeper than {DEPTH_MAX}")
        origin = get_origin(annotation)
        arguments = get_args(annotation)
        if origin is Annotated:
            chosen = next((item for item in arguments[1:] if isinstance(item, AvroType)), None)
            if chosen is not None:
                return chosen_codec(arguments[0], chosen)
            return self.codec_of(with_digits(arguments[0], digits_among(arguments[1:])), depth + 1)
        if origin is Literal:
            return literal_codec(arguments)
        if origin in (Union, types.UnionType):
            # null first, whatever the order in Python: as the official Python client declares what may be None.
            ordered = sorted(arguments, key=lambda branch: branch is not type(None))
            return UnionCodec([self.codec_of(branch, depth + 1) for branch in ordered])
        if origin in (list, Sequence):
            return ArrayCodec(self.codec_of(arguments[0], depth + 1))
        if origin is tuple and arguments[1:] == (Ellipsis,):
            return TupleCodec(self.codec_of(arguments[0], depth + 1))
        if origin in (dict, Mapping):
            if arguments[0] is not str:
                raise InvalidConfiguration(f"{annotation}: keys of maps are str")
            return MapCodec(self.codec_of(arguments[1], depth + 1))
        if isinstance(annotation, DecimalAnnotation):
            return DecimalCodec(annotation.digits)
        if isinstance(annotation, type):
            return self._class(annotation)
        if annotation is None:
            return plain_codec(type(None))
        # A NewType, and what ``type Name = ...`` gives.
        named = getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)
        if named is not None:
            return self.codec_of(named, depth + 1)
        raise InvalidConfiguration(f"{annotation!r} has no type in Avro")

    def _class(self, python_type: type) -> TypeCodec:
        if issubclass(python_type, enum.Enum):
            return EnumCodec(python_type)
        found: TypeCodec | None = self.records.get(python_type) or self.record_of(python_type)
        return found if found is not None else plain_codec(python_type)
