"""Avro's binary encoding as JSON values, for reading, by the Avro 1.12 specification ("Binary Encoding").

Who publishes chooses the bytes: a few of them can say an array of a billion nulls. So the values of a message are
counted against its bytes, and the depth is limited. A union is shown as its value alone, bytes as a text of characters
up to U+00FF, as Avro's JSON has them; logical types as what they are stored as.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from geminga.broker.schema.core.avro import AvroType, JsonValue

#: Values of one message: so many, and as many again for each of its bytes. Only nulls, and what is made of them, take
#: no byte at all.
VALUES_LEAST: Final = 1_000
VALUES_A_BYTE: Final = 2
#: Values nested deeper are not taken apart: it recurses.
DEPTH_MAX: Final = 128
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
#: Bytes of the largest number: 64 bits, seven in each.
_VARINT_BYTES_MAX: Final = 10


class AvroDataError(ValueError):
    """Bytes that are no value of the type; the text says where and why."""


def decode_avro(kind: AvroType, data: bytes) -> JsonValue:
    """The value that ``data`` is, whole. Raises AvroDataError."""
    reader = _Reader(data)
    value = reader.value(kind, "the value", 0)
    if reader.at != len(data):
        raise AvroDataError(f"{len(data) - reader.at} bytes are left behind the value")
    return value


class _Reader:
    """Goes through the bytes once."""

    __slots__ = ("_data", "_left", "at")

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._left = VALUES_LEAST + VALUES_A_BYTE * len(data)

    def value(self, kind: AvroType, where: str, depth: int) -> JsonValue:
        self._left -= 1
        if self._left < 0:
            raise AvroDataError(f"it says more values than {len(self._data)} bytes have")
        if depth > DEPTH_MAX:
            raise AvroDataError(f"{where} is nested deeper than {DEPTH_MAX}")
        name = kind.kind
        if name == "record":
            return {field.name: self.value(field.type, f"{where}.{field.name}", depth + 1) for field in kind.fields}
        if name == "union":
            branch = self._index(len(kind.branches), where)
            return self.value(kind.branches[branch], where, depth + 1)
        if name == "array":
            found: list[JsonValue] = []
            for _ in self._items(where):
                found.append(self._item(kind, f"{where}[{len(found)}]", depth))
            return found
        if name == "map":
            entries: dict[str, JsonValue] = {}
            for _ in self._items(where):
                key = self._text(where)
                entries[key] = self._item(kind, f"{where}.{key}", depth)
            return entries
        return self._plain(kind, where)

    def _item(self, kind: AvroType, where: str, depth: int) -> JsonValue:
        assert kind.items is not None
        return self.value(kind.items, where, depth + 1)

    def _plain(self, kind: AvroType, where: str) -> JsonValue:
        name = kind.kind
        if name == "null":
            return None
        if name == "boolean":
            return self._take(1, where) != b"\0"
        if name in ("int", "long"):
            return self._long(where)
        if name == "float":
            return float(_FLOAT.unpack(self._take(4, where))[0])
        if name == "double":
            return float(_DOUBLE.unpack(self._take(8, where))[0])
        if name == "string":
            return self._text(where)
        if name == "enum":
            return kind.symbols[self._index(len(kind.symbols), where)]
        if name == "fixed":
            return self._take(kind.size, where).decode("latin-1")
        return self._take(self._long(where), where).decode("latin-1")

    def _items(self, where: str) -> Iterator[None]:
        """Once for each item of all blocks: a block of a negative count says its bytes, too."""
        while count := self._long(where):
            if count < 0:
                self._long(where)
            for _ in range(abs(count)):
                yield

    def _index(self, count: int, where: str) -> int:
        index = self._long(where)
        if not 0 <= index < count:
            raise AvroDataError(f"{where} is number {index} of {count}")
        return index

    def _text(self, where: str) -> str:
        try:
            return self._take(self._long(where), where).decode()
        except UnicodeDecodeError as error:
            raise AvroDataError(f"{where} is not UTF-8") from error

    def _long(self, where: str) -> int:
        number = 0
        for place in range(_VARINT_BYTES_MAX):
            byte = self._take(1, where)[0]
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise AvroDataError(f"{where} is no number of 64 bits")

    def _take(self, size: int, where: str) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self._data):
            raise AvroDataError(f"{where} needs {size} bytes and {len(self._data) - self.at} are left")
        found = self._data[self.at : end]
        self.at = end
        return found
