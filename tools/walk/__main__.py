"""``make walk``: calls, files, rooms and changes between rooms of each walk, and of another commit beside them.

The figures are those of one warm request in a simulated world: the same on every machine with one version of Python.
``BASE=commit`` measures that commit too, by its own text of the walks where it does the same under other names.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.compare import unpack
from bench.guard.trees import differ_by_imports_only
from bench.servers import BenchError

from tools.walk.tracing import OUTSIDE, Trace
from tools.walk.walks import WALKS

ROOT: Final = Path(__file__).resolve().parents[2]
#: Of a walk, in the order of the columns.
FIGURES: Final = ("calls", "files", "rooms", "room_changes", "entries")
#: Of a walk's pairs of rooms, so many are shown.
PAIRS_SHOWN: Final = 12

#: What a trace comes to, for ``--json``.
Figures = dict[str, Any]


def figures_of(trace: Trace) -> Figures:
    """``entries``: calls by the loop, by libraries and by the client; ``changes``: by "from > to", most first."""
    return {
        "calls": trace.calls.total(),
        "files": len(trace.calls),
        "rooms": len(trace.rooms),
        "room_changes": trace.room_changes,
        "entries": trace.changes.total() - trace.room_changes,
        "calls_by_room": dict(trace.rooms.most_common()),
        "changes": {f"{left} > {entered}": n for (left, entered), n in trace.changes.most_common() if left != OUTSIDE},
    }


def measured(names: Sequence[str]) -> dict[str, Figures]:
    """Of this tree."""
    return {name: figures_of(WALKS[name]()) for name in names}


def measured_at(commit: str, names: Sequence[str]) -> dict[str, Figures]:
    """Of another commit, with the worlds of its own tests. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="walk-") as directory:
        tree = Path(directory)
        unpack(commit, tree, "tests/support", "tools")
        theirs, ours = tree / "tools" / "walk" / "walks.py", ROOT / "tools" / "walk"
        shutil.copytree(ROOT / "bench", tree / "bench")
        if not (theirs.exists() and differ_by_imports_only(theirs.read_text(), (ours / "walks.py").read_text())):
            shutil.rmtree(theirs.parent, ignore_errors=True)
            shutil.copytree(ours, theirs.parent)
        done = subprocess.run(
            [sys.executable, "-m", "tools.walk", "--json", *names],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree / 'tests'}:{tree}"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BenchError(f"{commit} can not be walked: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
        walks: dict[str, Figures] = json.loads(done.stdout)["walks"]
        return walks


def table(walks: Mapping[str, Figures], base: Mapping[str, Figures] | None = None) -> str:
    """A line a walk; figures of the base stand before the arrow."""
    rows = [["walk", *(name.replace("_", " ") for name in FIGURES)]]
    for walk, now in walks.items():
        cells = [str(now[name]) for name in FIGURES]
        if base is not None:
            cells = [f"{base[walk][name]} -> {cell}" for name, cell in zip(FIGURES, cells, strict=True)]
        rows.append([walk, *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells]))
    return "\n".join(lines)


def pairs(walks: Mapping[str, Figures]) -> str:
    """Where each walk goes from one room to another."""
    lines = []
    for walk, figures in walks.items():
        changes: dict[str, int] = figures["changes"]
        lines.append(f"\n{walk}")
        lines += [f"{count:7} {change}" for change, count in list(changes.items())[:PAIRS_SHOWN]]
        if (left_out := len(changes) - PAIRS_SHOWN) > 0:
            lines.append(f"        and {left_out} more pairs (--json has all)")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 where the base can not be measured."""
    parser = argparse.ArgumentParser(prog="python -m tools.walk", description=__doc__)
    parser.add_argument("walk", nargs="*", help=f"default: all of {', '.join(WALKS)}")
    parser.add_argument("--base", help="a commit to lay beside")
    parser.add_argument("--rooms", action="store_true", help="between which rooms each walk changes")
    parser.add_argument("--json", action="store_true", help="all figures, by walk, as one object")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.walk if name not in WALKS]:
        parser.error(f"no walk is called {unknown[0]!r}; there are {', '.join(WALKS)}")
    walks = measured(options.walk or list(WALKS))
    try:
        base = measured_at(options.base, list(walks)) if options.base else None
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        python = ".".join(map(str, sys.version_info[:3]))
        print(json.dumps({"python": python, "walks": walks} | ({"base": base} if base is not None else {})))
        return 0
    print(table(walks, base))
    if options.rooms:
        print(pairs(walks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
