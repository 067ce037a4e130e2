"""Schemas of single values: bytes, text, numbers, boolean, dates and times. Numbers are big-endian, as in Pulsar.

=================  ============================  ==============================================
schema             Python value                  bytes
=================  ============================  ==============================================
BytesSchema        bytes                         themselves; the broker keeps no schema
StringSchema       str                           UTF-8
BooleanSchema      bool                          one byte, 0 or 1
Int8 to Int64      int                           1, 2, 4 or 8 bytes
FloatSchema        float                         4 bytes
DoubleSchema       float                         8 bytes
DateSchema         datetime with time zone       8 bytes: milliseconds since 1970 (java.util.Date)
TimestampSchema    datetime with time zone       the same (java.sql.Timestamp)
TimeSchema         time                          8 bytes: milliseconds of the day (java.sql.Time)
InstantSchema      datetime with time zone       8 bytes seconds, 4 bytes nanoseconds
LocalDateSchema    date                          8 bytes: days since 1970
LocalTimeSchema    time                          8 bytes: nanoseconds of the day
LocalDateTime      datetime without time zone    8 bytes days, 8 bytes nanoseconds of the day
=================  ============================  ==============================================

Python's times end at microseconds: finer parts of what others wrote are cut off.
"""

from __future__ import annotations

import datetime as dt
import struct
from typing import Any, Final, TypeVar

from geminga.client.schema._base import Schema, SchemaSerializationError
from geminga.client.schema._protocol import SchemaInfo, SchemaType

