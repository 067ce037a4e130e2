"""JSON payloads read by Arrow, all of a batch at once, where that comes to what reading them one by one does.

Arrow's reader takes one object a line. So each payload must be an object without a line break, and as many rows must
come out as there are payloads: then none was left out, and none was taken for two. Numbers are read as the widest type
and cast without loss, times from their numbers. For anything else (bytes are base64, decimals and maps have a form of
their own, and whatever Arrow refuses) the answer is None, and the caller reads the payloads one by one.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.json

#: Simple types -> what they are read as, and what they become.
_SIMPLE: Final[Mapping[str, tuple[pa.DataType, pa.DataType]]] = {
    "boolean": (pa.bool_(), pa.bool_()),
    "int": (pa.int64(), pa.int32()),
    "long": (pa.int64(), pa.int64()),
    "float": (pa.float64(), pa.float32()),
    "double": (pa.float64(), pa.float64()),
    "string": (pa.string(), pa.string()),
}
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
#: Times among the fields of the record: what their numbers are, and how many a second has.
_TIMES: Final[Mapping[object, tuple[pa.DataType, int]]] = {
    "timestamp-millis": (pa.timestamp("ms", tz="UTC"), 1000),
    "timestamp-micros": (_TIMESTAMP, 1_000_000),
}
#: Seconds since the epoch that a time of Python's can have: 0001 to 9999.
_SECONDS: Final = (-62_135_596_800, 253_402_300_799)
#: Below, every whole number is one of that many bits of floating point.
_WHOLE_MAX: Final = {32: 1 << 24, 64: 1 << 53}
#: Payloads from here on in the block that Arrow reads at once; it is made as large as the batch.
BLOCK_BYTES_MAX: Final = 1 << 30


class JsonColumns:
    """Of one definition of a record; ``fields`` is empty if Arrow can not read it."""

    def __init__(self, definition: object) -> None:
        #: Name -> (type that is read, type that it becomes).
        self.fields: dict[str, tuple[pa.DataType, pa.DataType]] = {}
        #: Those that are times.
        self._times: dict[str, tuple[pa.DataType, int]] = {}
        if not isinstance(definition, Mapping) or definition.get("type") != "record":
            return
        for field in definition["fields"]:
            types = self._field(field["name"], field["type"])
            if types is None:
                self.fields = {}
                return
            self.fields[field["name"]] = types

    @classmethod
    def of_types(cls, fields: Mapping[str, tuple[pa.DataType, pa.DataType]]) -> JsonColumns:
        """Of columns by what each is read as and what it becomes."""
        found = cls(None)
        found.fields = dict(fields)
        return found

    def _field(self, name: str, definition: object) -> tuple[pa.DataType, pa.DataType] | None:
        if isinstance(definition, list):
            others = [branch for branch in definition if branch != "null"]
            return self._field(name, others[0]) if len(others) == 1 else None
        logical = definition.get("logicalType") if isinstance(definition, Mapping) else None
        if logical not in _TIMES:
            return _types(definition)
        self._times[name] = _TIMES[logical]
        return pa.int64(), _TIMESTAMP

    def read(self, payloads: pa.Array, wanted: Mapping[str, pa.DataType]) -> dict[str, pa.Array] | None:
        """Columns of payloads, none of which is null; None: they must be read one by one."""
        given = {name: self.fields[name] for name in wanted if name in self.fields}
        if not given or any(made != wanted[name] for name, (_, made) in given.items()):
            return None
        block = _lines(payloads)
        if block is None:
            return None
        try:
            block.decode()  # Arrow looks at no encoding
            table = pyarrow.json.read_json(
                io.BytesIO(block),
                pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                pyarrow.json.ParseOptions(
                    explicit_schema=pa.schema([(name, read) for name, (read, _) in given.items()]),
                    unexpected_field_behavior="ignore",
                ),
            ).combine_chunks()
            if table.num_rows != len(payloads):
                return None
            found = {}
            for name, (_, made) in given.items():
                column = table.column(name)
                array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
                if name in self._times:
                    array = _times(array, *self._times[name])
                if not _are_certain(array, made):
                    return None
                found[name] = array if array.type == made else array.cast(made)
        except (pa.ArrowException, ValueError):
            return None
        nulls = {name: pa.nulls(len(payloads), kind) for name, kind in wanted.items() if name not in given}
        return {**found, **nulls}


def _types(definition: object) -> tuple[pa.DataType, pa.DataType] | None:
    """What a definition is read as and becomes; None: not by Arrow."""
    if isinstance(definition, list):
        others = [branch for branch in definition if branch != "null"]
        return _types(others[0]) if len(others) == 1 else None
    if isinstance(definition, str):
        return _SIMPLE.get(definition)
    if not isinstance(definition, Mapping):
        return None
    kind, logical = definition["type"], definition.get("logicalType")
    if logical is not None:
        return None
    if kind == "enum":
        return _SIMPLE["string"]
    if kind == "array":
        item = _types(definition["items"])
        return None if item is None else (pa.list_(item[0]), pa.list_(item[1]))
    if kind == "record":
        fields = [(field["name"], _types(field["type"])) for field in definition["fields"]]
        known: list[tuple[str, tuple[Any, Any]]] = [(name, types) for name, types in fields if types is not None]
        if len(known) < len(fields) or not fields:
            return None
        return (
            pa.struct([(name, types[0]) for name, types in known]),
            pa.struct([(name, types[1]) for name, types in known]),
        )
    return _types(kind) if kind in _SIMPLE else None


def _lines(payloads: pa.Array) -> bytes | None:
    """The payloads, a line each; None if one is no object on one line, as far as its ends say."""
    if not len(payloads) or payloads.null_count:
        return None
    offsets = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    data = np.frombuffer(payloads.buffers()[2] or b"", np.uint8)
    size = int(offsets[-1] - offsets[0])
    if (np.diff(offsets) < 2).any() or size + len(payloads) > BLOCK_BYTES_MAX:
        return None
    if (data[offsets[:-1]] != ord("{")).any() or (data[offsets[1:] - 1] != ord("}")).any():
        return None
    found = np.empty(size + len(payloads), np.uint8)
    is_content = np.ones(len(found), np.bool_)
    is_content[offsets[1:] - offsets[0] + np.arange(len(payloads))] = False
    content = data[offsets[0] : offsets[-1]]
    if (content == ord("\n")).any():
        return None
    found[is_content] = content
    found[~is_content] = ord("\n")
    return found.tobytes()


def _are_certain(array: pa.Array, made: pa.DataType) -> bool:
    """Whether no number of floating point may have been a whole one that it does not hold: those are looked at."""
    if pa.types.is_list(made):
        return _are_certain(array.flatten(), made.value_type)
    if pa.types.is_struct(made):
        return all(_are_certain(field, kind.type) for field, kind in zip(array.flatten(), made.fields, strict=True))
    if not pa.types.is_floating(made):
        return True
    bounds = pa.compute.min_max(array).as_py()
    limit = _WHOLE_MAX[made.bit_width]
    return bounds["min"] is None or -limit < bounds["min"] <= bounds["max"] < limit


def _times(numbers: pa.Array, kind: pa.DataType, per_second: int) -> pa.Array:
    """Raises ValueError for a time that Python's have no year for, as reading it by itself does."""
    bounds = pa.compute.min_max(numbers).as_py()
    first, last = _SECONDS
    if bounds["min"] is not None and not first * per_second <= bounds["min"] <= bounds["max"] <= last * per_second:
        raise ValueError(f"times from {bounds['min']} to {bounds['max']}")
    return numbers.cast(kind)
