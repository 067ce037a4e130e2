"""``make sim SCENARIO= FROM= COUNT=``: a simulation over many seeds; each adds a line to a log, shown as a table.

A line of the log (JSON): ``commit`` (with ``+`` if the tree had changes), ``scenario``, ``seed``, ``ok``,
``struck`` (faults by named point), ``history`` (a hash of all that happened), ``cpu_s``, ``virtual_s``, ``steps``,
``error``; of transactions (the token ring) ``faults``, ``acknowledged`` and ``counts`` too, of the others ``crashes``.
Seeds that the log has of this commit already are not run again, so that a run may be gathered from several. The table
at the end is of all its lines.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from tools.seeds.seed import RING_SCENARIO, SCENARIOS, TRANSACTIONS, run_seed

ROOT: Final = Path(__file__).resolve().parents[2]
LOG: Final = ROOT / "build" / "sim.jsonl"
#: Seconds between two lines of progress.
PROGRESS_S: Final = 10.0
#: Lines of a failure that are printed at once; the log has all of it.
ERROR_LINES: Final = 25


def commit() -> str:
    """The commit of this tree; with ``+`` if something differs from it."""
    name = _git("rev-parse", "--short=12", "HEAD")
    return f"{name}+" if _git("status", "--porcelain", "--untracked-files=no") else name


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def lines_of(log: Path, name: str, scenario: str) -> list[dict[str, Any]]:
    """What the log has of a commit and a scenario, the newest line of each seed."""
    if not log.exists():
        return []
    wanted = (name, RING_SCENARIO if scenario == TRANSACTIONS else scenario)
    found = [json.loads(text) for text in log.read_text().splitlines() if text.strip()]
    return list({line["seed"]: line for line in found if (line["commit"], line["scenario"]) == wanted}.values())


def table_of_story(lines: list[dict[str, Any]]) -> str:
    """Sums over seeds, and of each named point how often it was struck and in how many seeds."""
    good = [line for line in lines if line["ok"]]
    told = [_summary(lines, len(good))]
    if good:
        told.append(_sum_and_least("crashes", [line["crashes"] for line in good]))
        told.append(f"{'point':<50} {'times':>10} {'seeds':>10}")
        times: Counter[str] = Counter()
        seeds: Counter[str] = Counter()
        for line in good:
            times.update(line["struck"])
            seeds.update(label for label, count in line["struck"].items() if count)
        told += [f"{label:<50} {times[label]:>10} {seeds[label]:>10}" for label in sorted(times)]
    return "\n".join(told + _failed(lines))


def _summary(lines: list[dict[str, Any]], good: int) -> str:
    cpu = sum(line["cpu_s"] for line in lines)
    most = max((line["cpu_s"] for line in lines), default=0)
    each_s = cpu / max(1, len(lines))
    return (
        f"{len(lines)} seeds, {len(lines) - good} failures, {cpu:.0f} CPU s ({each_s:.2f} a seed, {most:.2f} at most)"
    )


def _failed(lines: list[dict[str, Any]]) -> list[str]:
    failed = sorted(line["seed"] for line in lines if not line["ok"])
    return [f"failed seeds: {failed}"] if failed else []


def table(lines: list[dict[str, Any]]) -> str:
    """Sums over seeds, and how often each named point was struck."""
    from support.clusters.ring_steps import POINTS

    good = [line for line in lines if line["ok"]]
    struck: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for line in good:
        struck.update(line["struck"])
        counts.update(line["counts"])
    steps = list(dict.fromkeys(point.step for point in POINTS))
    whats = list(dict.fromkeys(point.what for point in POINTS))
    told = [_summary(lines, len(good))]
    if good:
        told += [
            _sum_and_least("faults", [line["faults"] for line in good]),
            _sum_and_least("messages acknowledged in committed transactions", [line["acknowledged"] for line in good]),
            "clients: " + ", ".join(f"{name} {count}" for name, count in counts.most_common()),
            f"{'struck at':<26}" + "".join(f"{what:>15}" for what in whats),
        ]
        for step in steps:
            cells = [f"{struck[f'{step}: {what}']}" if (step, what) in POINTS else "" for what in whats]
            told.append(f"{step:<26}" + "".join(f"{cell:>15}" for cell in cells))
        never = [str(point) for point in POINTS if not struck[str(point)]]
        told.append(f"points never struck: {len(never)} of {len(POINTS)} {never or ''}")
    return "\n".join(told + _failed(lines))


def _sum_and_least(what: str, numbers: list[int]) -> str:
    return f"{what}: {sum(numbers)}, at least {min(numbers)} in a seed"


def _results(scenario: str, seeds: list[int], jobs: int) -> Iterator[dict[str, Any]]:
    run = partial(run_seed, scenario)
    if jobs <= 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(run, seeds)


def main() -> int:
    """Returns 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--scenario", choices=[TRANSACTIONS, *SCENARIOS], default=TRANSACTIONS)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--log", type=Path, default=LOG, help="where lines are added")
    parser.add_argument("--go-on", action="store_true", help="go on after a failure")
    arguments = parser.parse_args()
    name, scenario = commit(), arguments.scenario
    done = {line["seed"] for line in lines_of(arguments.log, name, scenario) if line["ok"]}
    seeds = [seed for seed in range(arguments.first, arguments.first + arguments.count) if seed not in done]
    print(f"{name}: {len(seeds)} seeds from {arguments.first}, {arguments.count - len(seeds)} are in {arguments.log}")
    arguments.log.parent.mkdir(parents=True, exist_ok=True)
    told_s = time.monotonic()
    failures = 0
    with arguments.log.open("a") as log:
        for number, line in enumerate(_results(scenario, seeds, arguments.jobs), 1):
            log.write(json.dumps({"commit": name, **line}) + "\n")
            log.flush()
            if not line["ok"]:
                failures += 1
                tail = "\n".join(line["error"].splitlines()[-ERROR_LINES:])
                again = f"make sim SCENARIO={scenario} FROM={line['seed']} COUNT=1"
                print(f"SEED {line['seed']} FAILED\n{tail}\nagain: {again}", flush=True)
                if not arguments.go_on:
                    break
            if time.monotonic() - told_s > PROGRESS_S:
                told_s = time.monotonic()
                print(f"{number} of {len(seeds)}, {failures} failed", flush=True)
    lines = lines_of(arguments.log, name, scenario)
    print(table(lines) if scenario == TRANSACTIONS else table_of_story(lines))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
