"""How much one class does, counted along its bases: a class that is cut into files stays as large as it was.

A function counts once, and twice where it only calls the same name of a part: a facade costs a reader two looks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from support.house.source_tree import SourceModule

#: Functions of a class and of its bases.
FUNCTIONS_MAX: Final = 40

#: Those that had more when the rule was made, and how many: they only shrink, and leave the list.
TOWERS: Final[Mapping[str, int]] = MappingProxyType({})

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def tower_heights(modules: Iterable[SourceModule]) -> dict[str, int]:
    """``module.Class`` -> its functions with those of its bases; protocols say what others do, and are left out."""
    classes, named = classes_of(modules)
    found = {}
    for name, node in classes.items():
        if "Protocol" not in map(base_name, node.bases):
            found[name] = sum(_functions(name, classes, named, frozenset()).values())
    return found


def classes_of(modules: Iterable[SourceModule]) -> tuple[dict[str, ast.ClassDef], dict[str, list[str]]]:
    """The classes of modules by ``module.Class``, and by a class's name alone those that have it."""
    classes: dict[str, ast.ClassDef] = {}
    named: dict[str, list[str]] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                classes[f"{module.name}.{node.name}"] = node
                named.setdefault(node.name, []).append(f"{module.name}.{node.name}")
    return classes, named


def _functions(
    name: str, classes: Mapping[str, ast.ClassDef], named: Mapping[str, list[str]], below: frozenset[str]
) -> dict[str, int]:
    """Name of a function -> what it counts; one that is defined again counts as it is there."""
    found: dict[str, int] = {}
    for base in map(base_name, classes[name].bases):
        homes = homes_of(base, name, named)
        if homes and homes[0] not in below:
            found |= _functions(homes[0], classes, named, below | {name})
    for node in classes[name].body:
        if isinstance(node, _Function):
            found[node.name] = 2 if _only_forwards(node) else 1
    return found


def homes_of(base: str, name: str, named: Mapping[str, list[str]]) -> list[str]:
    """Classes that the base of a class may be; of two of one name the nearer module's is meant, which comes first."""
    return sorted(named.get(base, ()), key=lambda home: -_shared(home, name))


def _shared(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one.split("."), other.split("."), strict=False)) if a != b), 99)


def base_name(base: ast.expr) -> str:
    """What a base is called; empty: it is of another library."""
    if isinstance(base, ast.Subscript):
        base = base.value
    if isinstance(base, ast.Attribute):
        # ``h11.Connection``, ``asyncio.Protocol``: of another library, whatever ours of that name do.
        return ""
    return getattr(base, "id", "")


def _only_forwards(function: _Function) -> bool:
    """``def close(self): return self._part.close()``, awaited or not."""
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    value = getattr(body[0], "value", None) if len(body) == 1 else None
    if isinstance(value, ast.Await):
        value = value.value
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and isinstance(value.func.value, ast.Attribute)
        and value.func.attr.strip("_") == function.name.strip("_")
    )


def tower_violations(heights: Mapping[str, int], allowed: Mapping[str, int] = TOWERS) -> list[str]:
    """Classes above the limit that are not on the list or grew, and entries that have shrunk or gone."""
    advice, gone = "take it apart by what decides what", "no class"
    return list_violations(heights, allowed, FUNCTIONS_MAX, what="functions", advice=advice, gone=gone)


def list_violations(
    counts: Mapping[str, int], allowed: Mapping[str, int], limit: int, *, what: str, advice: str, gone: str
) -> list[str]:
    """``counts`` held to ``limit``, and to a list that only shrinks; ``gone``: what is listed and not there is that."""
    found = []
    for name, count in counts.items():
        most = allowed.get(name, limit)
        if count > most:
            found.append(f"{name} has {count} {what} with its bases, {most} are allowed: {advice}")
        elif name in allowed and count < most:
            rest = f"write {count}" if count > limit else "strike it"
            found.append(f"{name} has {count} {what}, the list says {most}: {rest}")
    return found + [f"{name} is on the list and is {gone}" for name in allowed if name not in counts]
