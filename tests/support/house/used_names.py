"""Names of the product that only tests use, or nobody.

They are found by name alone: what is used anywhere counts as used. A use is a name, an attribute, a keyword, or a text
that is a dotted name, outside of ``__all__`` and of imports; who uses are the product, benches, demos, tools, examples.
Not looked for are names that others call: what public packages export, with its members, commands and fixtures, and
methods of classes that extend a library's.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from support.house.source_tree import SourceModule, nodes_of, product_modules

#: Packages whose ``__all__`` is what users import.
PUBLIC: Final = (
    "__init__.py",
    "client/__init__.py",
    "client/failover/__init__.py",
    "client/blocking/__init__.py",
    "client/schema/__init__.py",
    "sim/__init__.py",
    "spark/__init__.py",
    "spark/pipelines/__init__.py",
)
_REGISTERING: Final = re.compile(r"\.command\b|\bfixture\b|^_shows\b")
#: Bases that call no method.
_NO_LIBRARY: Final = frozenset(
    {"NamedTuple", "Enum", "IntEnum", "StrEnum", "IntFlag", "Protocol", "Generic", "Exception", "TypedDict", "object"}
)
_TEXT: Final = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


class Defined(NamedTuple):
    """A public function, class, method or constant of the product."""

    #: ``bookie/journal.py``.
    module: str
    #: ``Journal.append``.
    name: str


def uses_of(tree: ast.Module) -> Counter[str]:
    """How often each name is used."""
    found: Counter[str] = Counter()
    for node in nodes_of(tree):
        if isinstance(node, ast.Name):
            found[node.id] += isinstance(node.ctx, ast.Load)
        elif isinstance(node, ast.Attribute):
            found[node.attr] += 1
        elif isinstance(node, ast.keyword) and node.arg:
            found[node.arg] += 1
        elif isinstance(node, ast.alias) and node.asname:
            found[node.name] += 1  # used by its other name
        elif isinstance(node, ast.MatchClass):
            found.update(node.kwd_attrs)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _TEXT.fullmatch(node.value):
            found.update(node.value.split("."))
    found.subtract(exports_of(tree))
    return found


def exports_of(tree: ast.Module) -> list[str]:
    """``__all__``."""
    return [
        part.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for part in ast.walk(node.value)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


def definitions(modules: Mapping[str, ast.Module]) -> Iterator[Defined]:
    """Of the product; ``modules`` by path below ``geminga``."""
    classes = {node.name for tree in modules.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    exported = {name for path in PUBLIC if path in modules for name in exports_of(modules[path])}
    for module, tree in modules.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if node.name.startswith("_") or node.name in exported or _is_registered(node):
                    continue
                yield Defined(module, node.name)
                if isinstance(node, ast.ClassDef) and not _extends_a_library(node, classes):
                    yield from _methods(module, node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and not target.id.startswith("_") and target.id not in exported:
                    yield Defined(module, target.id)


def _methods(module: str, owner: ast.ClassDef) -> Iterator[Defined]:
    for node in owner.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield Defined(module, f"{owner.name}.{node.name}")


def _is_registered(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(_REGISTERING.search(ast.unparse(one)) for one in node.decorator_list)


def _extends_a_library(node: ast.ClassDef, classes: set[str]) -> bool:
    names = {ast.unparse(base).partition("[")[0] for base in node.bases}
    return any(name.rpartition(".")[2] not in classes for name in names - _NO_LIBRARY)


def unused(modules: Mapping[str, ast.Module], others: Iterable[ast.Module]) -> list[Defined]:
    """What neither the product nor ``others`` use, in the order of the modules."""
    used: Counter[str] = Counter()
    for tree in [*modules.values(), *others]:
        used.update(uses_of(tree))
    return [each for each in definitions(modules) if used[each.name.rpartition(".")[2]] <= 0]


def product_trees() -> dict[str, ast.Module]:
    """Of the product, by path below ``geminga``."""
    return {_path_of(module): module.tree for module in product_modules() if module.name.startswith("geminga")}


def _path_of(module: SourceModule) -> str:
    path = "/".join(module.name.split(".")[1:])
    return f"{path}/__init__.py".lstrip("/") if module.is_package_init else f"{path}.py"


def trees_below(*folders: Path) -> dict[str, ast.Module]:
    """The hand-written modules below folders, by their paths from there."""
    return {
        path.relative_to(folder).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        if "_generated" not in path.parts
    }
