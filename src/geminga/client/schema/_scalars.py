"""Types without parts: how each value goes to Avro or JSON and comes back."""

from __future__ import annotations

import datetime as dt
import enum
import types
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Annotated, Any, Final, Union, get_args, get_origin

from geminga.client._api.errors import InvalidConfiguration
from geminga.client.schema._base import SchemaSerializationError

#: What JSON can hold, as Python has it.
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY: Final = dt.date(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_MIDNIGHT: Final = dt.datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class AvroType:
    """Chooses the Avro type of a field: ``Annotated[int, AvroType("int")]``."""

    name: str


@dataclass(frozen=True, slots=True)
class AvroDecimal:
    """Digits of a decimal: ``Annotated[Decimal, AvroDecimal(10, 2)]`` has ten, two of them behind the point.

    Without, a decimal has 38, of which 18 are behind the point; a pydantic model's ``max_digits`` and
    ``decimal_places`` say it, too.
    """

    precision: int
    scale: int = 0


#: Digits of a decimal, as most that read Avro have it.
DECIMAL_DIGITS_MAX: Final = 38
_DECIMAL_DEFAULT: Final = AvroDecimal(38, 18)
_WIDE: Final = Context(prec=1000)
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

    def default_form(self, value: Any) -> Any:  # noqa: ANN401
        """A value as the definition's default; raises SchemaSerializationError for one that does not fit."""
        return self.dump(value, True)

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
        """As a float. Raises SchemaSerializationError."""
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
        """Text for JSON. Raises SchemaSerializationError."""
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
        """The member. Raises SchemaSerializationError."""
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
        """The plain form. Raises SchemaSerializationError."""
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
        """Python's type. Raises SchemaSerializationError."""
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


class DecimalCodec(TypeCodec):
    """Decimals of so many digits, exactly; their text in JSON, as numbers of JSON are read as floating point."""

    union_key = "bytes"

    def __init__(self, digits: AvroDecimal) -> None:
        """Raises InvalidConfiguration for digits that can not be."""
        if not 0 <= digits.scale <= digits.precision <= DECIMAL_DIGITS_MAX or not digits.precision:
            raise InvalidConfiguration(
                f"decimal({digits.precision}, {digits.scale}): expected up to {DECIMAL_DIGITS_MAX} digits, and no more "
                "behind the point than there are"
            )
        self._digits = digits

    def definition(self, declared: set[str]) -> Json:
        """Bytes, and the digits."""
        precision, scale = self._digits.precision, self._digits.scale
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    def matches(self, value: object) -> bool:
        """A decimal; whether it has too many digits is said when it is dumped."""
        return isinstance(value, Decimal)

    def matches_loaded(self, value: object, is_json: bool) -> bool:
        """In JSON text, or a number; of Avro, a default as it stands in the definition."""
        others = str | int | float if is_json else str
        return self.matches(value) or (isinstance(value, others) and type(value) is not bool)

    def dump(self, value: Any, is_json: bool) -> Decimal | str:  # noqa: ANN401
        """Exactly. Raises SchemaSerializationError."""
        found: Decimal = super().dump(value, is_json)
        precision, scale = self._digits.precision, self._digits.scale
        fits = found.is_finite() and found.adjusted() < precision - scale
        if not fits or found.scaleb(scale, _WIDE) != found.scaleb(scale, _WIDE).to_integral_value(context=_WIDE):
            raise SchemaSerializationError(f"{found} does not fit decimal({precision}, {scale})")
        return format(found, "f") if is_json else found

    def default_form(self, value: Any) -> str:  # noqa: ANN401
        """The bytes of the unscaled number, each as a character: so Avro has defaults of bytes."""
        self.dump(value, True)
        unscaled = int(value.scaleb(self._digits.scale, _WIDE))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True).decode("latin-1")

    def load(self, value: Any, is_json: bool) -> Decimal:  # noqa: ANN401
        """Of a number of floating point, what it is printed as. Raises SchemaSerializationError."""
        found = super().load(value, is_json)
        if isinstance(found, str) and not is_json:
            return Decimal(_unscaled(found)).scaleb(-self._digits.scale, _WIDE)
        try:
            return found if isinstance(found, Decimal) else Decimal(str(found))
        except InvalidOperation as error:
            raise SchemaSerializationError(f"{found!r:.100} is no decimal") from error


