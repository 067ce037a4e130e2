"""``Record`` classes: fields as class attributes, with the names and the meaning of the official Python client.

::

    class Reading(Record):
        sensor = String(required=True)
        value = Double()
        tags = Array(String())

A field that is not ``required`` may be None and is declared as a union with null. ``default`` is Python's; it is part
of the definition only with ``required_default``. ``_avro_namespace`` and ``_sorted_fields`` of a class set the record's
namespace and sort its fields by name.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Final

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema._scalars import BytesCodec, EnumCodec, FloatCodec, IntegerCodec, Json, PlainCodec, TypeCodec
from geminga.client.schema._types import ArrayCodec, FieldCodec, MapCodec, RecordCodec, TypeReader, UnionCodec


class Field:
    """A field of a record."""

    def __init__(self, default: Any = None, required: bool = False, required_default: bool = False) -> None:  # noqa: ANN401
        self.required = required
        self.required_default = required_default
        self._default = None if default is None else self.checked("default", default)

    def default(self) -> Any:  # noqa: ANN401
        """What the attribute is unless it is given."""
        return self._default

    def codec(self, reader: RecordTypeReader) -> TypeCodec:
        """Without the union that lets it be None."""
        raise AssertionError(f"{type(self).__name__} has no type")

    def accepts(self, value: object) -> bool:
        """Whether a value is of the field's type."""
        raise AssertionError(f"{type(self).__name__} accepts nothing")

    def coerced(self, value: Any) -> Any:  # noqa: ANN401
        """What else is taken for the field's type."""
        return value

    def checked(self, name: str, value: Any) -> Any:  # noqa: ANN401
        """The value as it is kept. Raises TypeError."""
        if value is None and not self.required:
            return None
        value = self.coerced(value)
        if not self.accepts(value):
            raise TypeError(f"invalid type {type(value).__name__} for field {name}: expected {type(self).__name__}")
        return value


class _Plain(Field):
    _codec: ClassVar[TypeCodec]

    def codec(self, reader: RecordTypeReader) -> TypeCodec:
        """One codec for all fields of the type."""
        return self._codec

    def accepts(self, value: object) -> bool:
        """As the codec."""
        return self._codec.matches(value)


class Null(_Plain):
    """Always None."""

    _codec = PlainCodec("null", type(None))


class Boolean(_Plain):
    """False unless it is given."""

    _codec = PlainCodec("boolean", bool)

    def default(self) -> bool:
        """What the attribute is unless it is given."""
        return bool(self._default)


class Integer(_Plain):
    """An int of 32 bits."""

    _codec = IntegerCodec("int")


class Long(_Plain):
    """An int of 64 bits."""

    _codec = IntegerCodec("long")


class Float(_Plain):
    """A float of single precision."""

    _codec = FloatCodec("float")


class Double(_Plain):
    """A float of double precision."""

    _codec = FloatCodec("double")


class Bytes(_Plain):
    """bytes; a str becomes its UTF-8."""

    _codec = BytesCodec()

    def coerced(self, value: Any) -> Any:  # noqa: ANN401
        """Text as UTF-8."""
        return value.encode() if isinstance(value, str) else value


class String(_Plain):
    """str; bytes are taken as UTF-8."""

    _codec = PlainCodec("string", str)

    def coerced(self, value: Any) -> Any:  # noqa: ANN401
        """Bytes as UTF-8."""
        return value.decode() if isinstance(value, bytes) else value


