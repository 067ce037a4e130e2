"""``make mutants``: one-line changes of the product, each of which its package's short tests must catch.

Most stand in ``packages/*.toml``, with the reason why they matter; the others are drawn from the modules that these
files name, by a seed that is printed. Fails if a change survives, if a line of the list is not there any more, if the
unchanged tests fail, if a change said to be equivalent is caught, and if more than five are said to be.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tools.mutants.drawing import draw, every_change
from tools.mutants.plan import EQUIVALENTS_MAX, PACKAGES, Mutant, Package, PlanError, everywhere, load_packages
from tools.mutants.testing import SURVIVED, TIMED_OUT, PackageTests, TestLimits, Unchanged, Verdict
from tools.mutants.wide import WideError, judge_widely

ROOT: Final = Path(__file__).resolve().parents[2]
#: Changes drawn at random.
DRAWS: Final = 30
#: The draw of a run that names no other.
SEED: Final = 10
SEEDS_END: Final = 1_000_000
WORKERS: Final = 2
#: Of the whole suite, as `make test` has them.
SUITE_WORKERS: Final = 4
#: Seeds of every simulation, where its tests draw some for the week: what is caught does not hang on the week. The
#: variable is that of ``tests/support/house/weekly_sample.py``, which loads the product, and can not be loaded here.
SEEDS: Final = {"SAMPLE_SEEDS": ",".join(str(seed) for seed in range(20))}
#: Loaded once, before anything is forked. Nothing of the product may be among them.
PRELOADED: Final = (
    "asyncio",
    "crc32c",
    "cramjam",
    "cryptography.hazmat.primitives.asymmetric.ec",
    "cryptography.x509",
    "fastavro",
    "google.protobuf.descriptor_pb2",
    "hypothesis.stateful",
    "numpy",
    "pyarrow",
    "pydantic",
    "pyroaring",
    "re2",
    "starlette.applications",
    "typer",
    "uvicorn",
)


@dataclass
class PackageResult:
    """What became of a package's changes."""

    name: str
    unchanged: Unchanged = field(default_factory=lambda: Unchanged(0, 0.0, "not run"))
    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; the exit code."""
    asked = _parsed(arguments)
    console = Console(stderr=asked.json is not None)
    # Whoever is ended takes with it what it forked.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    root, started = asked.root.resolve(), time.monotonic()
    seed = random.randrange(SEEDS_END) if asked.seed == "random" else int(asked.seed)
    try:
        packages = [everywhere(root)] if asked.everywhere else load_packages(root, asked.packages)
        mutants = _chosen(packages, root, asked, seed)
    except PlanError as error:
        console.print(f"[red]{escape(str(error))}[/red]")
        return 2
    stale = [line for package in packages for line in package.stale]
    if asked.list:
        _print_list(console, mutants, stale)
        return 1 if stale else 0
    drawn = sum(1 for mutant in mutants if mutant.operation)
    console.print(f"SEED={seed}: {drawn} changes drawn, {len(mutants)} in all")
    results = _unjudged(packages, mutants) if asked.everywhere else _run(packages, mutants, root, asked, console)
    if asked.wide or asked.everywhere:
        try:
            _try_widely(results, root, asked, console)
        except WideError as error:
            console.print(f"[red]{escape(str(error))}[/red]")
            return 2
    failures = [*stale, *_failures(results)]
    seconds = time.monotonic() - started
    _print_results(console, results, failures, seconds, seed)
    if asked.json is not None:
        _write_json(asked.json, results, failures, seconds, seed)
    return 1 if failures else 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--seed", default=str(SEED), help="number of the draw, or 'random' (%(default)s)")
    parser.add_argument("--draws", type=int, default=DRAWS, help="how many changes are drawn (%(default)s)")
    parser.add_argument("--drawn", action="store_true", help="only drawn changes, none of the list")
    parser.add_argument(
        "--from",
        action="append",
        default=[],
        dest="folders",
        metavar="FOLDER",
        help="draw from modules of this folder alone (more than one is fine)",
    )
    parser.add_argument("--all", action="store_true", help="every change that could be drawn: takes hours")
    parser.add_argument("--package", action="append", default=[], help="only this package (more than one is fine)")
    parser.add_argument(
        "--wide",
        action="store_true",
        help="what survives is tried once more by all tests of `make test` that enter its function (10 minutes more)",
    )
    parser.add_argument(
        "--everywhere",
        action="store_true",
        help="draw from all modules of the product, judged by all tests of `make test` that enter the function",
    )
    parser.add_argument("--only", default="", help="only changes whose file:line, line or reason holds this text")
    parser.add_argument("--list", action="store_true", help="print the changes and run nothing")
    parser.add_argument("--json", metavar="FILE", help="write the results there; '-': to standard output")
    parser.add_argument("--workers", type=int, default=WORKERS, help="runs at a time (%(default)s)")
    granted = TestLimits()
    parser.add_argument("--test-cpu-s", type=float, default=granted.cpu_s, help="what one test may use (%(default)s)")
    parser.add_argument("--test-wall-s", type=float, default=granted.wall_s, help="how long it may take (%(default)s)")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)  # for packages that need nothing of it
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--packages", type=Path, default=PACKAGES, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _chosen(packages: list[Package], root: Path, asked: argparse.Namespace, seed: int) -> list[Mutant]:
    unknown = set(asked.package) - {package.name for package in packages}
    if unknown:
        raise PlanError(f"no such package: {', '.join(sorted(unknown))}")
    named = [package for package in packages if not asked.package or package.name in asked.package]
    listed = [] if asked.drawn else [m for package in named for m in (*package.mutants, *package.equivalents)]
    # Drawn from all: one package alone gets its share of the same draw.
    folders = [_folder(packages, root, name) for name in asked.folders]
    drawn = (
        every_change(named, root) if asked.all else draw(packages, root, seed=seed, count=asked.draws, below=folders)
    )
    drawn = [mutant for mutant in drawn if mutant.package in {package.name for package in named}]
    text = asked.only
    return [m for m in (*listed, *drawn) if any(text in part for part in (m.where, m.before, m.why))]


def _folder(packages: list[Package], root: Path, name: str) -> str:
    """``name`` with one slash at its end. Raises PlanError where nothing can be drawn below it."""
    folder = name.rstrip("/") + "/"
    if not any(file.startswith(folder) for package in packages for file in package.drawn_files(root)):
        raise PlanError(f"nothing is drawn from {name}")
    return folder


def _run(
    packages: list[Package], mutants: list[Mutant], root: Path, asked: argparse.Namespace, console: Console
) -> list[PackageResult]:
    results = []
    # Refreshed by hand: a thread would hold locks in the forks.
    progress = Progress(
        TextColumn("{task.description:16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
    )
    for name in () if asked.bare else PRELOADED:
        importlib.import_module(name)
    product = sorted(name for name in sys.modules if name.split(".")[0] == "geminga")
    assert not product, f"loaded before the change is in it: {product}"
    with progress, _surroundings():
        for package in packages:
            of_package = [mutant for mutant in mutants if mutant.package == package.name]
            if not of_package:
                continue
            result = PackageResult(package.name)
            results.append(result)
            started = time.monotonic()
            task = progress.add_task(package.name, total=len(of_package))
            progress.refresh()
            log = root / "build" / "mutants" / f"{package.name}.log"
            log.unlink(missing_ok=True)
            limits = TestLimits(asked.test_cpu_s, asked.test_wall_s)
            tests = PackageTests(package, root, workers=max(1, asked.workers), limits=limits, log=log)
            for event in tests.judge(of_package):
                if isinstance(event, Unchanged):
                    result.unchanged = event
                    continue
                result.verdicts.append(event)
                progress.advance(task)
                progress.refresh()
                if event.outcome == SURVIVED and not event.mutant.is_equivalent:
                    progress.console.print(f"[red]survived[/red] {_shown(event.mutant)}")
            result.seconds = time.monotonic() - started
            progress.stop_task(task)
            if not console.is_terminal:
                # Bars are drawn for terminals alone.
                console.print(f"{package.name}: {len(of_package)} changes, {result.seconds:.0f} s", soft_wrap=True)
    return results


def _try_widely(results: list[PackageResult], root: Path, asked: argparse.Namespace, console: Console) -> None:
    """Survivors get a second verdict, in place."""
    survivors = [
        (result, place)
        for result in results
        for place, verdict in enumerate(result.verdicts)
        if verdict.outcome == SURVIVED and not verdict.mutant.is_equivalent
    ]
    if not survivors:
        return
    console.print(f"{len(survivors)} changes are tried by the whole suite")
    mutants = [result.verdicts[place].mutant for result, place in survivors]
    with _surroundings():
        judged = judge_widely(
            mutants,
            root,
            suite_workers=0 if asked.bare else SUITE_WORKERS,
            lanes=max(1, asked.workers),
            log=root / "build" / "mutants" / "wide.log",
        )
        for index, verdict in judged:
            result, place = survivors[index]
            result.verdicts[place] = verdict
            console.print(f"{verdict.outcome} {_shown(verdict.mutant)}\n    {escape(verdict.by)}", soft_wrap=True)


def _unjudged(packages: list[Package], mutants: list[Mutant]) -> list[PackageResult]:
    """As if all had survived tests of packages that have none."""
    return [
        PackageResult(
            package.name,
            Unchanged(0, 0.0, ""),
            [Verdict(mutant, SURVIVED, "", 0.0) for mutant in mutants if mutant.package == package.name],
        )
        for package in packages
    ]


@contextmanager
def _surroundings() -> Iterator[None]:
    """The directories of all runs in one, which goes with them (one that is cut off cleans nothing up), and seeds."""
    os.environ.update({name: seeds for name, seeds in SEEDS.items() if name not in os.environ})
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as directory:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = directory
        yield


def _shown(mutant: Mutant) -> str:
    operation = f" ({mutant.operation})" if mutant.operation else ""
    return escape(f"{mutant.where}{operation}\n    - {mutant.before}\n    + {mutant.after}")


def _failures(results: list[PackageResult]) -> list[str]:
    found = []
    claimed = 0
    for result in results:
        if result.unchanged.failure:
            found.append(f"{result.name}: the unchanged tests fail: {result.unchanged.failure}")
        for verdict in result.verdicts:
            mutant, survived = verdict.mutant, verdict.outcome == SURVIVED
            claimed += mutant.is_equivalent
            if survived and not mutant.is_equivalent:
                found.append(f"survived: {mutant.where}: {mutant.before} -> {mutant.after} {verdict.by}".rstrip())
            elif mutant.is_equivalent and not survived:
                found.append(f"said to be equivalent and noticed: {mutant.where}: {verdict.by}")
    if claimed > EQUIVALENTS_MAX:
        found.append(f"{claimed} changes are said to be equivalent; at most {EQUIVALENTS_MAX} may be")
    return found


def _print_list(console: Console, mutants: list[Mutant], stale: list[str]) -> None:
    for mutant in mutants:
        console.print(f"[bold]{mutant.package}[/bold] {_shown(mutant)}\n    {escape(mutant.why)}", soft_wrap=True)
    for line in stale:
        console.print(f"[red]{escape(line)}[/red]", soft_wrap=True)
    console.print(f"{len(mutants)} changes")


def _print_results(
    console: Console, results: list[PackageResult], failures: list[str], seconds: float, seed: int
) -> None:
    table = Table("package", "tests", "alone s", "listed", "drawn", "caught", "(time-out)", "equal", "s")
    for result in results:
        table.add_row(*(str(value) for value in _summary(result).values()))
    console.print(table)
    for failure in failures:
        console.print(f"[red]{escape(failure)}[/red]", soft_wrap=True)
    runs = sum(len(result.verdicts) for result in results)
    console.print(
        f"SEED={seed}: {runs} changes in {seconds:.0f} s, {'FAILED' if failures else 'all as they should be'}"
    )


def _summary(result: PackageResult) -> dict[str, Any]:
    outcomes = Counter(verdict.outcome for verdict in result.verdicts if not verdict.mutant.is_equivalent)
    return {
        "package": result.name,
        "tests": result.unchanged.tests,
        "unchanged_s": round(result.unchanged.seconds, 1),
        "listed": sum(1 for v in result.verdicts if not v.mutant.operation),
        "drawn": sum(1 for v in result.verdicts if v.mutant.operation),
        "caught": sum(outcomes.values()) - outcomes[SURVIVED],
        "timed_out": outcomes[TIMED_OUT],
        "equivalent": sum(1 for v in result.verdicts if v.mutant.is_equivalent),
        "seconds": round(result.seconds, 1),
    }


def _write_json(target: str, results: list[PackageResult], failures: list[str], seconds: float, seed: int) -> None:
    told = {
        "seed": seed,
        "seconds": round(seconds, 1),
        "failures": failures,
        "packages": [_summary(result) for result in results],
        "changes": [
            {
                "package": verdict.mutant.package,
                "file": verdict.mutant.file,
                "line": verdict.mutant.line,
                "before": verdict.mutant.before,
                "after": verdict.mutant.after,
                "operation": verdict.mutant.operation,
                "equivalent": verdict.mutant.is_equivalent,
                "outcome": verdict.outcome,
                "by": verdict.by,
                "seconds": round(verdict.seconds, 2),
            }
            for result in results
            # Workers finish in any order.
            for verdict in sorted(result.verdicts, key=lambda v: (v.mutant.file, v.mutant.line, v.mutant.after))
        ],
    }
    text = json.dumps(told, indent=1)
    if target == "-":
        print(text)
    else:
        Path(target).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
