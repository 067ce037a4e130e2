"""The text of a payload as the bytes that a schema wants, as Pulsar's clients encode them.

Pulsar's broker publishes an empty message where a text does not fit its schema; here it is refused.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import re
import struct
from collections.abc import Callable, Generator, Mapping
from math import isinf
from typing import Final

from geminga.broker.core.coercion import VALUES_MAX, BodyError, Json, has_too_many_values
from geminga.broker.core.steps import drained
from geminga.broker.rest.message_routes.core.avro_json import AvroValueError, Places, avro_steps
from geminga.broker.schema.core.avro import AvroDefinitionError, AvroType, parse_definition
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType

#: A text, with what messages of errors call it -> bytes; raises BodyError.
Encoder = Callable[[str, str], bytes]

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY: Final = _EPOCH.toordinal()
_INT64: Final = struct.Struct(">q")
_MILLISECOND: Final = dt.timedelta(milliseconds=1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_SHOWN_CHARACTERS: Final = 40
_INTEGERS: Final = {
    SchemaType.INT8: struct.Struct(">b"),
    SchemaType.INT16: struct.Struct(">h"),
    SchemaType.INT32: struct.Struct(">i"),
    SchemaType.INT64: _INT64,
}
_REALS: Final = {SchemaType.FLOAT: struct.Struct(">f"), SchemaType.DOUBLE: struct.Struct(">d")}


def encoder_of(schema: SchemaInfo | None) -> Encoder:
    """How texts become payloads of a schema; None: bytes. Raises BodyError for one whose payloads are no text."""
    kind = SchemaType.BYTES if schema is None else schema.type
    if schema is not None and kind is SchemaType.AVRO:
        try:
            return AvroEncoder(parse_definition(schema.schema))
        except AvroDefinitionError as error:
            raise BodyError(f"the definition of the schema is not Avro's: {error}") from error
    found = _ENCODERS.get(kind)
    if found is None:
        raise BodyError(f"payloads of schema {kind.name} can not be given as a text")
    return found


def _text(text: str, what: str) -> bytes:
    del what
    return text.encode()


def decoded_base64(text: str, what: str) -> bytes:
    """Raises BodyError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BodyError(f"{what} is not base64: {_shown(text)}") from error


def _integer(kind: SchemaType) -> Encoder:
    layout = _INTEGERS[kind]

    def encode(text: str, what: str) -> bytes:
        if _WHOLE.fullmatch(text) is None:
            raise _wrong(what, kind, "a whole number", text)
        try:
            return layout.pack(int(text))
        except struct.error as error:
            raise _wrong(what, kind, f"a whole number of {8 * layout.size} bits", text) from error

    return encode


def _real(kind: SchemaType) -> Encoder:
    layout = _REALS[kind]

    def encode(text: str, what: str) -> bytes:
        try:
            value = float(text)
            data = layout.pack(value)
        except (ValueError, OverflowError) as error:
            raise _wrong(what, kind, "a number", text) from error
        if isinf(value) and "inf" not in text.lower():
            raise _wrong(what, kind, "a number that a double can hold", text)
        return data

    return encode


def _boolean(text: str, what: str) -> bytes:
    if text.lower() not in ("true", "false"):
        raise _wrong(what, SchemaType.BOOLEAN, "true or false", text)
    return b"\x01" if text.lower() == "true" else b"\x00"


def _json(text: str, what: str) -> bytes:
    try:
        _few_values(text)
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _no_json(what, text) from error
    # As it came: a number written here need not be what a double makes of it.
    return text.strip().encode()


class AvroEncoder:
    """An :data:`Encoder` whose work can be done in steps, too."""

    __slots__ = ("_kind", "_places")

    def __init__(self, kind: AvroType) -> None:
        self._kind = kind
        self._places: Places = {}

    def __call__(self, text: str, what: str) -> bytes:
        """All of it."""
        return drained(self.steps(text, what))

    def steps(self, text: str, what: str) -> Generator[None, None, bytes]:
        """Raises BodyError."""
        try:
            value = whole_json(text)
        except (ValueError, RecursionError) as error:
            raise _no_json(what, text) from error
        try:
            return (yield from avro_steps(self._kind, value, self._places))
        except AvroValueError as error:
            raise BodyError(f"{what} does not fit its Avro schema: {error}") from error


