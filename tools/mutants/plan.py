"""What is changed, and which tests must notice: packages and their mutants, read from ``packages/*.toml``.

Each file is one package: ``sources`` (where its code lies), ``tests`` (files and folders; chosen for the package, never
for a line), ``without`` (of these, tests of processes of their own, which a change in this one does not reach),
``drawn`` (modules and folders from which random changes are drawn: those that decide; where code chooses between
layouts, caches or batches that give the same answers, most changes can not be noticed), and then

- ``[[mutant]]``: ``file``, ``before`` (the line without indentation, there once, or once ``within`` the class or
  function named), ``after``, ``why`` it matters;
- ``[[equivalent]]``: the same, for a change that nobody can notice; ``why`` is the proof.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
PACKAGES: Final = HERE / "packages"
#: More changes than this said to be equivalent in one run, and somebody is looking away.
EQUIVALENTS_MAX: Final = 5


class PlanError(Exception):
    """A package file that says what is not so: the run ends before it starts."""


@dataclass(frozen=True)
class Mutant:
    """One change of one line."""

    package: str
    #: Below the root of the tree.
    file: str
    #: Of the line, from 1.
    line: int
    before: str
    after: str
    why: str
    #: The whole file with the change in it; as many lines as before.
    source: str
    #: What kind of change was drawn; empty for one from the list.
    operation: str = ""
    #: It is claimed that nobody can notice.
    is_equivalent: bool = False

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same when lines move."""
        return self.file, self.before, self.after


@dataclass(frozen=True)
class Package:
    """A part of the product and its tests."""

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...]
    drawn: tuple[str, ...]
    mutants: tuple[Mutant, ...]
    equivalents: tuple[Mutant, ...]
    #: Why lines of the lists do not stand in their files any more.
    stale: tuple[str, ...]

    def drawn_files(self, root: Path) -> Iterator[str]:
        """The modules from which changes are drawn, below ``root``, in order."""
        for name in self.drawn:
            path = root / name
            if not path.exists():
                raise PlanError(f"{self.name}: there is no {name}")
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                yield file.relative_to(root).as_posix()


def everywhere(root: Path) -> Package:
    """All modules of the product that somebody wrote, with no tests of their own."""
    files = (file.relative_to(root).as_posix() for file in sorted((root / "src").rglob("*.py")))
    drawn = tuple(file for file in files if "/_generated/" not in file)
    return Package("everywhere", ("src/",), (), (), drawn, (), (), ())


def load_packages(root: Path, directory: Path = PACKAGES) -> list[Package]:
    """Every package of ``directory``, in order of name. Raises PlanError."""
    files = sorted(directory.glob("*.toml"))
    if not files:
        raise PlanError(f"no package in {directory}")
    return [_package(root, file) for file in files]


def find_mutant(root: Path, why: str, directory: Path = PACKAGES) -> Mutant:
    """The one mutant that the lists describe so; lines of the others are not looked for. Raises PlanError."""
    told = [
        (file.stem, tuple(package["sources"]), entry)
        for file in sorted(directory.glob("*.toml"))
        for package in [_read(file)]
        for entry in package.get("mutant", [])
        if entry.get("why") == why
    ]
    if len(told) != 1:
        raise PlanError(f"{len(told)} mutants are there for: {why}")
    [(name, sources, entry)] = told
    mutant = _mutant(root, name, entry, sources, is_equivalent=False)
    if not isinstance(mutant, Mutant):
        raise PlanError(mutant)
    return mutant


@cache
def _read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _package(root: Path, file: Path) -> Package:
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
        name = file.stem
        stale: list[str] = []
        found: dict[str, list[Mutant]] = {"mutant": [], "equivalent": []}
        for kind, mutants in found.items():
            for entry in told.get(kind, []):
                mutant = _mutant(root, name, entry, tuple(told["sources"]), is_equivalent=kind == "equivalent")
                if isinstance(mutant, Mutant):
                    mutants.append(mutant)
                else:
                    stale.append(mutant)
        for test in (*told["tests"], *told.get("without", ())):
            if not (root / test).exists():
                raise PlanError(f"{name}: there is no {test}")
        return Package(
            name,
            tuple(told["sources"]),
            tuple(told["tests"]),
            tuple(told.get("without", ())),
            tuple(told["drawn"]),
            tuple(found["mutant"]),
            tuple(found["equivalent"]),
            tuple(stale),
        )
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise PlanError(f"{file.name}: {error}") from error


def _mutant(
    root: Path, package: str, entry: dict[str, Any], sources: tuple[str, ...], *, is_equivalent: bool
) -> Mutant | str:
    """The mutant, or why its line can not be changed."""
    file, before, after = str(entry["file"]), str(entry["before"]), str(entry["after"])
    if not file.startswith(sources):
        raise PlanError(f"{package}: {file} is not in its sources")
    path = root / file
    if not path.is_file():
        return f"{file}: is gone"
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    places = range(len(lines))
    within = entry.get("within")
    if within is not None:
        extent = _extent(text, within)
        if extent is None:
            return f"{file}: has no {within}"
        places = extent
    numbers = [number for number in places if lines[number].strip() == before]
    if len(numbers) != 1:
        return f"{file}: {len(numbers)} lines read {before!r}{f' in {within}' if within else ''}"
    [number] = numbers
    indentation = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
    lines[number] = indentation + after
    source = "\n".join(lines)
    try:
        ast.parse(_statement(text, lines, number))
    except SyntaxError as error:
        return f"{file}: {after!r} is no line of Python: {error.msg}"
    return Mutant(package, file, number + 1, before, after, str(entry["why"]), source, is_equivalent=is_equivalent)


def _extent(source: str, within: str) -> range | None:
    """The line numbers, from 0, of the class or function with this qualified name."""
    body = _body(source)
    node: ast.stmt | None = None
    for name in within.split("."):
        node = next((n for n in ast.walk(ast.Module(body, [])) if getattr(n, "name", None) == name), None)  # type: ignore[misc]
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        body = node.body
    assert node is not None
    return range(node.lineno - 1, node.end_lineno or node.lineno)


def _statement(before: str, lines: list[str], number: int) -> str:
    """The whole statement, of the module's, that has the line ``number`` of ``lines``; ``before``: unchanged."""
    for node in _body(before):
        first = min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))]) - 1
        last = node.end_lineno or node.lineno
        if first <= number < last:
            return "\n".join(lines[first:last])
    return "\n".join(lines)


@lru_cache(maxsize=1)
def _body(source: str) -> list[ast.stmt]:
    # Lines of one file stand together in the lists.
    return ast.parse(source).body
