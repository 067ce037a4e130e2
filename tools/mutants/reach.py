"""Which tests enter the function that a change stands in: asked while the unchanged tests run.

Such tests come first when the change is tried. The others still follow: a process of its own, or what a fixture made
for an earlier test, is not seen.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from tools.mutants.plan import Mutant
from tools.mutants.planting import FunctionsByCode, NotPlantableError, plant, qualified_module

#: What probes call. A builtin, as it has to be there in every module and may take no import of theirs.
PROBE: Final = "_change_is_reached"

#: Index of a change -> the tests that enter its function.
Reached: TypeAlias = dict[int, set[str]]
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Probes:
    """Probes in this process, one for each change that stands in a function; there is one at most of this class."""

    def __init__(self, mutants: Sequence[Mutant], root: Path, functions: FunctionsByCode) -> None:
        self._entered: set[int] = set()
        self._tests: defaultdict[int, set[str]] = defaultdict(set)
        setattr(builtins, PROBE, self._entered.add)
        by_file: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for index, mutant in enumerate(mutants):
            by_file[mutant.file][index] = mutant.line
        for name, lines in by_file.items():
            file = root / name
            try:
                plant(qualified_module(name), str(file), probed(file.read_text(encoding="utf-8"), lines), functions)
            except NotPlantableError:
                continue  # nobody is known to reach it

    def end_test(self, nodeid: str) -> None:
        """What was entered since the last call is what ``nodeid`` enters."""
        # The set stays the same object, and a thread may be adding to it.
        for index in list(self._entered):
            self._entered.discard(index)
            self._tests[index].add(nodeid)

    def reached(self) -> Reached:
        """By change; those that no test enters are left out."""
        return dict(self._tests)


def probed(source: str, lines: dict[int, int]) -> ast.Module:
    """``source`` where the innermost function around each line, ``{index: line}``, tells first that it is entered.

    Every statement keeps its line. Lines that stand in no function are left out.
    """
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    for index, line in lines.items():
        around = [node for node in functions if node.lineno <= line <= (node.end_lineno or node.lineno)]
        if around:
            # Of two that hold the same line the inner one begins later.
            _probe(max(around, key=lambda node: node.lineno), index)
    return tree


def _probe(function: _Function, index: int) -> None:
    # A docstring is one as long as it is the first statement.
    place = 1 if ast.get_docstring(function, clean=False) is not None else 0
    first = function.body[min(place, len(function.body) - 1)]
    call = ast.Expr(ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(index)], []))
    ast.copy_location(call, first)
    function.body.insert(place, ast.fix_missing_locations(call))