def encoding_steps(encoder: Encoder, text: str, what: str) -> Generator[None, None, bytes]:
    """What ``encoder`` makes of a text, in steps where it takes long. Raises BodyError."""
    if isinstance(encoder, AvroEncoder):
        return (yield from encoder.steps(text, what))
    return encoder(text, what)


def whole_json(text: str) -> Json:
    """JSON in a text of the body. Raises ValueError, RecursionError.

    Half a surrogate pair, which JSON can write (RFC 8259, 8.2), can neither be encoded nor kept: it is refused.
    """
    _few_values(text)
    value: Json = json.loads(text, parse_constant=_no_constant)
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _few_values(text: str) -> None:
    if has_too_many_values(text):
        raise BodyError(f"a text of JSON has more than {VALUES_MAX} values")


def _no_json(what: str, text: str) -> BodyError:
    return BodyError(f"{what} is not JSON: {_shown(text)}")


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _moment(kind: SchemaType) -> Encoder:
    """Milliseconds since the epoch, given as such or by ISO 8601 with a time zone."""

    def encode(text: str, what: str) -> bytes:
        if _WHOLE.fullmatch(text) is not None:
            return _integer_64(text, what, kind)
        return _INT64.pack((_aware(text, what, kind) - _EPOCH) // _MILLISECOND)

    return encode


def _time(text: str, what: str) -> bytes:
    if _WHOLE.fullmatch(text) is not None:
        return _integer_64(text, what, SchemaType.TIME)
    return _INT64.pack(_micros(text, what, SchemaType.TIME) // 1000)


def _integer_64(text: str, what: str, kind: SchemaType) -> bytes:
    try:
        return _INT64.pack(int(text))
    except struct.error as error:
        raise _wrong(what, kind, "a whole number of 64 bits", text) from error


def _instant(text: str, what: str) -> bytes:
    seconds, micros = divmod((_aware(text, what, SchemaType.INSTANT) - _EPOCH) // _MICROSECOND, 1_000_000)
    return struct.pack(">qi", seconds, micros * 1000)


def _local_date(text: str, what: str) -> bytes:
    try:
        return _INT64.pack(dt.date.fromisoformat(text).toordinal() - _EPOCH_DAY)
    except ValueError as error:
        raise _wrong(what, SchemaType.LOCAL_DATE, "a day such as 2026-11-28", text) from error


def _local_time(text: str, what: str) -> bytes:
    return _INT64.pack(_micros(text, what, SchemaType.LOCAL_TIME) * 1000)


def _local_date_time(text: str, what: str) -> bytes:
    kind = SchemaType.LOCAL_DATE_TIME
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise _wrong(what, kind, "a time such as 2026-11-28T10:30:00", text) from error
    if found.tzinfo is not None:
        raise _wrong(what, kind, "a time without a time zone", text)
    return struct.pack(">qq", found.toordinal() - _EPOCH_DAY, _micros_of_day(found.time()) * 1000)


def _aware(text: str, what: str, kind: SchemaType) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise _wrong(what, kind, "a time such as 2026-11-28T10:30:00Z", text)
    return found


def _micros(text: str, what: str, kind: SchemaType) -> int:
    try:
        return _micros_of_day(dt.time.fromisoformat(text))
    except ValueError as error:
        raise _wrong(what, kind, "a time of day such as 10:30:00", text) from error


def _micros_of_day(value: dt.time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _wrong(what: str, kind: SchemaType, expected: str, text: str) -> BodyError:
    return BodyError(f"{what} is no {kind.name}: expected {expected}, not {_shown(text)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")


_ENCODERS: Final[Mapping[SchemaType, Encoder]] = {
    SchemaType.BYTES: _text,
    SchemaType.NONE: _text,
    SchemaType.STRING: _text,
    SchemaType.BOOLEAN: _boolean,
    SchemaType.JSON: _json,
    **{kind: _integer(kind) for kind in _INTEGERS},
    **{kind: _real(kind) for kind in _REALS},
    SchemaType.DATE: _moment(SchemaType.DATE),
    SchemaType.TIMESTAMP: _moment(SchemaType.TIMESTAMP),
    SchemaType.TIME: _time,
    SchemaType.INSTANT: _instant,
    SchemaType.LOCAL_DATE: _local_date,
    SchemaType.LOCAL_TIME: _local_time,
    SchemaType.LOCAL_DATE_TIME: _local_date_time,
}
