"""Avro types as rows name them, and schemas made of them as Java's Avro writes them. Pure.

A type is a name (``"int"``), or one of the objects made here, with full names. Fields of a record are in alphabetical
order, whatever order they are given in, as Pulsar's are; a named type is written once, and then named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.broker.core.coercion import Json
from geminga.model.errors import CorruptionError

AvroType = object

_NAMED: Final = ("record", "enum")
_PLAIN: Final = frozenset(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
#: What Java writes where a primitive field was never set.
_ZEROS: Final[Mapping[str, object]] = {"boolean": False, "int": 0, "long": 0, "float": 0.0, "double": 0.0}


def record(name: str, fields: Mapping[str, AvroType]) -> dict[str, AvroType]:
    """A record; ``name`` in full. What is no number or boolean of Java's own may be null."""
    return {"type": "record", "name": name, "fields": dict(fields)}


def enum(name: str, *symbols: str) -> dict[str, AvroType]:
    """An enumeration; ``name`` in full."""
    return {"type": "enum", "name": name, "symbols": list(symbols)}


def array(items: AvroType, java_class: str = "java.util.List") -> dict[str, AvroType]:
    """A list or set."""
    return {"type": "array", "items": items, "java-class": java_class}


def mapping(values: AvroType) -> dict[str, AvroType]:
    """A map from texts."""
    return {"type": "map", "values": values}


def optional(kind: AvroType) -> list[AvroType]:
    """The type, or null."""
    return ["null", kind]


def written(kind: AvroType) -> AvroType:
    """The type as a schema document."""
    return _written(kind, "", set())


def _written(kind: AvroType, space: str, defined: set[str]) -> AvroType:
    if isinstance(kind, list):
        return [_written(member, space, defined) for member in kind]
    if not isinstance(kind, dict):
        return kind
    if kind["type"] in _NAMED:
        return _named(kind, space, defined)
    nested = {key: _written(kind[key], space, defined) for key in ("items", "values") if key in kind}
    return {**kind, **nested}


def _named(kind: dict[str, AvroType], space: str, defined: set[str]) -> AvroType:
    name = str(kind["name"])
    own, _, short = name.rpartition(".")
    if name in defined:
        return short if own == space else name
    defined.add(name)
    found: dict[str, AvroType] = {"type": kind["type"], "name": short}
    if own != space:
        found["namespace"] = own
    if kind["type"] == "enum":
        return {**found, "symbols": kind["symbols"]}
    fields = kind["fields"]
    assert isinstance(fields, dict)
    found["fields"] = [_field(key, fields[key], own, defined) for key in sorted(fields)]
    return found


def _field(name: str, kind: AvroType, space: str, defined: set[str]) -> dict[str, AvroType]:
    found: dict[str, AvroType] = {"name": name, "type": _written(kind, space, defined)}
    if isinstance(kind, list):
        found["default"] = None
    return found


def parsed(document: Json) -> AvroType:
    """The type that a schema document is: the inverse of :func:`written`. Raises CorruptionError.

    References become the types they name, so that a type may contain itself.
    """
    return _parsed(document, "", {})


def _parsed(kind: AvroType, space: str, names: dict[str, AvroType]) -> AvroType:
    if isinstance(kind, str):
        return kind if kind in _PLAIN else _named_before(kind, space, names)
    if isinstance(kind, list):
        return [_parsed(member, space, names) for member in kind]
    if not isinstance(kind, dict) or "type" not in kind:
        raise CorruptionError(f"an Avro schema has {type(kind).__name__} where a type belongs")
    what = kind["type"]
    if what in ("array", "map"):
        nested = "items" if what == "array" else "values"
        return {**kind, nested: _parsed(kind.get(nested), space, names)}
    if what not in (*_NAMED, "fixed"):
        # A type in a wrapping of attributes; what they mean (a logical type) is not looked at.
        return _parsed(what, space, names)
    name = str(kind.get("name"))
    if "." not in name and kind.get("namespace", space):
        name = f"{kind.get('namespace', space)}.{name}"
    found: dict[str, AvroType] = {"type": what, "name": name}
    names[name] = found
    if what == "enum":
        found["symbols"] = kind.get("symbols")
    elif what == "fixed":
        found["size"] = kind.get("size")
    else:
        found["fields"] = _parsed_fields(kind.get("fields"), name.rpartition(".")[0], names)
    return found


