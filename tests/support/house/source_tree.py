"""The code base as data for the tests in ``tests/tidy``: modules with their syntax trees, and the tracked files.

Nothing here imports the product: a module that does not import must still be readable by the tidy tests.
"""

from __future__ import annotations

import ast
import gc
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src"

#: Folders that a checkout may hold and that are made by tools.
_MADE = {".venv", "build", "dist", "out", "__pycache__", ".git", ".hypothesis", ".mypy_cache", ".ruff_cache"}


@dataclass(frozen=True)
class SourceModule:
    """One Python file of the product: dotted name, text, tree; ``package`` is the first name below ``geminga``."""

    name: str
    text: str
    is_package_init: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        # Trees are all that is made here and none of it is garbage: looking for some takes three times the parsing.
        was_on = gc.isenabled()
        gc.disable()
        try:
            return ast.parse(self.text)
        finally:
            if was_on:
                gc.enable()

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree, as :func:`nodes_of` gives them: many rules look at each."""
        return nodes_of(self.tree)

    @cached_property
    def import_statements(self) -> tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]:
        """Each, and whether it is in a function or under TYPE_CHECKING: most rules look at them."""
        return tuple(_import_statements(self.tree.body, is_deferred=False))

    @property
    def package(self) -> str:
        """``broker`` for ``geminga.broker.core.dedup``; empty for the modules right below ``geminga``."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 2 or (self.is_package_init and len(parts) == 2) else ""


def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """What ``ast.walk`` gives, in its order and in a third of its time, but for whether names are loaded or stored."""
    found = [tree]
    for node in found:  # which grows meanwhile
        for name in node._fields:
            if name == "ctx":
                continue
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list):
                found += [one for one in value if isinstance(one, ast.AST)]
    return tuple(found)


@lru_cache(maxsize=1)
def product_modules() -> tuple[SourceModule, ...]:
    """Every hand-written module of the product, in order of name."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if "_generated" in parts:
            continue
        is_init = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_init else parts)
        found.append(SourceModule(name, path.read_text(encoding="utf-8"), is_init))
    return tuple(found)


def tracked_files() -> list[Path]:
    """The files under version control, or, in a tree without git, all that is not made by tools."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [p for p in sorted(ROOT.rglob("*")) if p.is_file() and not _MADE & set(p.relative_to(ROOT).parts)]
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@dataclass(frozen=True)
class ImportedName:
    """One imported module (``from a import b`` counts as ``a.b`` where that is a module, else as ``a``)."""

    target: str
    line: int
    is_deferred: bool  # inside a function or under TYPE_CHECKING: not part of import time


def imports_of(module: SourceModule, known: frozenset[str] = frozenset()) -> Iterator[ImportedName]:
    """Every import statement's targets, absolute; relative ones resolved against the module's name."""
    base = module.name.split(".") if module.is_package_init else module.name.split(".")[:-1]
    for node, is_deferred in module.import_statements:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield ImportedName(alias.name, node.lineno, is_deferred)
        else:
            prefix = base[: len(base) - node.level + 1] if node.level else []
            source = ".".join([*prefix, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{source}.{alias.name}"
                yield ImportedName(full if full in known else source, node.lineno, is_deferred)


def imported_modules(test: SourceModule, modules: Mapping[str, SourceModule]) -> set[str]:
    """The product's modules of which something is imported anywhere in ``test``, be it by way of a package's names.

    Of ``from geminga.bookie import BookieConfig`` that is ``geminga.bookie.config``, from where the package has it.
    """
    known = frozenset(modules)
    found: set[str] = set()
    for node, _ in test.import_statements:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif node.module and not node.level:
            found.update(_origin(node.module, alias.name, modules, known) for alias in node.names)
    return found & known


def _origin(module: str, name: str, modules: Mapping[str, SourceModule], known: frozenset[str]) -> str:
    """The module in which a name is made that another one imports from ``module``."""
    while f"{module}.{name}" not in known and module in modules and modules[module].is_package_init:
        exported = _exports(modules[module], known)
        if exported.get(name, (module, name)) == (module, name):
            return module
        module, name = exported[name]
    full = f"{module}.{name}"
    return full if full in known else module


@cache
def _exports(package: SourceModule, known: frozenset[str]) -> dict[str, tuple[str, str]]:
    """What a package's ``__init__`` imports: name -> (module, name there)."""
    base = package.name.split(".")
    found = {}
    for node, _ in package.import_statements:
        if isinstance(node, ast.ImportFrom):
            prefix = base[: len(base) - node.level + 1] if node.level else []
            source = ".".join([*prefix, *([node.module] if node.module else [])])
            found.update({alias.asname or alias.name: (source, alias.name) for alias in node.names})
    return found


def _asks_for_typing(test: ast.expr) -> bool:
    return any("TYPE_CHECKING" in (getattr(one, "id", ""), getattr(one, "attr", "")) for one in nodes_of(test))


def _import_statements(
    body: list[ast.stmt], *, is_deferred: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    # Blocks alone: an expression holds no import, and most of a tree is expressions.
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, is_deferred
            continue
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        is_typing_block = isinstance(node, ast.If) and _asks_for_typing(node.test)
        inside = is_deferred or is_function or is_typing_block
        for part in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(part, name, None)
                if block:
                    yield from _import_statements(block, is_deferred=inside)