def _unscaled(text: str) -> int:
    try:
        return int.from_bytes(text.encode("latin-1"), "big", signed=True)
    except UnicodeEncodeError as error:
        raise SchemaSerializationError(f"{text!r:.100} is no default of a decimal") from error


class LiteralCodec(TypeCodec):
    """Some values of one type."""

    def __init__(self, values: Sequence[object], inner: TypeCodec) -> None:
        self._values = values
        self._inner = inner
        self.union_key = inner.union_key

    def definition(self, declared: set[str]) -> Json:
        """That of all values of the type."""
        return self._inner.definition(declared)

    def matches(self, value: object) -> bool:
        """One of the values."""
        return self._inner.matches(value) and any(type(one) is type(value) and one == value for one in self._values)

    def dump(self, value: Any, is_json: bool) -> Any:  # noqa: ANN401
        """As the type does. Raises SchemaSerializationError."""
        if not self.matches(value):
            raise SchemaSerializationError(f"expected one of {self._told}, not {value!r:.100}")
        return self._inner.dump(value, is_json)

    def load(self, value: Any, is_json: bool) -> Any:  # noqa: ANN401
        """As the type does. Raises SchemaSerializationError."""
        found = self._inner.load(value, is_json)
        if not self.matches(found):
            raise SchemaSerializationError(f"expected one of {self._told}, not {found!r:.100}")
        return found

    @property
    def _told(self) -> str:
        return ", ".join(map(repr, self._values))


def chosen_codec(python_type: Any, avro: AvroType) -> TypeCodec:  # noqa: ANN401
    """Of an int or a float whose Avro type is chosen; raises InvalidConfiguration."""
    if python_type is int and avro.name in ("int", "long"):
        return IntegerCodec(avro.name)
    if python_type is float and avro.name in ("float", "double"):
        return FloatCodec(avro.name)
    raise InvalidConfiguration(
        f"AvroType({avro.name!r}) of {python_type}: expected int or long of int, float or double"
    )


def digits_among(metadata: Sequence[Any]) -> AvroDecimal | None:
    """What the metadata of an annotation or of a pydantic field say of a decimal's digits; None: nothing."""
    for one in metadata:
        if isinstance(one, AvroDecimal):
            return one
        nested = digits_among(found) if isinstance(found := getattr(one, "metadata", None), list | tuple) else None
        if nested is not None:
            return nested
        if (precision := getattr(one, "max_digits", None)) is not None:
            return AvroDecimal(precision, getattr(one, "decimal_places", None) or 0)
    return None


def with_digits(annotation: Any, digits: AvroDecimal | None) -> Any:  # noqa: ANN401
    """An annotation whose decimals have so many digits."""
    if digits is None:
        return annotation
    if annotation is Decimal:
        return DecimalAnnotation(digits)
    if get_origin(annotation) in (Union, types.UnionType):
        return Union[tuple(Annotated[one, digits] for one in get_args(annotation))]  # noqa: UP007
    return annotation


@dataclass(frozen=True, slots=True)
class DecimalAnnotation:
    """Stands for Decimal in an annotation that says its digits."""

    digits: AvroDecimal


def literal_codec(values: Sequence[object]) -> TypeCodec:
    """Of the values of a Literal; raises InvalidConfiguration."""
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= {str, int, bool, bytes}:
        raise InvalidConfiguration(f"Literal[{', '.join(map(repr, values))}]: expected values of one type")
    return LiteralCodec(values, plain_codec(kinds.pop()))


def plain_codec(python_type: type) -> TypeCodec:
    """Of a class that is neither an enum nor a record; raises InvalidConfiguration."""
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
    if python_type is Decimal:
        return DecimalCodec(_DECIMAL_DEFAULT)
    if python_type is uuid.UUID:
        return LogicalCodec(uuid.UUID, "string", "uuid")
    raise InvalidConfiguration(f"{python_type.__qualname__} has no type in Avro")
