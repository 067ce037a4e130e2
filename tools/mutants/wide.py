"""What the tests of its package let pass, tried once more by all tests of ``make test`` that enter its function.

The whole suite runs once in a copy of the tree whose sources tell who enters which changed function, in processes that
tests start, too (``wide_plugin.py`` notes it by test). Then each change is written into the copy, and those tests run
until one fails: first those in files that are named after the module, then the quick ones, as many as their time is
granted. A change that another package's test catches has no need of a second test. A test that fails now and then by
itself counts as one that catches: its name is told.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import pytest

from tools.mutants.plan import Mutant
from tools.mutants.reach import PROBE, probed
from tools.mutants.testing import CAUGHT, SURVIVED, TIMED_OUT, Verdict

#: Tests that are tried with one change may take so many seconds together where nothing is changed.
TESTS_S_MAX: Final = 120.0
#: And with the change so many times that, and ...
RUN_FACTOR: Final = 3.0
#: ... this, of which collecting is most.
RUN_S: Final = 60.0
#: What the whole suite may take with its probes.
SUITE_S_MAX: Final = 3600.0
#: A process notes each function once in this time, so that one that is entered at every message costs nothing.
NOTE_S: Final = 0.2

#: The plugin is there, if the tree has no such tools.
_TOOLS: Final = Path(__file__).resolve().parents[2]
#: Where the copy's processes find what probes call. Written there as ``sitecustomize.py``, which Python itself loads.
_SITE: Final = f"""
import builtins, os, time
_noted = {{{{}}}}
def _note(index, _noted=_noted, _clock=time.monotonic):
    now = _clock()
    if now - _noted.get(index, -9.0) < {NOTE_S}:
        return
    _noted[index] = now
    folder = os.path.join({{folder!r}}, os.environ.get("PYTEST_XDIST_WORKER", "gw"))
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, str(index)), "w"):
            pass
    except OSError:
        pass
_note.forget = _noted.clear
builtins.{PROBE} = _note
"""


class WideError(Exception):
    """The suite could not be run."""


@dataclass(frozen=True)
class _Reaching:
    """A test that enters a changed function."""

    test: str
    seconds: float


def judge_widely(
    mutants: Sequence[Mutant], root: Path, *, suite_workers: int, lanes: int, log: Path
) -> Iterator[tuple[int, Verdict]]:
    """``(index, verdict)`` for each of ``mutants``, as they come: ``lanes`` at a time, each in a copy of its own; the
    whole suite before them by so many ``suite_workers`` (0: in one process). Raises WideError."""
    with tempfile.TemporaryDirectory(prefix="wide-", ignore_cleanup_errors=True) as directory:
        suites = [_Suite(root, Path(directory) / f"lane{number}", log) for number in range(min(lanes, len(mutants)))]
        with suites[0].written(_probed_sources(root, mutants)):
            reaching = suites[0].reaching(suite_workers)
        free: SimpleQueue[_Suite] = SimpleQueue()
        for suite in suites:
            free.put(suite)

        def judge(index: int) -> tuple[int, Verdict]:
            suite, mutant = free.get(), mutants[index]
            try:
                with suite.written({mutant.file: mutant.source}):
                    return index, suite.judge(mutant, reaching.get(index, ()))
            finally:
                free.put(suite)

        threads = ThreadPoolExecutor(len(suites))
        try:
            for judged in as_completed([threads.submit(judge, index) for index in range(len(mutants))]):
                yield judged.result()
        finally:
            # Cut off in between: nothing else begins, and what runs is ended.
            threads.shutdown(wait=False, cancel_futures=True)
            for suite in suites:
                suite.end()
            threads.shutdown()


def _copy_tree(root: Path, copy: Path) -> None:
    """What is kept under version control, or would be; and what is made once for all tests."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        shutil.copytree(root, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        return
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (root / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name, follow_symlinks=False)
    # Tests that list the tree ask git.
    subprocess.run(["git", "init", "-q"], cwd=copy, check=True)
    subprocess.run(["git", "add", "-A"], cwd=copy, check=True)
    for made in ("build/spark-home", ".venv"):
        if (root / made).exists():
            (copy / made).parent.mkdir(parents=True, exist_ok=True)
            (copy / made).symlink_to(root / made)


def _probed_sources(root: Path, mutants: Sequence[Mutant]) -> dict[str, str]:
    lines: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for index, mutant in enumerate(mutants):
        lines[mutant.file][index] = mutant.line
    return {
        file: ast.unparse(probed((root / file).read_text(encoding="utf-8"), of_file)) for file, of_file in lines.items()
    }


