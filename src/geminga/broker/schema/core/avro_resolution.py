"""Whether data written with one Avro schema can be read with another: the specification's "Schema Resolution".

Records are matched by structure, whatever they are called, as Avro's Java library resolves them and therefore Pulsar's
compatibility checks: two classes of different names are versions of one schema. Enums and fixed types must agree in
their unqualified names (or one of the reader's aliases).

What only fails for some values fails here: an enum symbol or a union branch that the reader does not know is an
incompatibility, unless the reader's enum has a default.
"""

from __future__ import annotations

from typing import Final

from geminga.broker.schema.core.avro import AvroField, AvroType

#: Writer type -> types that its values may be promoted to.
PROMOTIONS: Final = {
    "int": frozenset(("long", "float", "double")),
    "long": frozenset(("float", "double")),
    "float": frozenset(("double",)),
    "string": frozenset(("bytes",)),
    "bytes": frozenset(("string",)),
}
#: Pairs of types compared before a definition is called too complex: unions of records multiply.
COMPARISONS_MAX: Final = 50_000
#: Fields and symbols looked at, likewise: those of one record with each trial. Half a second; definitions have fewer.
STEPS_MAX: Final = 2_000_000
#: Comparisons within each other: recursive types of different periods nest far deeper than their declarations.
DEPTH_MAX: Final = 200


#: Characters of a name, and names of a place, that an obstacle is told with: trials of unions fail by the thousand.
NAME_SHOWN_MAX: Final = 200
PLACE_SHOWN_MAX: Final = 20
#: From the field or element at hand outwards; written only where there is an obstacle, for names may be long.
_Path = tuple["_Path", str] | None


def why_unreadable(reader: AvroType, writer: AvroType) -> str:
    """Empty if everything written with ``writer`` can be read with ``reader``; otherwise the first obstacle."""
    return _Resolution().check(reader, writer, None)


class _Resolution:
    """Pairs already answered; a pair met again while it is being answered holds as far as it goes."""

    __slots__ = ("_answers", "_comparisons", "_depth", "_steps", "_trail")

    def __init__(self) -> None:
        self._answers: dict[tuple[int, int], str] = {}
        #: The keys of the answers in the order they came, so that those of a failed trial can be taken back.
        self._trail: list[tuple[int, int]] = []
        self._comparisons = self._steps = 0
        self._depth = 0

    def check(self, reader: AvroType, writer: AvroType, path: _Path) -> str:
        """Empty, or the first obstacle."""
        key = (id(reader), id(writer))
        known = self._answers.get(key)
        if known is not None:
            return known
        self._comparisons += 1
        self._steps += len(reader.fields) + len(writer.fields) + len(writer.symbols)
        if self._comparisons > COMPARISONS_MAX or self._steps > STEPS_MAX or self._depth >= DEPTH_MAX:
            return f"{_place(path)}too complex to compare"
        self._answers[key] = ""
        self._trail.append(key)
        self._depth += 1
        answer = self._resolve(reader, writer, path)
        self._depth -= 1
        self._answers[key] = answer
        return answer

    def _resolve(self, reader: AvroType, writer: AvroType, path: _Path) -> str:
        if writer.kind == "union":
            for branch in writer.branches:
                obstacle = self.check(reader, branch, path)
                if obstacle:
                    return obstacle
            return ""
        if reader.kind == "union":
            return self._into_union(reader, writer, path)
        if reader.kind != writer.kind:
            if reader.kind in PROMOTIONS.get(writer.kind, ()):
                return ""
            return f"{_place(path)}{_called(writer)} can not be read as {_called(reader)}"
        if reader.kind == "record":
            return self._fields(reader, writer, path)
        if reader.kind in ("array", "map"):
            assert reader.items is not None
            assert writer.items is not None
            return self.check(reader.items, writer.items, (path, "[]"))
        if reader.kind in ("enum", "fixed"):
            return _named(reader, writer, path)
        return ""

    def _into_union(self, reader: AvroType, writer: AvroType, path: _Path) -> str:
        for branch in reader.branches:
            mark = len(self._trail)
            if not self.check(branch, writer, path):
                return ""
            # Nothing may be taken for granted that only held if this trial had succeeded.
            for key in self._trail[mark:]:
                del self._answers[key]
            del self._trail[mark:]
        return f"{_place(path)}{_called(writer)} is not in the union that reads it"

    def _fields(self, reader: AvroType, writer: AvroType, path: _Path) -> str:
        written = {field.name: field for field in writer.fields}
        for field in reader.fields:
            source = _source(field, written)
            if source is None:
                if field.has_default:
                    continue
                return f"{_place(path)}field {_shown(field.name)} is missing in what was written, and has no default"
            obstacle = self.check(field.type, source.type, (path, field.name))
            if obstacle:
                return obstacle
        return ""


def _source(field: AvroField, written: dict[str, AvroField]) -> AvroField | None:
    for name in (field.name, *field.aliases):
        if name in written:
            return written[name]
    return None


def _named(reader: AvroType, writer: AvroType, path: _Path) -> str:
    if reader.name != writer.name and writer.full_name not in reader.aliases:
        return f"{_place(path)}{_called(writer)} can not be read as {_shown(reader.full_name)}"
    if reader.size != writer.size:
        return f"{_place(path)}{_shown(writer.full_name)} has {writer.size} bytes, {reader.size} are read"
    if not reader.has_enum_default:
        known = frozenset(reader.symbols)
        for symbol in writer.symbols:
            if symbol not in known:
                return f"{_place(path)}symbol {_shown(symbol)} of {_called(writer)} is unknown, and there is no default"
    return ""


def _called(type_: AvroType) -> str:
    return f"{type_.kind} {_shown(type_.full_name)}" if type_.full_name else type_.kind


def _place(path: _Path) -> str:
    parts: list[str] = []
    while path is not None and len(parts) < PLACE_SHOWN_MAX:
        path, name = path
        parts.append(_shown(name) if name == "[]" or path is None else f".{_shown(name)}")
    if path is not None:
        parts.append("...")
    return f"{''.join(reversed(parts))}: " if parts else ""


def _shown(name: str) -> str:
    return name if len(name) <= NAME_SHOWN_MAX else f"{name[:NAME_SHOWN_MAX]}..."
