"""Where two JSON documents differ: in names, kinds or values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Difference(NamedTuple):
    """One place where two documents differ."""

    #: Names from the outside in, with dots; an item of a list is ``[]``.
    path: str
    #: ``names`` for what only one has, another kind of value or another number of items, else ``values``.
    what: str
    how: str


def differences(first: object, second: object, path: str = "") -> Iterator[Difference]:
    """Everything in which ``second`` differs from ``first``."""
    if _kind(first) != _kind(second):
        yield Difference(path, "names", f"{_kind(first)} is {_kind(second)}")
    elif isinstance(first, dict) and isinstance(second, dict):
        for key in sorted({*first, *second}):
            below = f"{path}.{key}" if path else key
            if key not in second:
                yield Difference(below, "names", "missing")
            elif key not in first:
                yield Difference(below, "names", "extra")
            else:
                yield from differences(first[key], second[key], below)
    elif isinstance(first, list) and isinstance(second, list):
        if len(first) != len(second):
            yield Difference(path, "names", f"{len(first)} items are {len(second)}")
        for left, right in zip(first, second, strict=False):
            yield from differences(left, right, f"{path}[]")
    elif first != second:
        yield Difference(path, "values", f"{first!r} is {second!r}")


def names(document: object, keyed: frozenset[str], path: str = "") -> Iterator[tuple[str, str]]:
    """(Path, name) of every object of the document; in objects called as in ``keyed`` the names are the users'."""
    if isinstance(document, dict):
        is_keyed = path.rpartition(".")[2] in keyed
        for key, value in document.items():
            if not is_keyed:
                yield path, key
            below = f"{path}.{{}}" if is_keyed else f"{path}.{key}" if path else key
            yield from names(value, keyed, below)
    elif isinstance(document, list):
        for item in document:
            yield from names(item, keyed, f"{path}[]")


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__
