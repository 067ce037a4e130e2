"""What the words of the code name: ``python -m tools.words told place``, ``--homonyms``, ``--base commit``.

A word is *defined* by each class, function, method, field or attribute whose name it is, apart from underscores and
``is_``, ``has_``, ``was_``: two definitions in one module are one thing, in two modules they are as a rule two, and
a reader has to know which is meant. ``--homonyms`` lists the public classes whose name several modules define, but for
those that stand for each other: the asyncio client and its blocking facade, the typed client of the admin REST and
what it is about, and errors as clients and as brokers see them. docs/glossary.md has the outcome.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from bench.compare import unpack

ROOT: Final = Path(__file__).resolve().parents[1]
_PREFIXES: Final = ("is_", "has_", "was_")
#: What both sides of a facade define.
_FACADES: Final = ("client/blocking/", "client/_api/errors.py", "admin/")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

#: By name: the modules that define it, below ``geminga``.
Definitions = Mapping[str, set[str]]


def modules_of(source: Path) -> Iterator[tuple[str, ast.Module]]:
    """Each hand-written module of the product below ``source``, with its syntax tree."""
    package = source / "geminga"
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not name.startswith("wire/_generated/"):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def word_of(name: str) -> str:
    """The word that a name is: ``_is_told`` is ``told``, ``BookiePlace`` ``bookie_place``."""
    word = _CAMEL.sub("_", name.strip("_")).lower()
    return next((word.removeprefix(prefix) for prefix in _PREFIXES if word.startswith(prefix)), word)


def names_defined(tree: ast.Module) -> Iterator[str]:
    """Classes, functions, methods, fields, and attributes of ``self``; parameters and local names are not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (
                target.attr
                for target in targets
                if isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            )
        if isinstance(node, ast.ClassDef):
            yield from (
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            )


def defined_words(modules: Iterable[tuple[str, ast.Module]]) -> Definitions:
    """By word."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, tree in modules:
        for name in names_defined(tree):
            found[word_of(name)].add(module)
    return found


def homonyms(modules: Iterable[tuple[str, ast.Module]]) -> Definitions:
    """Public classes by name that several modules define; see the module for those that are left out."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, tree in modules:
        if not module.startswith(_FACADES):
            for node in _classes(tree):
                if not node.name.startswith("_"):
                    found[node.name].add(module)
    return {name: where for name, where in sorted(found.items()) if len(where) > 1}


def _classes(node: ast.AST) -> Iterator[ast.ClassDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield child
        # An expression holds none, and most of a tree is expressions.
        if not isinstance(child, ast.expr):
            yield from _classes(child)


def _counted(source: Path, words: list[str]) -> dict[str, list[str]]:
    modules = list(modules_of(source))
    if not words:
        return {name: sorted(where) for name, where in homonyms(modules).items()}
    found = defined_words(modules)
    return {word: sorted(found.get(word_of(word), ())) for word in words}


def main(arguments: list[str] | None = None) -> int:
    """Print what was asked for; raises BenchError where there is no such commit."""
    parser = argparse.ArgumentParser(prog="python -m tools.words", description=__doc__)
    parser.add_argument("word", nargs="*", help="a word, as told or place")
    parser.add_argument("--homonyms", action="store_true", help="classes whose name several modules define")
    parser.add_argument("--base", help="a commit to lay beside")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if bool(options.word) == options.homonyms:
        parser.error("expected words, or --homonyms")
    trees = {"now": _counted(ROOT / "src", options.word)}
    if options.base:
        with tempfile.TemporaryDirectory(prefix="words-") as directory:
            trees = {options.base: _counted(unpack(options.base, Path(directory)), options.word), **trees}
    if options.json:
        print(json.dumps(trees))
        return 0
    for tree, found in trees.items():
        total = f"{len(found)} names, {sum(map(len, found.values()))} definitions"
        print(f"{tree}: {total}")
        for name, where in found.items():
            print(f"  {name:24} {len(where):3}  {' '.join(where)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
