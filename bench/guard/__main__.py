"""What a message costs in this tree and at another commit: ``python -m bench.guard --base COMMIT [row ...]``.

Each row is a load in lock step in one process (:mod:`bench.guard.rows`), whose instructions callgrind counts, beside
them calls of functions, allocations and bytes. A judged figure that is more than 3 % above base's makes the row red,
and the exit code 1; so does a row that can not be measured on base. CPU time is taken in turns (base, tree, base, tree,
...) and told only: it varies by more than what is judged. With ``--compiled`` what ``make compiled`` made of this tree
is measured beside, in the same turns, and a row is red if that has more instructions than the tree.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tools.standalone_process import ROOT

from bench.guard import callgrind
from bench.guard.planting import turns_for
from bench.guard.rows import ROWS
from bench.guard.trees import Tree
from bench.guard.verdict import DEARER_MAX, Figures, Verdict, judge, paragraph
from bench.servers import BenchError

#: Of the loop whose cost a turn is told by.
_PROBE_TURNS = 1000


class Guard:
    """The trees, and how often each is measured."""

    def __init__(self, base: Tree, tree: Tree, compiled: Tree | None = None, *, turns: int, plant: float) -> None:
        self._trees = {"base": base, "this tree": tree}
        if compiled is not None:
            self._trees["this tree, compiled"] = compiled
        self._tree = tree
        self._turns = turns
        self._plant = plant

    def measure(self, name: str) -> Verdict:
        """One row; what goes wrong is its verdict."""
        row = ROWS[name]
        try:
            if self._plant:
                self._plant_into(name)
            # Counts are the same however busy the machine is: both at once.
            with ThreadPoolExecutor(2) as pool:
                counting = {of: pool.submit(tree.counted, name) for of, tree in self._trees.items()}
            counted = {of: _of(of, found.result) for of, found in counting.items()}
            plain: list[dict[str, Figures]] = [
                {of: _of(of, partial(tree.plain, name)) for of, tree in self._trees.items()} for _ in range(self._turns)
            ]
        except BenchError as error:
            return Verdict(name, {}, {}, (), str(error))
        finally:
            if self._plant:
                self._tree.plant(*row.hot, 0)
        base, tree, *compiled = (counts | _middle([turn[of] for turn in plain]) for of, counts in counted.items())
        return judge(name, base, tree, row.judged, compiled=compiled[0] if compiled else None)

    def _plant_into(self, name: str) -> None:
        hot = ROWS[name].hot
        clean = self._tree.counted(name)["instructions"]
        self._tree.plant(*hot, _PROBE_TURNS)
        probed = self._tree.counted(name)["instructions"]
        self._tree.plant(*hot, turns_for(self._plant, clean, probed, _PROBE_TURNS))


def _of(tree: str, measured: Callable[[], dict[str, float]]) -> dict[str, float]:
    try:
        return measured()
    except BenchError as error:
        raise BenchError(f"not measurable on {tree}: {error}") from error


def _middle(runs: list[Figures]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def _table(verdicts: list[Verdict], base: str) -> Table:
    table = Table(title=f"a message of this tree to {base}", caption="CPU time is told, not judged")
    for column in (
        "row",
        "base instr.",
        "tree instr.",
        "ratio",
        "compiled",
        "calls",
        "allocations",
        "net bytes",
        "CPU us",
        "verdict",
    ):
        table.add_column(column, justify="left" if column in ("row", "verdict") else "right")
    for verdict in verdicts:
        table.add_row(
            verdict.row,
            *(f"{figures.get('instructions', 0):,.0f}" for figures in (verdict.base, verdict.tree)),
            *(
                "-" if (ratio := verdict.ratio(of_compiled=of_compiled)) is None else f"{ratio:.4f}"
                for of_compiled in (False, True)
            ),
            *(_both(verdict, name) for name in ("calls", "allocations", "network_bytes", "cpu_us")),
            verdict.word,
            style="red" if verdict.is_red else None,
        )
    return table


def _both(verdict: Verdict, name: str) -> str:
    found = [figures.get(name) for figures in (verdict.base, verdict.tree, verdict.compiled) if figures]
    return "-" if not found or None in found else " : ".join(f"{figure:,.0f}" for figure in found)


def _chosen(names: list[str]) -> list[str]:
    return [name for name in ROWS if not names or name.startswith(tuple(names))]


def main() -> int:
    """Compare; 1 if a row is red, or could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__)
    parser.add_argument("--base", required=True, help="the commit to compare with")
    parser.add_argument("--turns", type=int, default=3, help="runs of each tree whose CPU time is taken")
    parser.add_argument("--plant", type=float, default=0, metavar="SHARE", help="make this tree dearer by this (0.05)")
    parser.add_argument("--compiled", action="store_true", help="measure what `make compiled` made of this tree, too")
    parser.add_argument("--repeats", type=int, default=1, help="whole measurements, one table each")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--row", action="append", default=[], help=f"beginning of a name, of {', '.join(ROWS)}")
    options = parser.parse_args()
    names = _chosen(options.row)
    if not names:
        parser.error(f"no row begins with {options.row}; known: {', '.join(ROWS)}")
    if options.turns < 1 or options.repeats < 1:
        parser.error("--turns and --repeats are at least 1")
    console = Console(stderr=options.json)
    console.width = max(console.width, 150)
    (ROOT / "build").mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="guard-", dir=ROOT / "build"))
    is_red = False
    told = []
    try:
        callgrind.command(scratch)
        base, tree = Tree.of_commit(options.base, scratch / "base"), Tree.of_this(scratch / "tree")
        compiled = Tree.of_compiled(scratch / "comp") if options.compiled else None
        guard = Guard(base, tree, compiled, turns=options.turns, plant=options.plant)
        for _ in range(options.repeats):
            verdicts = []
            for name in names:
                console.print(f"{name} ...", style="dim")
                verdicts.append(guard.measure(name))
            console.print(_table(verdicts, options.base))
            text = paragraph(verdicts, options.base)
            console.print(text, markup=False, highlight=False)
            told.append({"rows": {one.row: one.as_json() for one in verdicts}, "told": text})
            is_red |= any(one.is_red for one in verdicts)
    except BenchError as error:
        console.print(str(error), markup=False, style="red")
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        print(json.dumps({"base": options.base, "dearer_max": DEARER_MAX, "plant": options.plant, "repeats": told}))
    return int(is_red)


if __name__ == "__main__":
    sys.exit(main())
