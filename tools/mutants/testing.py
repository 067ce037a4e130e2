"""The tests of a package, collected once and run many times: each time in a fork of the process that collected them.

First unchanged, which tells whether they pass, how long each takes and which functions it enters; then once for each
change until one fails: first those that enter the changed function, of these first those in the file that is named
after the module, then the quick ones. A change that only an import can plant, or that no test caught, is tried once
more in a process that collects the tests with it in place.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import hypothesis
import pytest

from tools.mutants.children import Ended, Job, Tell, Told, exit_after, limit_processor_time, run_forked
from tools.mutants.plan import Mutant, Package
from tools.mutants.planting import (
    FunctionsByCode,
    NotPlantableError,
    functions_by_code,
    plant,
    plant_before_import,
    qualified_module,
)
from tools.mutants.reach import Probes

#: Beside what is granted to every test, it may use so many times the processor time that it used unchanged, and ...
TEST_CPU_FACTOR: Final = 5.0
#: ... take so many times the time.
TEST_WALL_FACTOR: Final = 10.0
#: A whole run may take this long, and so many times the unchanged one.
RUN_S: Final = 60.0
RUN_FACTOR: Final = 10.0
#: Nothing is known yet about how long the unchanged tests take.
UNCHANGED_S: Final = 300.0
#: Characters of a failure's text that are kept.
REASON_CHARACTERS_MAX: Final = 300

CAUGHT: Final = "caught"
TIMED_OUT: Final = "timed out"
SURVIVED: Final = "survived"


@dataclass(frozen=True)
class TestLimits:
    """What is granted to every test with a change in it."""

    #: Not one that pytest collects.
    __test__ = False
    #: Seconds of processor time.
    cpu_s: float = 5.0
    #: Seconds by the clock: it may wait for what never comes.
    wall_s: float = 10.0


@dataclass(frozen=True)
class Verdict:
    """What became of one change."""

    mutant: Mutant
    #: ``caught``, ``timed out`` or ``survived``.
    outcome: str
    #: The test that failed, and its first words; or what else happened.
    by: str
    seconds: float


@dataclass(frozen=True)
class Unchanged:
    """What the unchanged tests did."""

    tests: int
    seconds: float
    #: What failed; empty: all passed.
    failure: str


class _Run:
    """A pytest plugin: one run in a child. Tells the first failure and ends the process with it."""

    def __init__(
        self, tell: Tell, seconds: dict[str, float], limits: TestLimits, *, probes: Probes | None = None
    ) -> None:
        self._tell = tell
        self._seconds = seconds
        self._limits = limits
        self._probes = probes

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        granted_s = self._limits.cpu_s
        limit_processor_time(granted_s + TEST_CPU_FACTOR * self._seconds.get(nodeid, granted_s))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self._probes is not None:
            self._probes.end_test(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._fail(report.nodeid, report.longreprtext)
        # Tests that pass tell how long they take, set-up and all.
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._fail(report.nodeid, report.longreprtext)

    def _fail(self, nodeid: str, text: str) -> None:
        reasons = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")] or text.splitlines()[-1:]
        self._tell({"failed": nodeid, "reason": " ".join(reasons)[:REASON_CHARACTERS_MAX]})
        # Nobody needs the tear-down of a process that has a defect in it.
        os._exit(1)


class _Collected:
    """A pytest plugin: in place of running the collected tests, hand them over."""

    def __init__(self, use: Callable[[pytest.Session], None]) -> None:
        self._use = use

    def pytest_sessionstart(self) -> None:
        # A failing example is enough: nobody reads the smallest.
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants", hypothesis.settings(), phases=phases, report_multiple_bugs=False
        )
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._use(session)
        return True


def _arguments(package: Package, root: Path) -> list[str]:
    # Hypothesis is loaded already.
    quiet = [
        "-q",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-m",
        "not long",
        f"--rootdir={root}",
    ]
    left_out = [f"--ignore={root / test}" for test in package.without]
    return [*quiet, *left_out, *(str(root / test) for test in package.tests)]


def _run_items(session: pytest.Session, items: Sequence[pytest.Item], run: _Run) -> None:
    session.config.pluginmanager.register(run)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _limit_walls(items: Sequence[pytest.Item], unchanged: Mapping[str, float], limits: TestLimits) -> None:
    """Tests of which it is known what they take ``unchanged``, in seconds, end after a multiple of that."""
    for item in items:
        if item.nodeid in unchanged:
            limit_s = limits.wall_s + TEST_WALL_FACTOR * unchanged[item.nodeid]
            item.add_marker(pytest.mark.timeout(limit_s), append=False)


def _ordered(
    session: pytest.Session, mutant: Mutant, seconds: dict[str, float], reaching: Container[str] = ()
) -> list[pytest.Item]:
    """All tests, those first that are likely to fail, then those that cost little."""
    stem = Path(mutant.file).stem
    names = {f"test_{stem}", f"test_{stem}_properties"}

    def rank(item: pytest.Item) -> tuple[bool, bool, float]:
        return item.nodeid not in reaching, item.path.stem not in names, seconds.get(item.nodeid, 0.0)

    return sorted(session.items, key=rank)


class PackageTests:
    """The tests of one package; fork-safe as long as this process has not imported the product."""

    def __init__(self, package: Package, root: Path, *, workers: int, limits: TestLimits, log: Path) -> None:
        self._package = package
        self._root = root
        self._workers = workers
        self._limits = limits
        self._log = log

    def judge(self, mutants: Sequence[Mutant]) -> Iterator[Unchanged | Verdict]:
        """How the unchanged tests do, then, if they pass, a verdict for each change."""
        seconds: dict[str, float] = {}
        again: list[Mutant] = []
        limit_s = UNCHANGED_S
        for told in _stream(lambda tell: self._nursery(tell, mutants), self._log):
            if "unchanged" in told:
                seconds = told["unchanged"]
                unchanged = Unchanged(len(seconds), told["seconds"], told["failure"])
                limit_s = RUN_S + RUN_FACTOR * unchanged.seconds
                yield unchanged
                if unchanged.failure:
                    return
            elif told["outcome"] in (CAUGHT, TIMED_OUT):
                yield Verdict(mutants[told["mutant"]], told["outcome"], told["by"], told["seconds"])
            else:
                again.append(mutants[told["mutant"]])
        jobs = [self._fresh(mutant, seconds) for mutant in again]
        for ended in run_forked(jobs, workers=self._workers, limit_s=limit_s):
            yield Verdict(again[ended.index], *_outcome(ended), ended.seconds)

    def _nursery(self, tell: Tell, mutants: Sequence[Mutant]) -> None:
        """Collect, then fork for the unchanged run and each change."""

        def use(session: pytest.Session) -> None:
            if session.testsfailed:
                tell({"unchanged": {}, "seconds": 0.0, "failure": "the tests can not be collected"})
                return
            started = time.monotonic()
            functions = functions_by_code()
            seconds, failure, reached = self._unchanged(session, mutants, functions)
            if failure:  # of the probes?
                seconds, failure, _ = self._unchanged(session, (), functions)
            tell({"unchanged": seconds, "seconds": time.monotonic() - started, "failure": failure})
            if failure:
                return

            def changed(mutant: Mutant, reaching: Container[str]) -> Job:
                def job(tell: Tell) -> None:
                    try:
                        file = str(self._root / mutant.file)
                        plant(qualified_module(mutant.file), file, mutant.source, functions)
                    except NotPlantableError:
                        tell({"passed": False})
                        return
                    items = _ordered(session, mutant, seconds, reaching)
                    _limit_walls(items, seconds, self._limits)
                    _run_items(session, items, _Run(tell, dict(seconds), self._limits))
                    tell({"passed": True})

                return job

            limit_s = RUN_S + RUN_FACTOR * (time.monotonic() - started)
            jobs = [changed(mutant, reached.get(index, ())) for index, mutant in enumerate(mutants)]
            for ended in run_forked(jobs, workers=self._workers, limit_s=limit_s):
                outcome, by = _outcome(ended)
                tell({"mutant": ended.index, "outcome": outcome, "by": by, "seconds": ended.seconds})

        code = pytest.main(_arguments(self._package, self._root), plugins=[_Collected(use)])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            tell({"unchanged": {}, "seconds": 0.0, "failure": f"the tests can not be collected: {self._log}"})

    def _unchanged(
        self, session: pytest.Session, mutants: Sequence[Mutant], functions: FunctionsByCode
    ) -> tuple[dict[str, float], str, dict[int, frozenset[str]]]:
        """Seconds by test, what failed, and the tests that enter the function of each of ``mutants``, by its index."""

        def job(tell: Tell) -> None:
            seconds: dict[str, float] = {}
            probes = Probes(mutants, self._root, functions)
            _run_items(session, session.items, _Run(tell, seconds, self._limits, probes=probes))
            numbers = {nodeid: number for number, nodeid in enumerate(seconds)}
            reached = [(index, [numbers[test] for test in tests]) for index, tests in probes.reached().items()]
            tell({"seconds": seconds, "reached": reached})

        [ended] = run_forked([job], workers=1, limit_s=UNCHANGED_S)
        if ended.told is None or "seconds" not in ended.told:
            return {}, _outcome(ended)[1], {}
        tests = list(ended.told["seconds"])
        reached = {index: frozenset(tests[number] for number in numbers) for index, numbers in ended.told["reached"]}
        return ended.told["seconds"], "", reached

    def _fresh(self, mutant: Mutant, seconds: dict[str, float]) -> Job:
        """A process that collects the tests with the change already in it."""

        def job(tell: Tell) -> None:
            _write_to(self._log)
            plant_before_import(qualified_module(mutant.file), str(self._root / mutant.file), mutant.source)

            def use(session: pytest.Session) -> None:
                items = _ordered(session, mutant, seconds)
                _limit_walls(items, seconds, self._limits)
                _run_items(session, items, _Run(tell, dict(seconds), self._limits))
                tell({"passed": True})

            run = _Run(tell, {}, self._limits)
            code = pytest.main(_arguments(self._package, self._root), plugins=[_Collected(use), run])
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                tell({"failed": "the collection", "reason": f"exit code {code}"})

        return job


def _outcome(ended: Ended) -> tuple[str, str]:
    told = ended.told
    if ended.timed_out:
        return TIMED_OUT, f"no end within its time ({ended.seconds:.0f} s)"
    if told is not None and "failed" in told:
        return CAUGHT, f"{told['failed']}: {told['reason']}"
    if told is not None and "passed" in told:
        return SURVIVED, "" if told["passed"] else "not planted"
    return CAUGHT, f"the process died{f' of signal {ended.signal}' if ended.signal else ''}"


def _write_to(log: Path) -> None:
    """All output goes to the end of ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, sys.stdout.fileno())
    os.dup2(file, sys.stderr.fileno())


def _stream(job: Callable[[Tell], None], log: Path) -> Iterator[Told]:
    """What a forked child tells, as it tells it."""
    receiving, sending = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        os.close(receiving)
        _tell_and_exit(job, sending, log)
    os.close(sending)
    is_ended = False
    try:
        with os.fdopen(receiving, "rb") as pipe:
            for line in pipe:
                told: Told = json.loads(line)
                if not told:
                    break
                yield told
        is_ended = True
    finally:
        if not is_ended:
            os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


def _tell_and_exit(job: Callable[[Tell], None], sending: int, log: Path) -> NoReturn:
    def tell(told: Told) -> None:
        os.write(sending, json.dumps(told).encode() + b"\n")

    def work() -> None:
        _write_to(log)
        job(tell)
        # What tests left running may hold the pipe open: its end is told.
        tell({})

    exit_after(work)
