"""Random one-line changes of a module, found in its syntax tree: comparison flipped, off by one, dropped call, swapped
branch.

Left alone is what no test is about: texts (messages of errors and of the log, ``__repr__``), invariants and assertions
(they say what can not happen), type checks, what is evaluated when the module is imported.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.mutants.plan import Mutant, Package

_FLIPPED: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", ">="),
    ast.GtE: (">=", "<"),
    ast.Gt: (">", "<="),
    ast.LtE: ("<=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_NEXT: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
}
#: Calls whose absence or arguments nobody promises anything about.
_NO_PROMISE: Final = re.compile(
    r"(^|[._])(log|logger|invariant|isinstance|crash_point|check_invariants)$|(^|[._])log(ger)?\."
)
_NO_PROMISE_FUNCTIONS: Final = frozenset({"__repr__", "__str__", "check_invariants"})

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class _Edit:
    """``source[start:end]`` becomes ``text``."""

    start: int
    end: int
    text: str
    operation: str


def draw(packages: list[Package], root: Path, *, seed: int, count: int, below: Sequence[str] = ()) -> list[Mutant]:
    """``count`` changes of the modules that the packages name, in the folders ``below`` if there are any.

    Each possible change has a number made of the seed and itself, and the smallest are drawn: what changes elsewhere in
    the tree hardly changes who is drawn.
    """

    def number(mutant: Mutant) -> bytes:
        return hashlib.sha256(repr((seed, mutant.key)).encode()).digest()

    every = [m for m in every_change(packages, root) if not below or m.file.startswith(tuple(below))]
    return sorted(every, key=number)[:count]


def every_change(packages: list[Package], root: Path) -> list[Mutant]:
    """All changes that could be drawn, in order of package, file and place; what stands in a list is not drawn."""
    found = []
    for package in packages:
        listed = {mutant.key for mutant in (*package.mutants, *package.equivalents)}
        for file in package.drawn_files(root):
            changes = changes_of(package.name, file, (root / file).read_text(encoding="utf-8"))
            found += [mutant for mutant in changes if mutant.key not in listed]
    return found


def changes_of(package: str, file: str, source: str) -> Iterator[Mutant]:
    """Every change of one module, each with a source of its own."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    text = source.encode()
    seen = set()
    for edit in _edits(ast.parse(source), text, starts):
        # As many lines as before: what fails is found at the line that was shown.
        missing = text[edit.start : edit.end].count(b"\n") - edit.text.count("\n")
        changed = (text[: edit.start] + edit.text.encode() + b"\n" * missing + text[edit.end :]).decode()
        if changed in seen:
            continue
        seen.add(changed)
        line = text[: edit.start].count(b"\n")
        before, after = source.split("\n")[line].strip(), changed.split("\n")[line].strip()
        yield Mutant(package, file, line + 1, before, after, edit.operation, changed, operation=edit.operation)


def _edits(tree: ast.Module, text: bytes, starts: list[int]) -> Iterator[_Edit]:
    for function in _functions(tree):
        if function.name in _NO_PROMISE_FUNCTIONS:
            continue
        for statement in function.body:
            for node in _promising(statement):
                yield from _of_node(node, text, starts)


def _functions(tree: ast.AST) -> Iterator[_Function]:
    """Functions and methods; those within others come with these."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _Function):
            yield node
        elif isinstance(node, ast.ClassDef | ast.If | ast.Try):
            yield from _functions(node)


def _promising(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement about which a test can say something."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or getattr(node, "arg", None) == "strict":
        return
    if _is_of_no_promise(node):
        return
    if isinstance(node, ast.If) and not node.orelse and all(map(_is_of_no_promise, node.body)):
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "args") and isinstance(node, _Function | ast.AnnAssign):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _promising(child)


def _is_of_no_promise(node: ast.AST) -> bool:
    called = node.value if isinstance(node, ast.Expr) else node
    return isinstance(called, ast.Call) and _NO_PROMISE.search(ast.unparse(called.func)) is not None


def _of_node(node: ast.AST, text: bytes, starts: list[int]) -> Iterator[_Edit]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _of_comparison(node, text, starts)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = node.right
        if isinstance(right, ast.Constant) and right.value == 1:
            start, end = _span(right, starts)
            yield _Edit(start, end, "2", "off by one")
    elif isinstance(node, ast.Expr) and isinstance(_awaited(node.value), ast.Call):
        start, end = _span(node, starts)
        yield _Edit(start, end, "pass", "dropped call")
    elif isinstance(node, ast.If | ast.IfExp):
        test = node.test
        is_one_comparison = isinstance(test, ast.Compare) and len(test.ops) == 1
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            start, end = _span(test, starts)
            operand = _span(test.operand, starts)
            yield _Edit(start, end, text[slice(*operand)].decode(), "swapped branch")
        elif not is_one_comparison and not (isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance"):
            start, end = _span(test, starts)
            yield _Edit(start, end, f"not ({text[start:end].decode()})", "swapped branch")


def _awaited(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Await) else node


def _of_comparison(node: ast.Compare, text: bytes, starts: list[int]) -> Iterator[_Edit]:
    start = _span(node.left, starts)[1]
    end = _span(node.comparators[0], starts)[0]
    for operation, table in (("comparison flipped", _FLIPPED), ("off by one", _NEXT)):
        change = table.get(type(node.ops[0]))
        if change is None:
            continue
        match = re.search(rb"\s+".join(re.escape(word.encode()) for word in change[0].split()), text[start:end])
        if match is not None:
            yield _Edit(start + match.start(), start + match.end(), change[1], operation)


def _span(node: ast.expr | ast.stmt, starts: list[int]) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
