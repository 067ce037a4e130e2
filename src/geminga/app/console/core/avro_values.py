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
#: Names of a place that an error tells, and characters of each.
PATH_SHOWN: Final = 8
NAME_SHOWN: Final = 40
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
#: Bytes of the largest number: 64 bits, seven in each.
_VARINT_BYTES_MAX: Final = 10


class AvroDataError(ValueError):
    """Bytes that are no value of the type; the text says where and why."""


def decode_avro(kind: AvroType, data: bytes) -> JsonValue:
    """The value that ``data`` is, whole. Raises AvroDataError."""
    reader = _Reader(data)
    value = reader.value(kind)
    if reader.at != len(data):
        raise AvroDataError(f"{len(data) - reader.at} bytes are left behind the value")
    return value


class _Reader:
    """Goes through the bytes once."""

    __slots__ = ("_data", "_left", "_path", "at")

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data
        self._left = VALUES_LEAST + VALUES_A_BYTE * len(data)
        #: Where it is: put together for an error alone, as names may be long and values many.
        self._path: list[str | int] = []

    def value(self, kind: AvroType) -> JsonValue:
        self._left -= 1
        if self._left < 0:
            raise AvroDataError(f"it says more values than {len(self._data)} bytes have")
        if len(self._path) > DEPTH_MAX:
            raise AvroDataError(f"{self._where()} is nested deeper than {DEPTH_MAX}")
        name = kind.kind
        if name == "record":
            return {field.name: self._inner(field.type, field.name) for field in kind.fields}
        if name == "union":
            return self.value(kind.branches[self._index(len(kind.branches))])
        if name == "array":
            found: list[JsonValue] = []
            for _ in self._items():
                found.append(self._inner(kind.items, len(found)))
            return found
        if name == "map":
            entries: dict[str, JsonValue] = {}
            for _ in self._items():
                key = self._text()
                entries[key] = self._inner(kind.items, key)
            return entries
        return self._plain(kind)

    def _inner(self, kind: AvroType | None, name: str | int) -> JsonValue:
        assert kind is not None
        self._path.append(name)
        value = self.value(kind)
        self._path.pop()
        return value

    def _plain(self, kind: AvroType) -> JsonValue:
        name = kind.kind
        if name == "null":
            return None
        if name == "boolean":
            return self._take(1) != b"\0"
        if name in ("int", "long"):
            return self._long()
        if name == "float":
            return float(_FLOAT.unpack(self._take(4))[0])
        if name == "double":
            return float(_DOUBLE.unpack(self._take(8))[0])
        if name == "string":
            return self._text()
        if name == "enum":
            return kind.symbols[self._index(len(kind.symbols))]
        if name == "fixed":
            return self._take(kind.size).decode("latin-1")
        return self._take(self._long()).decode("latin-1")

    def _items(self) -> Iterator[None]:
        """Once for each item of all blocks: a block of a negative count says its bytes, too."""
        while count := self._long():
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                yield

    def _index(self, count: int) -> int:
        index = self._long()
        if not 0 <= index < count:
            raise AvroDataError(f"{self._where()} is number {index} of {count}")
        return index

    def _text(self) -> str:
        try:
            return self._take(self._long()).decode()
        except UnicodeDecodeError as error:
            raise AvroDataError(f"{self._where()} is not UTF-8") from error

    def _long(self) -> int:
        number = 0
        for place in range(_VARINT_BYTES_MAX):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise AvroDataError(f"{self._where()} is no number of 64 bits")

    def _take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self._data):
            raise AvroDataError(f"{self._where()} needs {size} bytes and {len(self._data) - self.at} are left")
        found = self._data[self.at : end]
        self.at = end
        return found

    def _where(self) -> str:
        shown = self._path[:PATH_SHOWN]
        parts = [f"[{part}]" if isinstance(part, int) else f".{part[:NAME_SHOWN]}" for part in shown]
        return f"the value{''.join(parts)}{'...' if len(self._path) > PATH_SHOWN else ''}"