class CustomEnum(Field):
    """A member of an Enum, given as such, by its name or by its value."""

    def __init__(
        self,
        enum_type: type[enum.Enum],
        default: Any = None,  # noqa: ANN401
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        self.enum_type = enum_type
        super().__init__(default, required, required_default)

    def codec(self, reader: RecordTypeReader) -> TypeCodec:
        """By the members' names."""
        return EnumCodec(self.enum_type)

    def accepts(self, value: object) -> bool:
        """A member."""
        return isinstance(value, self.enum_type)

    def coerced(self, value: Any) -> Any:  # noqa: ANN401
        """A name or a value."""
        if isinstance(value, self.enum_type):
            return value
        members = self.enum_type.__members__
        return members[value] if isinstance(value, str) and value in members else self._by_value(value)

    def _by_value(self, value: object) -> object:
        try:
            return self.enum_type(value)
        except ValueError:
            return value


class Array(Field):
    """A list."""

    def __init__(
        self,
        array_type: Field | Record | type[Record],
        default: Any = None,  # noqa: ANN401
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        self.array_type = _field_of(array_type)
        super().__init__(default, required, required_default)

    def codec(self, reader: RecordTypeReader) -> TypeCodec:
        """Of the items' type."""
        return ArrayCodec(self.array_type.codec(reader))

    def accepts(self, value: object) -> bool:
        """A list, whose items were checked."""
        return isinstance(value, list)

    def coerced(self, value: Any) -> Any:  # noqa: ANN401
        """Each item checked."""
        return [self.array_type.checked("items", item) for item in value] if isinstance(value, list) else value


class Map(Field):
    """A dict with text as keys."""

    def __init__(
        self,
        value_type: Field | Record | type[Record],
        default: Any = None,  # noqa: ANN401
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        self.value_type = _field_of(value_type)
        super().__init__(default, required, required_default)

    def codec(self, reader: RecordTypeReader) -> TypeCodec:
        """Of the values' type."""
        return MapCodec(self.value_type.codec(reader))

    def accepts(self, value: object) -> bool:
        """A dict, whose values were checked."""
        return isinstance(value, dict)

    def coerced(self, value: Any) -> Any:  # noqa: ANN401
        """Each key and value checked. Raises TypeError."""
        if not isinstance(value, dict):
            return value
        if not all(isinstance(key, str) for key in value):
            raise TypeError("keys of maps are str")
        return {key: self.value_type.checked("values", item) for key, item in value.items()}


class RecordField(Field):
    """A record within a record; an empty one unless it is given."""

    def __init__(self, record: Record) -> None:
        self.model = record
        super().__init__(record._default, record._required, record._required_default)

    def default(self) -> Record:
        """What was given as default, or a record of defaults."""
        given = self._default
        return given if isinstance(given, Record) else type(self.model)()

    def codec(self, reader: RecordTypeReader) -> TypeCodec:
        """The record's."""
        return reader.record_class(type(self.model))

    def accepts(self, value: object) -> bool:
        """An instance of the class."""
        return isinstance(value, type(self.model))

    def coerced(self, value: Any) -> Any:  # noqa: ANN401
        """A dict as the record's fields."""
        return type(self.model)(**value) if isinstance(value, dict) else value


#: What a record as a field may be given beside its fields.
_OPTIONS: Final = ("default", "required", "required_default")


class Record:
    """Base of classes whose class attributes are fields. See the module."""

    _avro_namespace: ClassVar[str | None] = None
    _sorted_fields: ClassVar[bool] = False
    _fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Collect the fields, those of base classes first."""
        super().__init_subclass__(**kwargs)
        own = {name: _as_field(value) for name, value in vars(cls).items()}
        cls._fields = {**cls._fields, **{name: field for name, field in own.items() if field is not None}}

    def __init__(self, **values: Any) -> None:  # noqa: ANN401
        """``values``: fields by name.

        For a record as a field of another, ``default``, ``required`` and ``required_default`` are those of the
        field, unless the record has fields of these names. Raises TypeError for a name that is no field, and for a
        value that does not fit.
        """
        own = {name: values.pop(name) for name in _OPTIONS if name in values and name not in self._fields}
        self._default = own.get("default")
        self._required = bool(own.get("required"))
        self._required_default = bool(own.get("required_default"))
        for name in values:
            if name not in self._fields:
                raise TypeError(f"{type(self).__name__} has no field {name}")
        for name, field in self._fields.items():
            if name in values:
                setattr(self, name, values[name])
            else:
                super().__setattr__(name, field.default())

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401
        """Raises AttributeError for what is no field, TypeError for a value that does not fit."""
        if name not in ("_default", "_required", "_required_default"):
            field = self._fields.get(name)
            if field is None:
                raise AttributeError(f"{type(self).__name__} has no field {name}")
            value = field.checked(name, value)
        super().__setattr__(name, value)

    @classmethod
    def schema(cls) -> Json:
        """The Avro definition."""
        return RecordTypeReader().record_class(cls).definition(set())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in self._fields)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({fields})"


class RecordTypeReader(TypeReader):
    """Reads ``Record`` classes."""

    def record_of(self, python_type: type) -> RecordCodec | None:
        """The codec of a Record class; None for any other."""
        return self.record_class(python_type) if issubclass(python_type, Record) else None

    def record_class(self, python_type: type[Record]) -> RecordCodec:
        """The codec of a Record class."""
        known = self.records.get(python_type)
        if known is not None:
            return known
        codec = RecordCodec(python_type, python_type.__name__, python_type._avro_namespace or "")
        self.records[python_type] = codec
        names = sorted(python_type._fields) if python_type._sorted_fields else list(python_type._fields)
        for name in names:
            field = python_type._fields[name]
            inner = field.codec(self)
            if not field.required and inner.union_key != "null":
                inner = UnionCodec([PlainCodec("null", type(None)), inner])
            item = FieldCodec(name, inner, has_default=field.required_default)
            if field.required_default:
                # The field's own: what the attribute is without one is Python's affair.
                item.default = inner.dump(field.default(), True)
            codec.fields.append(item)
        return codec


def _as_field(value: object) -> Field | None:
    if isinstance(value, Field):
        return value
    if isinstance(value, type) and issubclass(value, enum.Enum):
        return CustomEnum(value)
    if isinstance(value, Record) or (isinstance(value, type) and issubclass(value, Record)):
        return _field_of(value)
    return None


def _field_of(value: Field | Record | type[Record]) -> Field:
    if isinstance(value, Field):
        return value
    if isinstance(value, Record):
        return RecordField(value)
    if isinstance(value, type) and issubclass(value, Record):
        return RecordField(value())
    raise InvalidConfiguration(f"{value!r} is neither a field nor a record")
