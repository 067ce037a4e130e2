"""The loops of the product that work in batches, found in its syntax trees.

A loop works in batches if what it takes at a time is bounded by a number that has a name: ``range(0, n, STEP)``,
``islice(rows, N)``, ``names[:LIMIT]``, ``data[at : at + SIZE]``, a scan or read that is asked for a limited number of
rows or bytes. Whoever stops after the first batch passes every test that has only one: so each of them has a change in
``packages/*.toml`` that stops it (``why`` begins with ``stops after the first batch``), or a reason in ``batches.toml``
why that can not be seen. ``python -m tools.mutants.batches`` prints them.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.mutants.plan import HERE, PACKAGES

REASONS: Final = HERE / "batches.toml"
#: What ``why`` begins with where a change stops a loop after its first batch.
STOPS: Final = "stops after the first batch"
#: The simulator and generated code: nobody's data go through their loops.
_LEFT_OUT: Final = ("src/geminga/sim/", "src/geminga/wire/_generated/", "src/geminga/pytest_plugin.py")
#: Names that say how much is taken at a time, wherever a loop uses them.
_AT_A_TIME: Final = re.compile(r"(^|_)(AT_ONCE|AT_A_TIME|PER_(TURN|STEP|LOOK|PASS|ROUND|CALL)|WINDOW)(_|$)|^at_once$")
#: Names that say it where they bound a slice or are handed to a call.
_BOUND: Final = re.compile(
    r"^_?(READ|RECOVERY|COPY|SCAN|MERGE|FLUSH|IOV)_[A-Z_]+$|(ENTRIES|RECORDS|ROWS|IDS|ITEMS|CHUNK_BYTES|SEGMENT_BYTES)_MAX$"
    r"|^(count|entries|bytes|records|rows|messages|unit|max)_(max|entries|bytes)$"
)
_BOUND_OF_SLICE: Final = re.compile(
    r"^(limit|batch_size|page_size|frames_max)$|^(?!.*(TOLD|SHOWN|NAMED|LISTED|WARNINGS|CHARACTERS|LENGTH|MANIFESTS)).*_MAX$"
)
#: Names that say when a loop has enough, in the condition that it goes on with.
_ENOUGH: Final = re.compile(r"_(MAX|max)$")
#: Functions that cut something up.
_CUTS: Final = re.compile(r"(^|_)(batches|windows|chunks)(_of)?$")
_TAKES: Final = frozenset({"islice", "batched"})

_Loop = ast.For | ast.AsyncFor | ast.While
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
#: Half of all nodes, and nothing is below them.
_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.alias)


@dataclass(frozen=True)
class BatchLoop:
    """A loop that works in batches."""

    #: Below the root of the tree.
    file: str
    #: Where it begins, from 1.
    line: int
    #: Qualified name of the function.
    within: str
    #: Its first line, without indentation.
    header: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.within}: {self.header}"


@dataclass(frozen=True)
class Reason:
    """Why no change of the list stops the loops of a function after their first batch."""

    file: str
    within: str
    #: How many loops of the function it is about.
    loops: int
    why: str


def batch_loops(root: Path) -> Iterator[BatchLoop]:
    """All of them, in order of file and line."""
    for path in sorted((root / "src" / "geminga").rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if not file.startswith(_LEFT_OUT):
            text = path.read_text(encoding="utf-8")
            yield from loops_of(file, text, ast.parse(text))


def loops_of(file: str, text: str, tree: ast.Module) -> Iterator[BatchLoop]:
    """Those of one module."""
    lines = text.split("\n")
    seen = set()
    for within, node in _loops(tree, ()):
        assert isinstance(node, ast.stmt | ast.expr)
        if node.lineno not in seen:  # two parts may be taken in one line
            seen.add(node.lineno)
            yield BatchLoop(file, node.lineno, ".".join(within), lines[node.lineno - 1].strip())


def reasons(file: Path = REASONS) -> list[Reason]:
    """Those that are written down."""
    told = tomllib.loads(file.read_text(encoding="utf-8"))
    return [Reason(one["file"], one["within"], one.get("loops", 1), one["why"]) for one in told["reason"]]


def unstopped(loops: Iterable[BatchLoop], stopped: Iterable[tuple[str, str]], excused: Sequence[Reason]) -> list[str]:
    """Loops in functions that have more of them than changes that stop one, ``(file, within)``, and reasons; and
    reasons for which there is no loop."""
    have = Counter(stopped)
    for reason in excused:
        have[reason.file, reason.within] += reason.loops
    there: dict[tuple[str, str], list[BatchLoop]] = defaultdict(list)
    for loop in loops:
        there[loop.file, loop.within].append(loop)
    lacking = [f"{found[-1]}: nothing of the list stops it" for key, found in there.items() if len(found) > have[key]]
    gone = [
        f"{one.file}: {one.within}: a reason for {one.loops} loops of {len(there[one.file, one.within])}"
        for one in excused
        if have[one.file, one.within] > len(there[one.file, one.within])
    ]
    return lacking + gone


def stopping(directory: Path = PACKAGES) -> list[tuple[str, str]]:
    """``(file, within)`` of the changes of the list that stop a loop after its first batch."""
    return [
        (entry["file"], entry.get("within", ""))
        for package in sorted(directory.glob("*.toml"))
        for entry in tomllib.loads(package.read_text(encoding="utf-8")).get("mutant", [])
        if entry["why"].startswith(STOPS)
    ]


def main() -> int:
    """Print them, and which of them nothing stops; the exit code."""
    loops = list(batch_loops(HERE.parents[1]))
    print("\n".join(map(str, loops)))
    found = unstopped(loops, stopping(), reasons())
    print("\n".join([f"{len(loops)} loops work in batches", *found]))
    return 1 if found else 0


def _loops(node: ast.AST, within: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.AST]]:
    """Loops and, outside of them, slices: a part is taken now, and the rest with the next call."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _LEAVES):
            continue
        name = getattr(child, "name", "") if isinstance(child, ast.ClassDef | _Function) else ""
        inner = (*within, name) if name else within
        is_batch = _goes_in_steps(child) or _goes_through_a_cut(child) or _goes_on_until_enough(child)
        if isinstance(child, _Loop) and (is_batch or any(map(_takes_a_batch, _own(child)))):
            yield inner, child
            for loop in _nested(child):
                yield from _loops(loop, inner)
        elif is_batch or (isinstance(child, ast.Subscript | ast.Call) and _takes_a_part(child)):
            yield inner, child
        else:
            yield from _loops(child, inner)


