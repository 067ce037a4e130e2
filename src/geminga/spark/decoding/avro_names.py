"""Names in Avro definitions, each written out with its namespace: two types of one name are two types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_NAMED: Final = ("record", "error", "enum", "fixed")


def short_name(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition(".")[2]


def with_full_names(definition: object) -> Any:  # noqa: ANN401 - as :func:`json.loads` gives it
    """The same definition, in which each type has its full name and each reference is one, if it is known by then."""
    return _written_out(definition, "", set())


def _written_out(definition: object, namespace: str, known: set[str]) -> object:
    if isinstance(definition, list):
        return [_written_out(branch, namespace, known) for branch in definition]
    if isinstance(definition, str):
        return _reference(definition, namespace, known)
    if not isinstance(definition, Mapping) or "type" not in definition:
        return definition
    kind = definition["type"]
    if not isinstance(kind, str) or (kind not in _NAMED and kind not in ("array", "map")):
        return {**definition, "type": _written_out(kind, namespace, known)}
    if kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        return {**definition, inner: _written_out(definition[inner], namespace, known)}
    name = str(definition["name"])
    if "." in name:
        namespace = name.rpartition(".")[0]
    else:
        given = definition.get("namespace")
        namespace = given if isinstance(given, str) else namespace
        name = f"{namespace}.{name}" if namespace else name
    known.add(name)
    made = {**definition, "name": name}
    if kind in ("record", "error"):
        made["fields"] = [
            {**field, "type": _written_out(field["type"], namespace, known)} for field in definition["fields"]
        ]
    return made


def _reference(name: str, namespace: str, known: set[str]) -> str:
    full = f"{namespace}.{name}" if namespace and "." not in name else name
    if full in known or name in known:
        return full if full in known else name
    # Some who write definitions of JSON leave namespaces out; nobody reads them before us.
    alike = [one for one in known if short_name(one) == short_name(name)]
    return alike[0] if len(alike) == 1 else name
