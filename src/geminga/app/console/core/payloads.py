"""Payloads by the schema they were written with, as JSON values: what a page can show of them.

Numbers and moments of primitive schemas are as Pulsar's Java client writes them. Nothing here trusts the bytes: who
publishes chooses them, and whoever registers a schema chooses that.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError

from geminga.app.console.core.avro_values import decode_avro
from geminga.broker.schema.core.avro import AvroType, JsonValue, parse_definition
from geminga.wire.pulsar.protobuf_definition import root_message
from geminga.wire.pulsar.schema_info import (
    SEPARATED,
    SchemaInfo,
    SchemaType,
    join_key_value,
    key_value_parts,
    split_key_value,
)

#: Payload, and the message's key -> JSON value. Raises ValueError, which says why not.
Decoder = Callable[[bytes, "str | bytes | None"], JsonValue]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_NS: Final = 86_400 * 10**9
_NUMBERS: Final = {
    SchemaType.INT8: ">b",
    SchemaType.INT16: ">h",
    SchemaType.INT32: ">i",
    SchemaType.INT64: ">q",
    SchemaType.FLOAT: ">f",
    SchemaType.DOUBLE: ">d",
}


class NotDecodableError(ValueError):
    """The schema does not say how its bytes are read; the text says why."""


def decoder_of(info: SchemaInfo) -> Decoder | None:
    """How payloads of a schema are read; None: they are bytes. Raises NotDecodableError, ValueError."""
    kind = info.type
    if kind in (SchemaType.BYTES, SchemaType.NONE):
        return None
    if kind in _NUMBERS:
        return _number(_NUMBERS[kind], kind)
    if kind is SchemaType.AVRO:
        return _avro(parse_definition(info.schema))
    if kind is SchemaType.KEY_VALUE:
        return _key_value(info)
    if kind is SchemaType.PROTOBUF_NATIVE:
        return _protobuf(info)
    found = _PLAIN.get(kind)
    if found is None:
        why = "its definition does not say the numbers of the fields" if kind is SchemaType.PROTOBUF else "unknown here"
        raise NotDecodableError(f"a schema of type {kind.name} can not be read: {why}")
    return _whole(found)


def info_of(document: dict[str, Any]) -> SchemaInfo:
    """A schema as the administration tells it: ``type``, ``data``, ``properties``. Raises ValueError."""
    name = str(document.get("type", ""))
    kind = SchemaType.__members__.get(name)
    if kind is None:
        raise NotDecodableError(f"a schema of type {name[:40]!r} is not known here")
    properties = document.get("properties") or {}
    data = str(document.get("data") or "")
    if kind is SchemaType.KEY_VALUE:
        return SchemaInfo(str(document.get("name", "")), kind, _key_value_definition(data), properties)
    return SchemaInfo(str(document.get("name", "")), kind, data.encode(), properties)


def json_text(value: JsonValue) -> str:
    """Indented, in its own order."""
    return json.dumps(value, indent=2, ensure_ascii=False)


# ---- one kind each


def _whole(read: Callable[[bytes], JsonValue]) -> Decoder:
    return lambda data, key: read(data)


def _number(layout: str, kind: SchemaType) -> Decoder:
    packed = struct.Struct(layout)

    def read(data: bytes) -> JsonValue:
        if len(data) != packed.size:
            raise ValueError(f"{kind.name} has {packed.size} bytes, not {len(data)}")
        number: int | float = packed.unpack(data)[0]
        return number

    return _whole(read)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from error


def _json(data: bytes) -> JsonValue:
    try:
        value: JsonValue = json.loads(_text(data))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    return value


def _boolean(data: bytes) -> JsonValue:
    if len(data) != 1:
        raise ValueError(f"BOOLEAN has 1 byte, not {len(data)}")
    return data != b"\0"


def _longs(data: bytes, layout: str) -> tuple[int, ...]:
    size = struct.calcsize(layout)
    if len(data) != size:
        raise ValueError(f"it has {size} bytes, not {len(data)}")
    return struct.unpack(layout, data)


def _moment(seconds: int, micros: int = 0) -> str:
    try:
        return (_EPOCH + timedelta(seconds=seconds, microseconds=micros)).isoformat().replace("+00:00", "Z")
    except OverflowError as error:
        raise ValueError(f"{seconds} s since 1970 are in no calendar") from error


def _millis(data: bytes) -> JsonValue:
    seconds, millis = divmod(_longs(data, ">q")[0], 1000)
    return _moment(seconds, millis * 1000)


def _instant(data: bytes) -> JsonValue:
    seconds, nanos = _longs(data, ">qi")
    return _moment(seconds, nanos // 1000)


def _time(data: bytes) -> JsonValue:
    return _time_of_day(_longs(data, ">q")[0] % 86_400_000 * 1_000_000)


def _time_of_day(nanos: int) -> str:
    if not 0 <= nanos < _DAY_NS:
        raise ValueError(f"{nanos} ns is no time of day")
    return (_EPOCH + timedelta(microseconds=nanos // 1000)).time().isoformat()


def _day(days: int) -> str:
    return _moment(days * 86_400)[:10]


def _local_date(data: bytes) -> JsonValue:
    return _day(_longs(data, ">q")[0])


def _local_time(data: bytes) -> JsonValue:
    return _time_of_day(_longs(data, ">q")[0])


def _local_date_time(data: bytes) -> JsonValue:
    days, nanos = _longs(data, ">qq")
    return f"{_day(days)}T{_time_of_day(nanos)}"


_PLAIN: Final[dict[SchemaType, Callable[[bytes], JsonValue]]] = {
    SchemaType.STRING: _text,
    SchemaType.JSON: _json,
    SchemaType.BOOLEAN: _boolean,
    SchemaType.DATE: _millis,
    SchemaType.TIMESTAMP: _millis,
    SchemaType.INSTANT: _instant,
    SchemaType.TIME: _time,
    SchemaType.LOCAL_DATE: _local_date,
    SchemaType.LOCAL_TIME: _local_time,
    SchemaType.LOCAL_DATE_TIME: _local_date_time,
}


def _avro(kind: AvroType) -> Decoder:
    return _whole(lambda data: decode_avro(kind, data))


def _key_value(info: SchemaInfo) -> Decoder:
    parts = key_value_parts(info)
    read_key, read_value = decoder_of(parts.key), decoder_of(parts.value)

    def read(data: bytes, key: str | bytes | None) -> JsonValue:
        key_data: bytes | None
        value_data: bytes | None
        if parts.encoding == SEPARATED:
            key_data, value_data = key.encode() if isinstance(key, str) else key, data
        else:
            key_data, value_data = split_key_value(data)
        return {"key": _part(read_key, key_data), "value": _part(read_value, value_data)}

    return read


def _part(read: Decoder | None, data: bytes | None) -> JsonValue:
    if data is None:
        return None
    return data.decode("utf-8", "backslashreplace") if read is None else read(data, None)


def _key_value_definition(data: str) -> bytes:
    """The administration tells both parts as JSON: ``{"key": ..., "value": ...}``. Raises ValueError."""
    try:
        found = json.loads(data)
        parts = [found[side] for side in ("key", "value")]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("the definition of a KEY_VALUE schema has no key and value") from error
    return join_key_value(*(b"" if part in ("", {}, None) else _definition(part) for part in parts))


def _definition(part: JsonValue) -> bytes:
    return part.encode() if isinstance(part, str) else json.dumps(part).encode()


def _protobuf(info: SchemaInfo) -> Decoder:
    kind = message_factory.GetMessageClass(root_message(info.schema))

    def read(data: bytes) -> JsonValue:
        try:
            message = kind.FromString(data)
            value: JsonValue = json_format.MessageToDict(message, preserving_proto_field_name=True)
        except (DecodeError, json_format.Error, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"it is no {kind.DESCRIPTOR.full_name}: {error}") from error
        return value

    return _whole(read)
