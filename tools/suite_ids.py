"""What became of each test of another commit: in ``make test`` still, in ``make test-long``, under another id, or gone.

``python -m tools.suite_ids --base COMMIT --out FILE`` collects the tests of that commit and of this tree and makes a
table: a row for each file with how many of its tests are the same, and one for each test that is not. One of the same
name and parameters in another file has moved there, and where a test of the same name has at least as many cases as it
had, they have other parameters now. ``--merged FILE`` names, tab-separated, ids of the commit and the ids (or a reason)
that took them over; a name without parameters stands for all that it had. A test that is gone without one is an error.
``--ledger FILE`` (``pytest -p support.house.cpu_ledger --cpu-ledger FILE`` at that commit) adds their costs. ``--new
FILE`` names the tests of ``make test`` that stand for none of that commit: below the name of the tree they are what
``support.house.resumed`` leaves out (``KEPT_RESULTS``), for a run beside that commit's.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]


class Fate(NamedTuple):
    """Of one test: ``same``, ``moved``, ``other`` (parameters), ``long`` (sampled or moved), ``merged``, ``gone``."""

    kind: str
    into: str = ""


def fates(before: Sequence[str], short: set[str], all_ids: set[str], merged: Mapping[str, str]) -> dict[str, Fate]:
    """What became of each id of ``before``; ``short``: those of ``make test`` now, ``all_ids``: with the long ones."""
    named: dict[str, list[str]] = {}
    for nodeid in all_ids.difference(before):
        named.setdefault(_name(nodeid), []).append(nodeid)
    cases_before, cases_now = Counter(map(_test, before)), Counter(map(_test, short))
    found = {}
    for nodeid in before:
        takes_over = merged.get(nodeid) or merged.get(_test(nodeid))
        if nodeid in short:
            found[nodeid] = Fate("same")
        elif nodeid in all_ids:
            found[nodeid] = Fate("long")
        elif takes_over:
            found[nodeid] = Fate("merged", takes_over)
        elif moved := _moved(nodeid, named.get(_name(nodeid), [])):
            found[nodeid] = Fate("moved" if moved in short else "long", moved)
        elif cases_now[_test(nodeid)] >= cases_before[_test(nodeid)]:
            found[nodeid] = Fate("other", _test(nodeid))
        else:
            found[nodeid] = Fate("gone")
    return found


def _test(nodeid: str) -> str:
    """Without its parameters."""
    return nodeid.partition("[")[0]


def _name(nodeid: str) -> str:
    """Without its file, in today's spelling."""
    return re.sub("(?<=acknowledg)e(?=ment)", "", nodeid.partition("::")[2])


def _moved(nodeid: str, candidates: Sequence[str]) -> str | None:
    """The one of the same name: that of the same file, or the only one there is."""
    file = nodeid.partition("::")[0]
    here = [candidate for candidate in candidates if candidate.partition("::")[0] == file]
    chosen = here or candidates
    return chosen[0] if len(chosen) == 1 else None


def new(found: Mapping[str, Fate], short: set[str]) -> list[str]:
    """Those of ``short`` that stand for no test of the other commit."""
    standing = {nodeid for nodeid, fate in found.items() if fate.kind == "same"}
    standing.update(fate.into for fate in found.values())
    return sorted(nodeid for nodeid in short if not standing & {nodeid, _test(nodeid)})


def table(found: Mapping[str, Fate], costs: Mapping[str, Sequence[float]]) -> str:
    """Tab-separated: ``same FILE COUNT CPU``, then ``kind ID CPU INTO`` for each test that is not the same."""
    same: Counter[str] = Counter()
    cpu: Counter[str] = Counter()
    rows = []
    for nodeid, fate in found.items():
        cost = costs.get(nodeid, (0.0, 0.0))[0]
        if fate.kind == "same":
            file = nodeid.partition("::")[0]
            same[file] += 1
            cpu[file] += cost
        else:
            rows.append(f"{fate.kind}\t{nodeid}\t{cost:.1f}\t{fate.into}".rstrip())
    lines = [f"same\t{file}\t{same[file]}\t{cpu[file]:.1f}" for file in sorted(same)]
    return "\n".join([*lines, *sorted(rows)]) + "\n"


def shares(found: Mapping[str, Fate], costs: Mapping[str, Sequence[float]]) -> str:
    """One line a kind: how many of the tests, and how much of their CPU time."""
    kinds = Counter(fate.kind for fate in found.values())
    whole = sum(costs.get(nodeid, (0.0,))[0] for nodeid in found) or 1.0
    lines = []
    for kind, count in kinds.most_common():
        cost = sum(costs.get(nodeid, (0.0,))[0] for nodeid, fate in found.items() if fate.kind == kind)
        lines.append(f"{kind:7} {count:6} tests ({count / len(found):6.1%})  {cost:7.1f} CPU s ({cost / whole:6.1%})")
    return "\n".join(lines)


def collected(tree: Path, *arguments: str) -> list[str]:
    """The ids that pytest finds in a tree."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"the tests of {tree} can not be collected:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [line for line in done.stdout.splitlines() if "::" in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="the commit whose tests are looked for")
    parser.add_argument("--merged", type=Path, help="tab-separated: an id, and what took it over")
    parser.add_argument("--ledger", type=Path, help="what the tests cost at that commit")
    parser.add_argument("--out", type=Path, help="where the table goes; standard output if not given")
    parser.add_argument("--new", type=Path, help="where the ids go that stand for no test of the commit")
    given = parser.parse_args()
    merged = {}
    if given.merged:
        merged = dict(line.split("\t", 1) for line in given.merged.read_text("utf-8").splitlines() if line)
    costs = json.loads(given.ledger.read_text("utf-8"))["tests"] if given.ledger else {}
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory) / "base"
        subprocess.run(["git", "worktree", "add", "--detach", "-q", str(tree), given.base], cwd=ROOT, check=True)
        try:
            before = collected(tree, "-m", "not long")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    short = set(collected(ROOT, "-m", "not long"))
    found = fates(before, short, set(collected(ROOT)), merged)
    if given.new:
        given.new.write_text("".join(f"{nodeid}\n" for nodeid in new(found, short)), encoding="utf-8")
    text = table(found, costs)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    print(shares(found, costs), file=sys.stderr)
    if any(fate.kind == "gone" for fate in found.values()):
        raise SystemExit("tests are gone, and nothing is said of what took them over")


if __name__ == "__main__":
    main()