def _parsed_fields(fields: AvroType, space: str, names: dict[str, AvroType]) -> dict[str, AvroType]:
    if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
        raise CorruptionError("a record of an Avro schema has no list of fields")
    return {str(field.get("name")): _parsed(field.get("type"), space, names) for field in fields}


def _named_before(name: str, space: str, names: dict[str, AvroType]) -> AvroType:
    for full in (name, f"{space}.{name}"):
        if full in names:
            return names[full]
    raise CorruptionError(f"an Avro schema names the type {name} before it is there")


def fitted(value: object, kind: AvroType) -> object:
    """A value as a record of this type can be written: what Java's primitive fields can not lack is zero or false."""
    if isinstance(kind, list):
        if value is None and "null" in kind:
            return None
        others = [member for member in kind if member != "null"]
        return fitted(value, others[0]) if len(others) == 1 else value
    if isinstance(kind, dict) and isinstance(value, dict):
        fields = kind.get("fields")
        if kind["type"] == "record" and isinstance(fields, dict):
            return {name: fitted(value.get(name), field) for name, field in fields.items()}
        if kind["type"] == "map":
            return {key: fitted(member, kind["values"]) for key, member in value.items()}
    if isinstance(kind, dict) and kind["type"] == "array" and isinstance(value, list):
        return [fitted(member, kind["items"]) for member in value]
    return _ZEROS.get(kind, value) if value is None and isinstance(kind, str) else value


def united(ours: AvroType, theirs: AvroType) -> AvroType:
    """A type that holds what either holds; where they disagree, theirs, by which the values at hand were written."""
    return _Union(ours, theirs).of(ours, theirs)


class _Union:
    """A named type is united wherever it stands, also in a field that only one of the two has."""

    def __init__(self, ours: AvroType, theirs: AvroType) -> None:
        self._ours: dict[str, dict[str, AvroType]] = {}
        self._theirs: dict[str, dict[str, AvroType]] = {}
        _collect(ours, self._ours)
        _collect(theirs, self._theirs)
        self._done: dict[str, AvroType] = {}

    def of(self, ours: AvroType, theirs: AvroType) -> AvroType:
        if isinstance(theirs, list):
            branch = _single(theirs)
            other = _single(ours) if isinstance(ours, list) else ours
            return [member if member == "null" else self.of(other if branch else member, member) for member in theirs]
        if not isinstance(theirs, dict):
            return theirs
        what = theirs["type"]
        if what in ("array", "map"):
            nested = "items" if what == "array" else "values"
            is_same = isinstance(ours, dict) and ours["type"] == what
            other = ours[nested] if is_same and isinstance(ours, dict) else theirs[nested]
            return {**theirs, nested: self.of(other, theirs[nested])}
        return self._named(str(theirs["name"]))

    def _named(self, name: str) -> AvroType:
        if name in self._done:
            return self._done[name]
        ours, theirs = self._ours.get(name), self._theirs.get(name)
        present = theirs or ours
        assert present is not None
        self._done[name] = found = dict(present)
        other = ours if ours is not None and ours["type"] == present["type"] else present
        if present["type"] == "enum":
            found["symbols"] = list(dict.fromkeys([*_listed(present["symbols"]), *_listed(other["symbols"])]))
        elif present["type"] == "record":
            mine, fields = _fields(other), _fields(present)
            found["fields"] = {
                key: self.of(mine.get(key, fields.get(key)), fields.get(key, mine.get(key)))
                for key in dict.fromkeys([*fields, *mine])
            }
        return found


def _collect(kind: AvroType, names: dict[str, dict[str, AvroType]]) -> None:
    if isinstance(kind, list):
        for member in kind:
            _collect(member, names)
    elif isinstance(kind, dict):
        if "name" in kind:
            if kind["name"] in names:
                return
            names[str(kind["name"])] = kind
        for member in (kind.get("items"), kind.get("values"), *_fields(kind).values()):
            _collect(member, names)


def _fields(kind: dict[str, AvroType]) -> dict[str, AvroType]:
    fields = kind.get("fields")
    return fields if isinstance(fields, dict) else {}


def _single(kind: list[AvroType]) -> AvroType:
    others = [member for member in kind if member != "null"]
    return others[0] if len(others) == 1 else None


def _listed(value: AvroType) -> list[AvroType]:
    return value if isinstance(value, list) else []