def _nested(loop: ast.AST) -> Iterator[ast.AST]:
    """The loops and functions right below a loop, each in a node of its own."""
    for child in ast.iter_child_nodes(loop):
        if isinstance(child, _Loop | _Function):
            yield ast.Module([child], [])  # type: ignore[list-item]
        else:
            yield from _nested(child)


def _own(loop: ast.AST) -> Iterator[ast.AST]:
    """What a loop evaluates itself: nothing of the loops and functions in it."""
    for child in ast.iter_child_nodes(loop):
        if not isinstance(child, _Loop | _Function):
            yield child
            yield from _own(child)


def _takes_a_batch(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript | ast.Call) and _takes_a_part(node):
        return True
    if isinstance(node, ast.Call):
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        return any(_BOUND.search(_name(each)) for each in given)
    return _AT_A_TIME.search(_name(node)) is not None


def _takes_a_part(node: ast.Subscript | ast.Call) -> bool:
    if isinstance(node, ast.Call):
        return _name(node.func) in _TAKES
    upper = node.slice.upper if isinstance(node.slice, ast.Slice) else None
    if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add):
        upper = upper.right
    name = _name(upper)
    return any(names.search(name) for names in (_AT_A_TIME, _BOUND, _BOUND_OF_SLICE))


def _goes_in_steps(loop: ast.AST) -> bool:
    """Whether a loop or comprehension goes through ``range(begin, end, step)``, the step not written out."""
    iterables = [each.iter for each in getattr(loop, "generators", [])] or [getattr(loop, "iter", None)]
    return any(
        isinstance(each, ast.Call)
        and _name(each.func) == "range"
        and len(each.args) == 3
        and not isinstance(each.args[2], ast.Constant | ast.UnaryOp)
        for each in iterables
    )


def _goes_through_a_cut(loop: ast.AST) -> bool:
    """Whether a ``for`` goes through what a function cut up."""
    iterable = loop.iter if isinstance(loop, ast.For | ast.AsyncFor) else None
    return isinstance(iterable, ast.Call) and _CUTS.search(_name(iterable.func)) is not None


def _goes_on_until_enough(loop: ast.AST) -> bool:
    """Whether a ``while`` compares with a bound."""
    if not isinstance(loop, ast.While):
        return False
    compared = [node for node in ast.walk(loop.test) if isinstance(node, ast.Compare)]
    return any(_ENOUGH.search(_name(each)) for node in compared for each in (node.left, *node.comparators))


def _name(node: ast.AST | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    sys.exit(main())