T = TypeVar("T")

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_MILLISECOND: Final = dt.timedelta(milliseconds=1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_DAY_MS: Final = 86_400_000
_DAY_NS: Final = 86_400_000_000_000
_INT64: Final = struct.Struct(">q")
_TWO_INT64: Final = struct.Struct(">qq")
_INSTANT: Final = struct.Struct(">qi")


class _Primitive(Schema[T]):
    """A type of which ``info`` says everything."""

    def __init__(self, kind: SchemaType, python_type: type, what: str) -> None:
        self._info = SchemaInfo(kind.name, kind)
        self._python_type = python_type
        self._what = what

    @property
    def info(self) -> SchemaInfo:
        """Type and name; there is no definition."""
        return self._info

    def encode(self, value: T) -> bytes:
        """The bytes of a value. Raises SchemaSerializationError."""
        if type(value) is not self._python_type and not self._is_instance(value):
            raise SchemaSerializationError(f"{self._info.name} takes {self._what}, not {type(value).__name__}")
        try:
            return self._pack(value)
        except (ValueError, OverflowError, struct.error) as error:
            raise SchemaSerializationError(f"{value!r} is no {self._info.name}: {error}") from error

    def decode(self, data: bytes, *, writer: SchemaInfo | None = None, key: bytes | None = None) -> T:
        """The value. Raises SchemaSerializationError for bytes of another size or out of range."""
        try:
            return self._unpack(data)
        except (ValueError, OverflowError, struct.error) as error:
            raise SchemaSerializationError(f"{len(data)} bytes are no {self._info.name}: {error}") from error

    def _is_instance(self, value: object) -> bool:
        # bool is an int and datetime a date in Python; in schemas they are not.
        odd = {int: bool, dt.date: dt.datetime}.get(self._python_type)
        return isinstance(value, self._python_type) and not (odd is not None and isinstance(value, odd))

    def _pack(self, value: T) -> bytes:
        raise AssertionError

    def _unpack(self, data: bytes) -> T:
        raise AssertionError

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class BytesSchema(_Primitive[bytes]):
    """Bytes as they are. The broker is told of no schema, as by the official clients."""

    def __init__(self) -> None:
        super().__init__(SchemaType.BYTES, bytes, "bytes")

    @property
    def _told_info(self) -> SchemaInfo | None:
        return None

    def _pack(self, value: bytes) -> bytes:
        return value

    def _unpack(self, data: bytes) -> bytes:
        return data


class BytesOf(BytesSchema):
    """Bytes that are of a schema already, which is what the broker is told of. They are not looked at."""

    def __init__(self, info: SchemaInfo) -> None:
        super().__init__()
        self._of = info

    @property
    def _told_info(self) -> SchemaInfo | None:
        return self._of


class StringSchema(_Primitive[str]):
    """Text as UTF-8."""

    def __init__(self) -> None:
        super().__init__(SchemaType.STRING, str, "str")

    def _pack(self, value: str) -> bytes:
        return value.encode()

    def _unpack(self, data: bytes) -> str:
        return data.decode()


class BooleanSchema(_Primitive[bool]):
    """True or False."""

    def __init__(self) -> None:
        super().__init__(SchemaType.BOOLEAN, bool, "bool")

    def _pack(self, value: bool) -> bytes:
        return b"\1" if value else b"\0"

    def _unpack(self, data: bytes) -> bool:
        if len(data) != 1:
            raise ValueError("expected one byte")
        return data != b"\0"


class _Number(_Primitive[T]):
    def __init__(self, kind: SchemaType, layout: str, python_type: type, what: str) -> None:
        super().__init__(kind, python_type, what)
        self._struct = struct.Struct(layout)

    def _pack(self, value: T) -> bytes:
        return self._struct.pack(value)

    def _unpack(self, data: bytes) -> T:
        number: T = self._struct.unpack(data)[0]
        return number


class _Integer(_Number[int]):
    def __init__(self, kind: SchemaType, layout: str) -> None:
        super().__init__(kind, layout, int, "int")


class Int8Schema(_Integer):
    """-2^7 to 2^7 - 1."""

    def __init__(self) -> None:
        super().__init__(SchemaType.INT8, ">b")


class Int16Schema(_Integer):
    """-2^15 to 2^15 - 1."""

    def __init__(self) -> None:
        super().__init__(SchemaType.INT16, ">h")


class Int32Schema(_Integer):
    """-2^31 to 2^31 - 1."""

    def __init__(self) -> None:
        super().__init__(SchemaType.INT32, ">i")


class Int64Schema(_Integer):
    """-2^63 to 2^63 - 1."""

    def __init__(self) -> None:
        super().__init__(SchemaType.INT64, ">q")


class _Real(_Number[float]):
    def encode(self, value: float) -> bytes:
        """The bytes of a float, or of an int as one."""
        return super().encode(float(value) if type(value) is int else value)


class FloatSchema(_Real):
    """A number of single precision."""

    def __init__(self) -> None:
        super().__init__(SchemaType.FLOAT, ">f", float, "float")


class DoubleSchema(_Real):
    """A number of double precision."""

    def __init__(self) -> None:
        super().__init__(SchemaType.DOUBLE, ">d", float, "float")


class _Moment(_Primitive[dt.datetime]):
    def __init__(self, kind: SchemaType) -> None:
        super().__init__(kind, dt.datetime, "datetime with a time zone")

    def _pack(self, value: dt.datetime) -> bytes:
        return _INT64.pack((_aware(value) - _EPOCH) // _MILLISECOND)

    def _unpack(self, data: bytes) -> dt.datetime:
        millis: int = _INT64.unpack(data)[0]
        return _EPOCH + millis * _MILLISECOND


class DateSchema(_Moment):
    """A moment, to the millisecond."""

    def __init__(self) -> None:
        super().__init__(SchemaType.DATE)


class TimestampSchema(_Moment):
    """A moment, to the millisecond."""

    def __init__(self) -> None:
        super().__init__(SchemaType.TIMESTAMP)


class InstantSchema(_Primitive[dt.datetime]):
    """A moment."""

    def __init__(self) -> None:
        super().__init__(SchemaType.INSTANT, dt.datetime, "datetime with a time zone")

    def _pack(self, value: dt.datetime) -> bytes:
        seconds, micros = divmod((_aware(value) - _EPOCH) // _MICROSECOND, 1_000_000)
        return _INSTANT.pack(seconds, micros * 1000)

    def _unpack(self, data: bytes) -> dt.datetime:
        seconds, nanos = _INSTANT.unpack(data)
        return _EPOCH + dt.timedelta(seconds=seconds, microseconds=nanos // 1000)


class TimeSchema(_Primitive[dt.time]):
    """A time of day, to the millisecond."""

    def __init__(self) -> None:
        super().__init__(SchemaType.TIME, dt.time, "time")

    def _pack(self, value: dt.time) -> bytes:
        return _INT64.pack(_micros_of_day(value) // 1000)

    def _unpack(self, data: bytes) -> dt.time:
        return _time_of_day(_INT64.unpack(data)[0] % _DAY_MS * 1000)


class LocalDateSchema(_Primitive[dt.date]):
    """A day of the calendar."""

    def __init__(self) -> None:
        super().__init__(SchemaType.LOCAL_DATE, dt.date, "date")

    def _pack(self, value: dt.date) -> bytes:
        return _INT64.pack(value.toordinal() - _EPOCH_DAY)

    def _unpack(self, data: bytes) -> dt.date:
        return dt.date.fromordinal(_INT64.unpack(data)[0] + _EPOCH_DAY)


class LocalTimeSchema(_Primitive[dt.time]):
    """A time of day."""

    def __init__(self) -> None:
        super().__init__(SchemaType.LOCAL_TIME, dt.time, "time")

    def _pack(self, value: dt.time) -> bytes:
        return _INT64.pack(_micros_of_day(value) * 1000)

    def _unpack(self, data: bytes) -> dt.time:
        return _time_of_day(_checked_nanos(_INT64.unpack(data)[0]) // 1000)


class LocalDateTimeSchema(_Primitive[dt.datetime]):
    """A day of the calendar and a time of day, wherever that is."""

    def __init__(self) -> None:
        super().__init__(SchemaType.LOCAL_DATE_TIME, dt.datetime, "datetime without a time zone")

    def _pack(self, value: dt.datetime) -> bytes:
        if value.tzinfo is not None:
            raise ValueError("it has a time zone")
        return _TWO_INT64.pack(value.toordinal() - _EPOCH_DAY, _micros_of_day(value.time()) * 1000)

    def _unpack(self, data: bytes) -> dt.datetime:
        days, nanos = _TWO_INT64.unpack(data)
        return dt.datetime.combine(dt.date.fromordinal(days + _EPOCH_DAY), _time_of_day(_checked_nanos(nanos) // 1000))


def _aware(value: dt.datetime) -> dt.datetime:
    if value.tzinfo is None:
        raise ValueError("it has no time zone")
    return value


def _micros_of_day(value: dt.time) -> int:
    if value.tzinfo is not None:
        raise ValueError("it has a time zone")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _time_of_day(micros: int) -> dt.time:
    seconds, micros = divmod(micros, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return dt.time(hours, minutes, seconds, micros)


def _checked_nanos(nanos: int) -> int:
    if not 0 <= nanos < _DAY_NS:
        raise ValueError(f"{nanos} ns is no time of day")
    return nanos


#: Schema of each primitive type, for schemas that come from the broker.
PRIMITIVES: Final[dict[SchemaType, type[Schema[Any]]]] = {
    SchemaType.BYTES: BytesSchema,
    SchemaType.NONE: BytesSchema,
    SchemaType.STRING: StringSchema,
    SchemaType.BOOLEAN: BooleanSchema,
    SchemaType.INT8: Int8Schema,
    SchemaType.INT16: Int16Schema,
    SchemaType.INT32: Int32Schema,
    SchemaType.INT64: Int64Schema,
    SchemaType.FLOAT: FloatSchema,
    SchemaType.DOUBLE: DoubleSchema,
    SchemaType.DATE: DateSchema,
    SchemaType.TIME: TimeSchema,
    SchemaType.TIMESTAMP: TimestampSchema,
    SchemaType.INSTANT: InstantSchema,
    SchemaType.LOCAL_DATE: LocalDateSchema,
    SchemaType.LOCAL_TIME: LocalTimeSchema,
    SchemaType.LOCAL_DATE_TIME: LocalDateTimeSchema,
}
