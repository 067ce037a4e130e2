"""``make histories``: the same seeds tell the same history compiled (``make compiled``) and pure.

Seeds are dealt to all simulations in turn. Each runs once on ``src`` and once on ``build/compiled/src``, in processes
of their own, and what happened (``history`` of their lines: every byte on the simulated network, every step of a disk,
every crash, each with its virtual time) must be the same. CPU time of both is told beside.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tools.compiled import COMPILED, PURE, stale
from tools.seeds.seed import SCENARIOS, TRANSACTIONS

ROOT: Final = Path(__file__).resolve().parents[2]
#: Of what is compared of a line.
FIELDS: Final = ("history", "ok", "steps", "virtual_s", "struck")

Lines = Mapping[tuple[str, int], Mapping[str, Any]]


def dealt(count: int, scenarios: Iterable[str]) -> dict[str, int]:
    """How many seeds each simulation gets of so many; the first ones one more."""
    names = list(scenarios)
    return {name: count // len(names) + (number < count % len(names)) for number, name in enumerate(names)}


def differences(pure: Lines, compiled: Lines) -> Iterator[str]:
    """A line for each seed whose two histories differ, or that one of the two does not have."""
    for key in sorted({*pure, *compiled}):
        name = f"{key[0]} seed {key[1]}"
        if key not in pure or key not in compiled:
            yield f"{name}: only {'pure' if key in pure else 'compiled'}"
            continue
        one, other = pure[key], compiled[key]
        found = [field for field in FIELDS if one.get(field) != other.get(field)]
        if found:
            told = ", ".join(f"{field} {one.get(field)} pure, {other.get(field)} compiled" for field in found)
            yield f"{name}: {told}"


def run(source: Path, log: Path, counts: Mapping[str, int], first: int) -> Lines:
    """The lines of all seeds on one tree. A seed may fail: it has to fail in the same way on the other."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), "tests", "."))}
    for scenario, count in counts.items():
        if count:
            command = [sys.executable, "-m", "tools.seeds", "--scenario", scenario, "--from", str(first)]
            command += ["--count", str(count), "--log", str(log), "--go-on"]
            subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
    lines = [json.loads(text) for text in log.read_text().splitlines()]
    return {(line["scenario"], line["seed"]): line for line in lines}


def main() -> int:
    """1 if a seed's histories differ, 2 if the compiled tree is none of these sources."""
    parser = argparse.ArgumentParser(prog="make histories", description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=200, help="how many, over all simulations")
    parser.add_argument("--scenario", action="append", choices=[TRANSACTIONS, *SCENARIOS], help="of these alone")
    arguments = parser.parse_args()
    if other := next(stale(), None):
        print(f"{COMPILED.relative_to(ROOT)} has not {other} of this tree: make compiled", file=sys.stderr)
        return 2
    counts = dealt(arguments.count, arguments.scenario or [TRANSACTIONS, *SCENARIOS])
    with tempfile.TemporaryDirectory(prefix="histories-") as directory:
        logs = (Path(directory) / "pure.jsonl", Path(directory) / "compiled.jsonl")
        pure, compiled = (
            run(source, log, counts, arguments.first) for source, log in zip((PURE, COMPILED), logs, strict=True)
        )
    found = list(differences(pure, compiled))
    print(*found, sep="\n", end="\n" if found else "")
    cpu = [sum(line["cpu_s"] for line in lines.values()) for lines in (pure, compiled)]
    told = f"{len(pure)} seeds of {len(counts)} simulations: {len(found)} histories differ"
    print(f"{told}; {cpu[0]:.0f} CPU s pure, {cpu[1]:.0f} compiled")
    return 1 if found or len(pure) < arguments.count else 0


if __name__ == "__main__":
    sys.exit(main())
