"""How many booleans the state of one class has, along its bases: n of them are 2**n states, most of them never meant.

A boolean that excludes another is one value of an ``Enum`` (``broker/connection/core/states.py``); several that say why
something must wait are a set of reasons (``broker/connection/core/read_gate.py``). What can not change is no state:
frozen dataclasses, named tuples and enums are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from support.house.source_tree import SourceModule, nodes_of
from support.house.towers import base_name, classes_of, homes_of, list_violations

#: Boolean attributes of a class and of its bases.
BOOLEANS_MAX: Final = 5

#: Those that had more when the rule was made, and how many: they only shrink, and leave the list.
MANY_BOOLEANS: Final[Mapping[str, int]] = MappingProxyType({})

_FIXED_BASES: Final = frozenset({"Protocol", "NamedTuple", "Enum", "IntEnum", "IntFlag", "TypedDict"})


def boolean_counts(modules: Iterable[SourceModule]) -> dict[str, int]:
    """``module.Class`` -> its boolean attributes with those of its bases."""
    classes, named = classes_of(modules)
    return {
        name: len(_booleans(name, classes, named, frozenset()))
        for name, node in classes.items()
        if not _FIXED_BASES & set(map(base_name, node.bases)) and not _is_frozen(node)
    }


def _booleans(
    name: str, classes: Mapping[str, ast.ClassDef], named: Mapping[str, list[str]], below: frozenset[str]
) -> set[str]:
    found = set(_own_booleans(classes[name]))
    for base in map(base_name, classes[name].bases):
        homes = homes_of(base, name, named)
        if homes and homes[0] not in below:
            found |= _booleans(homes[0], classes, named, below | {name})
    return found


def _own_booleans(node: ast.ClassDef) -> Iterator[str]:
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and _says_bool(part.annotation):
            yield part.target.id
        elif isinstance(part, ast.Assign) and _is_boolean(part.value, frozenset()):
            yield from (target.id for target in part.targets if isinstance(target, ast.Name))
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*part.args.posonlyargs, *part.args.args, *part.args.kwonlyargs]
            parameters = frozenset(one.arg for one in arguments if _says_bool(one.annotation))
            yield from _assigned(part, parameters if part.name == "__init__" else frozenset())


def _assigned(function: ast.FunctionDef | ast.AsyncFunctionDef, parameters: frozenset[str]) -> Iterator[str]:
    """Attributes of ``self`` that are given a truth value or a boolean parameter, or are annotated so."""
    for node in nodes_of(function):
        pairs: list[tuple[ast.expr, bool]] = []
        if isinstance(node, ast.AnnAssign):
            pairs = [(node.target, _says_bool(node.annotation))]
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    values = node.value.elts
                    pairs += [(one, _is_boolean(it, parameters)) for one, it in zip(target.elts, values, strict=False)]
                else:
                    pairs.append((target, _is_boolean(node.value, parameters)))
        for target, is_boolean in pairs:
            if is_boolean and isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self":
                yield target.attr


def _is_boolean(value: ast.expr, parameters: frozenset[str]) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, bool)
    if isinstance(value, ast.Name):
        return value.id in parameters
    return isinstance(value, ast.Compare) or (isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not))


def _says_bool(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "bool"


def _is_frozen(node: ast.ClassDef) -> bool:
    """``@dataclass(frozen=True)``."""
    return any(
        isinstance(decorator, ast.Call)
        and any(word.arg == "frozen" and getattr(word.value, "value", False) for word in decorator.keywords)
        for decorator in node.decorator_list
    )


def boolean_violations(counts: Mapping[str, int], allowed: Mapping[str, int] = MANY_BOOLEANS) -> list[str]:
    """Classes above the budget that are not on the list or grew, and entries that have shrunk or gone."""
    advice, gone = "one value says in what state it is", "no class with state"
    return list_violations(counts, allowed, BOOLEANS_MAX, what="booleans", advice=advice, gone=gone)
