"""Python's types as Avro types: for each one its definition, and the way of its values to Avro or JSON and back.

==========================  ==========================================  ======================
Python                      Avro                                        in JSON
==========================  ==========================================  ======================
bool, float, str            boolean, double, string                     the same
int                         long                                        number
``Int32``, ``Float32``      int, float                                  number
bytes                       bytes                                       text in UTF-8
list[T], dict[str, T]       array, map                                  list, object
T | None                    union with null                             null
A | B                       union                                       what fits first
Enum                        enum of the members' names                  the name
datetime (with time zone)   long, timestamp-micros                      microseconds since 1970
date                        int, date                                   days since 1970
time                        long, time-micros                           microseconds of the day
UUID                        string, uuid                                text
dataclass, pydantic model   record                                      object
==========================  ==========================================  ======================

In JSON, bytes and enums are as the official Python client has them.
"""

from __future__ import annotations

import datetime as dt
import enum
import types
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Union, get_args, get_origin

from geminga.client._errors import InvalidConfiguration
from geminga.client.schema._base import SchemaSerializationError

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY: Final = dt.date(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_MIDNIGHT: Final = dt.datetime(1970, 1, 1)
#: Types nested deeper than this are refused: values are walked recursively.
DEPTH_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class AvroType:
    """Chooses the Avro type of a field: ``Annotated[int, AvroType("int")]``."""

    name: str


#: An int of 32 bits.
Int32 = Annotated[int, AvroType("int")]
#: A float of single precision.
Float32 = Annotated[float, AvroType("float")]


class TypeCodec:
    """One type. ``dump`` goes from Python to what the codec (fastavro or json) writes, ``load`` comes back."""

    #: The kind of Avro type, or a named type's full name: must differ within a union.
    union_key: str = ""

    def definition(self, declared: set[str]) -> Json:
        """The type in JSON; ``declared``: full names that may be referred to. Adds its own."""
        raise AssertionError

    def matches(self, value: object) -> bool:
        """Whether a Python value is of this type, seen from outside: decides which branch of a union it is."""
        raise AssertionError

    def matches_loaded(self, value: object, is_json: bool) -> bool:
        """The same of what the codec has read."""
        return self.matches(value)

    def dump(self, value: Any, is_json: bool) -> Any:  # noqa: ANN401
        """Raises SchemaSerializationError for a value that does not fit."""
        if not self.matches(value):
            raise SchemaSerializationError(f"{self.union_key} takes no {type(value).__name__}: {value!r:.100}")
        return value

    def load(self, value: Any, is_json: bool) -> Any:  # noqa: ANN401
        """Raises SchemaSerializationError for a value that does not fit."""
        if not self.matches_loaded(value, is_json):
            raise SchemaSerializationError(f"{value!r:.100} is no {self.union_key}")
        return value


class PlainCodec(TypeCodec):
    """null, boolean, string: the same on both sides."""

    def __init__(self, name: str, python_type: type) -> None:
        self.union_key = name
        self._python_type = python_type

    def definition(self, declared: set[str]) -> Json:
        """The type's name."""
        return self.union_key

    def matches(self, value: object) -> bool:
        """By Python's type."""
        return isinstance(value, self._python_type)


class IntegerCodec(TypeCodec):
    """int and long."""

    def __init__(self, name: str) -> None:
        self.union_key = name
        bits = 31 if name == "int" else 63
        self._low, self._high = -(1 << bits), (1 << bits) - 1

    def definition(self, declared: set[str]) -> Json:
        """The type's name."""
        return self.union_key

    def matches(self, value: object) -> bool:
        """An int in range, and no bool."""
        return isinstance(value, int) and not isinstance(value, bool) and self._low <= value <= self._high


class FloatCodec(TypeCodec):
    """float and double."""

    def __init__(self, name: str) -> None:
        self.union_key = name

    def definition(self, declared: set[str]) -> Json:
        """The type's name."""
        return self.union_key

    def matches(self, value: object) -> bool:
        """A float or an int."""
        return isinstance(value, float | int) and not isinstance(value, bool)

    def dump(self, value: Any, is_json: bool) -> float:  # noqa: ANN401
        """As a float."""
        try:
            return float(super().dump(value, is_json))
        except OverflowError as error:
            raise SchemaSerializationError(f"{self.union_key}: {error}") from error

    def load(self, value: Any, is_json: bool) -> float:  # noqa: ANN401
        """As a float, whatever was promoted to it."""
        return float(super().load(value, is_json))


class BytesCodec(TypeCodec):
    """bytes; text in JSON."""

    union_key = "bytes"

    def definition(self, declared: set[str]) -> Json:
        """The type's name."""
        return "bytes"

    def matches(self, value: object) -> bool:
        """By Python's type."""
        return isinstance(value, bytes)

    def matches_loaded(self, value: object, is_json: bool) -> bool:
        """Text too: strings may be promoted to bytes."""
        return isinstance(value, str | bytes)

    def dump(self, value: Any, is_json: bool) -> bytes | str:  # noqa: ANN401
        """Text for JSON."""
        data: bytes = super().dump(value, is_json)
        if not is_json:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise SchemaSerializationError(f"bytes must be UTF-8 to go into JSON: {error}") from error

    def load(self, value: Any, is_json: bool) -> bytes:  # noqa: ANN401
        """From text if it is."""
        found: str | bytes = super().load(value, is_json)
        return found.encode() if isinstance(found, str) else found


class EnumCodec(TypeCodec):
    """An enum by its members' names."""

    def __init__(self, python_type: type[enum.Enum]) -> None:
        self._python_type = python_type
        self.union_key = python_type.__name__

    def definition(self, declared: set[str]) -> Json:
        """The symbols; by name the second time."""
        if self.union_key in declared:
            return self.union_key
        declared.add(self.union_key)
        return {"type": "enum", "name": self.union_key, "symbols": [member.name for member in self._python_type]}

    def matches(self, value: object) -> bool:
        """A member."""
        return isinstance(value, self._python_type)

    def matches_loaded(self, value: object, is_json: bool) -> bool:
        """A member's name; in JSON also its value, which is what the official Python client writes."""
        return self._find(value, is_json) is not None

    def dump(self, value: Any, is_json: bool) -> str:  # noqa: ANN401
        """The name."""
        member: enum.Enum = super().dump(value, is_json)
        return member.name

    def load(self, value: Any, is_json: bool) -> enum.Enum:  # noqa: ANN401
        """The member."""
        found = self._find(value, is_json)
        if found is None:
            raise SchemaSerializationError(f"{value!r:.100} is no member of {self.union_key}")
        return found

    def _find(self, value: object, is_json: bool) -> enum.Enum | None:
        if isinstance(value, str) and value in self._python_type.__members__:
            return self._python_type.__members__[value]
        if is_json:
            for member in self._python_type:
                if type(member.value) is type(value) and member.value == value:
                    return member
        return None


class LogicalCodec(TypeCodec):
    """Dates, times and UUIDs: a logical type of Avro, its plain form in JSON."""

    def __init__(self, python_type: type, avro: str, logical: str) -> None:
        self._python_type = python_type
        self._avro, self._logical = avro, logical
        self.union_key = avro

    def definition(self, declared: set[str]) -> Json:
        """The plain type and what it means."""
        return {"type": self._avro, "logicalType": self._logical}

    def matches(self, value: object) -> bool:
        """By Python's type; a datetime is no date here."""
        if self._python_type is dt.date and isinstance(value, dt.datetime):
            return False
        return isinstance(value, self._python_type)

    def matches_loaded(self, value: object, is_json: bool) -> bool:
        """Either form: readers of Avro make Python's types of them."""
        plain = str if self._avro == "string" else int
        return self.matches(value) or (isinstance(value, plain) and not isinstance(value, bool))

    def dump(self, value: Any, is_json: bool) -> Any:  # noqa: ANN401
        """The plain form."""
        super().dump(value, is_json)
        if isinstance(value, dt.datetime):
            if value.tzinfo is None:
                raise SchemaSerializationError(f"{value!r} has no time zone")
            return (value - _EPOCH) // _MICROSECOND
        if isinstance(value, dt.date):
            return (value - _EPOCH_DAY).days
        if isinstance(value, dt.time):
            return (dt.datetime.combine(_EPOCH_DAY, value.replace(tzinfo=None)) - _MIDNIGHT) // _MICROSECOND
        return str(value)

    def load(self, value: Any, is_json: bool) -> Any:  # noqa: ANN401
        """Python's type."""
        found = super().load(value, is_json)
        if self.matches(found):
            return found
        try:
            if self._python_type is dt.datetime:
                return _EPOCH + found * _MICROSECOND
            if self._python_type is dt.date:
                return _EPOCH_DAY + dt.timedelta(days=found)
            if self._python_type is dt.time:
                return (_MIDNIGHT + found * _MICROSECOND).time()
            return uuid.UUID(found)
        except (ValueError, OverflowError) as error:
            raise SchemaSerializationError(f"{found!r:.100} is no {self._logical}: {error}") from error


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

    def load(self, value: Any, is_json: bool) -> list[Any]:  # noqa: ANN401
        """Each item."""
        load = self._items.load
        return [_at(index, load, item, is_json) for index, item in enumerate(super().load(value, is_json))]


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
        """Each value."""
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
        """By the first branch that takes it."""
        for branch in self.branches:
            if branch.matches(value):
                dumped = branch.dump(value, is_json)
                if self._records > 1 and not is_json and isinstance(branch, RecordCodec):
                    return (branch.union_key, dumped)
                return dumped
        wanted = ", ".join(branch.union_key for branch in self.branches)
        raise SchemaSerializationError(f"expected one of {wanted}, not {type(value).__name__}: {value!r:.100}")

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
        """Each field."""
        super().dump(value, is_json)
        dumped = {}
        for field in self.fields:
            try:
                dumped[field.name] = field.type.dump(getattr(value, field.name), is_json)
            except SchemaSerializationError as error:
                raise SchemaSerializationError(f"{self._name}.{field.name}: {error}") from error
        return dumped

    def load(self, value: Any, is_json: bool) -> Any:  # noqa: ANN401
        """Each field that is there; the class has defaults for the others, or refuses."""
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
            return _chosen(arguments[0], chosen) if chosen is not None else self.codec_of(arguments[0], depth + 1)
        if origin in (Union, types.UnionType):
            # null first, whatever the order in Python: as the official Python client declares what may be None.
            ordered = sorted(arguments, key=lambda branch: branch is not type(None))
            return UnionCodec([self.codec_of(branch, depth + 1) for branch in ordered])
        if origin in (list, Sequence) or (origin is tuple and arguments[1:] == (Ellipsis,)):
            return ArrayCodec(self.codec_of(arguments[0], depth + 1))
        if origin in (dict, Mapping):
            if arguments[0] is not str:
                raise InvalidConfiguration(f"{annotation}: keys of maps are str")
            return MapCodec(self.codec_of(arguments[1], depth + 1))
        if isinstance(annotation, type):
            return self._class(annotation)
        if annotation is None:
            return _plain(type(None))
        raise InvalidConfiguration(f"{annotation!r} has no type in Avro")

    def _class(self, python_type: type) -> TypeCodec:
        if issubclass(python_type, enum.Enum):
            return EnumCodec(python_type)
        found: TypeCodec | None = self.records.get(python_type) or self.record_of(python_type)
        return found if found is not None else _plain(python_type)


def _chosen(python_type: Any, avro: AvroType) -> TypeCodec:  # noqa: ANN401
    if python_type is int and avro.name in ("int", "long"):
        return IntegerCodec(avro.name)
    if python_type is float and avro.name in ("float", "double"):
        return FloatCodec(avro.name)
    raise InvalidConfiguration(
        f"AvroType({avro.name!r}) of {python_type}: expected int or long of int, float or double"
    )


def _plain(python_type: type) -> TypeCodec:
    if python_type is bool:
        return PlainCodec("boolean", bool)
    if python_type is int:
        return IntegerCodec("long")
    if python_type is float:
        return FloatCodec("double")
    if python_type is str:
        return PlainCodec("string", str)
    if python_type is bytes:
        return BytesCodec()
    if python_type is type(None):
        return PlainCodec("null", type(None))
    if python_type is dt.datetime:
        return LogicalCodec(dt.datetime, "long", "timestamp-micros")
    if python_type is dt.date:
        return LogicalCodec(dt.date, "int", "date")
    if python_type is dt.time:
        return LogicalCodec(dt.time, "long", "time-micros")
    if python_type is uuid.UUID:
        return LogicalCodec(uuid.UUID, "string", "uuid")
    raise InvalidConfiguration(f"{python_type.__qualname__} has no type in Avro")