class _Suite:
    """pytest in a copy of the tree."""

    def __init__(self, root: Path, directory: Path, log: Path) -> None:
        self._directory = directory
        self._copy = directory / "tree"
        self._log = log
        self._written_s = int(time.time())
        self._process: subprocess.Popen[bytes] | None = None
        _copy_tree(root, self._copy)

    @contextmanager
    def written(self, sources: Mapping[str, str]) -> Iterator[None]:
        """Other sources in the copy, and what was there again behind it."""
        files = [self._copy / name for name in sources]
        before = [(file.read_bytes(), file.stat()) for file in files]
        try:
            for file, text in zip(files, sources.values(), strict=True):
                file.write_text(text, encoding="utf-8")
                # Bytecode is known by the second and the size of its source: no two sources may share them.
                self._written_s += 1
                os.utime(file, (self._written_s, self._written_s))
            yield
        finally:
            for file, (text_before, stat) in zip(files, before, strict=True):
                file.write_bytes(text_before)
                os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def reaching(self, workers: int) -> dict[int, list[_Reaching]]:
        """By index of a change: the tests that pass and enter its function, none of which may fail by a probe."""
        site, told, notes = (self._directory / name for name in ("site", "told", "notes"))
        for folder in (site, told, notes):
            folder.mkdir()
        (site / "sitecustomize.py").write_text(_SITE.format(folder=str(notes)))
        variables = {"WIDE_NOTES": str(notes), "WIDE_TOLD": str(told)}
        code, timed_out = self._pytest(["tests"], variables, [str(site)], limit_s=SUITE_S_MAX, workers=workers)
        if timed_out or code not in (0, 1):
            raise WideError(f"the whole suite could not be run with probes in it ({code}): {self._log}")
        found: defaultdict[int, list[_Reaching]] = defaultdict(list)
        for file in told.iterdir():
            for line in file.read_text().splitlines():
                test, seconds, indexes = json.loads(line)
                for index in indexes:
                    found[index].append(_Reaching(test, seconds))
        return found

    def judge(self, mutant: Mutant, reaching: Sequence[_Reaching]) -> Verdict:
        """With the change in the copy."""
        stem = Path(mutant.file).stem

        def rank(one: _Reaching) -> tuple[bool, float]:
            return not Path(one.test.partition("::")[0]).stem.startswith(f"test_{stem}"), one.seconds

        chosen: list[str] = []
        left_s = TESTS_S_MAX
        for one in sorted(reaching, key=rank):
            if one.seconds <= left_s:
                left_s -= one.seconds
                chosen.append(one.test)
        if not chosen:
            return Verdict(mutant, SURVIVED, "no test of the suite enters it", 0.0)
        asked, failed = self._directory / "asked.json", self._directory / "failed.json"
        asked.write_text(json.dumps(chosen))
        failed.unlink(missing_ok=True)
        started = time.monotonic()
        limit_s = RUN_S + RUN_FACTOR * (TESTS_S_MAX - left_s)
        files = list(dict.fromkeys(test.partition("::")[0] for test in chosen))
        variables = {"WIDE_ASKED": str(asked), "WIDE_FAILED": str(failed)}
        code, timed_out = self._pytest(files, variables, [], limit_s=limit_s, workers=0)
        seconds = time.monotonic() - started
        if timed_out:
            return Verdict(mutant, TIMED_OUT, f"no end within its time ({seconds:.0f} s)", seconds)
        if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
            return Verdict(mutant, SURVIVED, f"none of {len(chosen)} tests was run ({code}): {self._log}", seconds)
        if code == 0:
            return Verdict(mutant, SURVIVED, f"{len(chosen)} tests of {len(reaching)} that enter it pass", seconds)
        by = json.loads(failed.read_text()) if failed.exists() else f"pytest ended with {code}"
        return Verdict(mutant, CAUGHT, f"the whole suite: {by}", seconds)

    def _pytest(
        self, where: Sequence[str], variables: Mapping[str, str], path: Sequence[str], *, limit_s: float, workers: int
    ) -> tuple[int, bool]:
        """Its exit code, and whether it was ended."""
        paths = [*path, str(self._copy / "src"), str(self._copy / "tests"), str(self._copy), str(_TOOLS)]
        # Processes that tests start would compile the product each time, without bytecode.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {
            **variables,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTEST_DEBUG_TEMPROOT": str(self._directory),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider"]
        command += ["-p", "tools.mutants.wide_plugin", *(["-n", str(workers)] if workers else ["-x"])]
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(
                [*command, *where], cwd=self._copy, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                return process.wait(timeout=limit_s), False
            except subprocess.TimeoutExpired:
                return -1, True
            finally:
                self.end()
                process.wait()
                self._process = None

    def end(self) -> None:
        """End what runs, and all that it left running."""
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
