"""What mypyc can not compile, or compiles into something else: rules for the modules that pyproject.toml lists.

Each was met: a listed module that broke one was refused, ended the process, or did another thing than its source says.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
#: Bases whose classes are no extension classes.
FREE: Final = frozenset({"Protocol", "NamedTuple", "IntEnum", "Enum", "StrEnum", "TypedDict"})
ENUMS: Final = frozenset({"Enum", "IntEnum", "StrEnum"})


def compiled_modules() -> list[str]:
    """As pyproject.toml lists them."""
    listed: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["geminga"]["compiled"]
    return listed


def faults(nodes: Mapping[str, Sequence[ast.AST]], compiled: set[str]) -> list[str]:
    """Of all modules, by name all nodes of each: where a rule is broken, one line each."""
    defined = {module: [node for node in of if isinstance(node, ast.ClassDef)] for module, of in nodes.items()}
    classes = {(module, node.name): node for module, them in defined.items() for node in them}
    found: list[str] = []
    for module, of in nodes.items():
        imported = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in of
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        for node in defined[module]:
            for base in map(_name, node.bases):
                place = imported.get(base, (module, base))
                if place not in classes or FREE & set(map(_name, classes[place].bases)):
                    continue
                if place[0] in compiled and module not in compiled:
                    found.append(f"{module}.{node.name} extends {base}, which is compiled: it must be compiled too")
                if module in compiled and place[0] not in compiled and _has_slots(classes[place]):
                    found.append(f"{module}.{node.name} is compiled and extends {base}, which has slots and is not")
        if module in compiled:
            found += [f"{module}:{line}: {what}" for line, what in sorted(_within(of))]
    return found


def _within(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.AsyncFunctionDef):
            for inner in _own(node):
                if isinstance(inner, ast.Raise) and inner.exc is None:
                    yield (
                        inner.lineno,
                        "raise in async def must name its error: another may have been handled meanwhile",
                    )
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "decode":
            if not node.args and any(keyword.arg == "errors" for keyword in node.keywords):
                yield node.lineno, "decode(errors=...) is taken for the encoding: name both, by position"
        elif isinstance(node, ast.ClassDef):
            yield from _of_kind(node)
            methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
            for one in node.body:
                if isinstance(one, ast.Assign) and isinstance(one.value, ast.Name) and one.value.id in methods:
                    yield one.lineno, f"a second name for the method {one.value.id} is looked for in the module"


def _of_kind(node: ast.ClassDef) -> Iterator[tuple[int, str]]:
    bases = set(map(_name, node.bases))
    for one in node.body:
        if "NamedTuple" in bases and isinstance(one, ast.AnnAssign):
            if any(isinstance(part, ast.Name) and part.id == "memoryview" for part in ast.walk(one.annotation)):
                yield one.lineno, "a memoryview in a NamedTuple is looked for in the module"
        elif bases & ENUMS and isinstance(one, ast.FunctionDef) and one.name == "__init__":
            yield one.lineno, "an enum whose members are made by __init__ takes none of its own for self"


def _own(function: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Nodes of the function itself, without those of functions in it."""
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            left += ast.iter_child_nodes(node)


def _name(base: ast.expr) -> str:
    while isinstance(base, ast.Subscript):
        base = base.value
    return base.id if isinstance(base, ast.Name) else ""


def _has_slots(node: ast.ClassDef) -> bool:
    for one in node.body:
        if isinstance(one, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__slots__" for t in one.targets):
            return not (isinstance(one.value, ast.Tuple) and not one.value.elts)
    return False
