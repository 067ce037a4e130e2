"""What each test costs in processor time, its processes included: a pytest plugin that writes ledgers.

``pytest -p support.house.cpu_ledger --cpu-ledger FILE`` writes a JSON object: ``tests`` maps each test's id to ``[CPU
s, wall s]``, ``cpu_s`` is the sum. ``--file-ledger FILE`` takes the sums of the files that ran over into a ledger that
is kept:
``files`` maps a file below ``tests`` to ``[CPU s, wall s]``; files that are gone leave it.

A test's CPU time is what its worker, the worker's children and their children took from its set-up to the end of its
tear-down: fixtures of a session are charged to the test that makes them, and work that goes on after a test to the one
that runs then.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import pytest

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PROPERTY: Final = "cpu_ledger"
TESTS: Final = Path(__file__).parents[2]

#: CPU seconds, wall seconds.
Cost: TypeAlias = tuple[float, float]


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:  # over since it was listed
            continue
    return found


def _ticks(pid: int) -> int:
    """User and system time of a process and of the children that it waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(field) for field in fields[11:15])


def descendants_cpu_s(pid: int) -> float:
    """CPU seconds of what runs below a process, without the process itself."""
    ticks, waiting = 0, _children(pid)
    while waiting:
        child = waiting.pop()
        ticks += _ticks(child)
        waiting += _children(child)
    return ticks / _TICKS_PER_S


def tree_cpu_s() -> float:
    """CPU seconds of this process, of those below it, and of those below it that are over."""
    own = os.times()
    return time.process_time() + own.children_user + own.children_system + descendants_cpu_s(os.getpid())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-ledger", default="", help="a file that gets each test's CPU and wall seconds, as JSON")
    parser.addoption("--file-ledger", default="", help="a kept file that gets those of each test file that ran")


class _Worker:
    """Measures the tests of this process."""

    def __init__(self) -> None:
        self._began = (0.0, 0.0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._began = tree_cpu_s(), time.monotonic()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if call.when == "teardown":
            cpu_s, at_s = self._began
            report.user_properties.append((_PROPERTY, [tree_cpu_s() - cpu_s, time.monotonic() - at_s]))
        return report


class _Ledger:
    """Gathers what the workers measured, and writes it."""

    def __init__(self, of_tests: str, of_files: str) -> None:
        self._of_tests = of_tests
        self._of_files = of_files
        self._tests: dict[str, Cost] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY:
                self._tests[report.nodeid] = (round(value[0], 3), round(value[1], 3))

    def pytest_sessionfinish(self) -> None:
        if self._of_tests:
            _write(Path(self._of_tests), "tests", self._tests)
        if self._of_files:
            path = Path(self._of_files)
            before = json.loads(path.read_text(encoding="utf-8"))["files"] if path.exists() else {}
            files = {**before, **sums_of_files(self._tests)}
            _write(path, "files", {name: cost for name, cost in files.items() if (TESTS / name).exists()})


def sums_of_files(tests: Mapping[str, Cost]) -> dict[str, Cost]:
    """A file's name below ``tests`` to what its tests took, in tenths of seconds."""
    sums: dict[str, Cost] = {}
    for nodeid, (cpu_s, wall_s) in tests.items():
        name = nodeid.partition("::")[0].removeprefix("tests/")
        cpu_before, wall_before = sums.get(name, (0.0, 0.0))
        sums[name] = cpu_before + cpu_s, wall_before + wall_s
    return {name: (round(cpu_s, 1), round(wall_s, 1)) for name, (cpu_s, wall_s) in sums.items()}


def _write(path: Path, kind: str, costs: Mapping[str, Cost]) -> None:
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(cost)}" for name, cost in sorted(costs.items()))
    total = round(sum(cost[0] for cost in costs.values()), 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"cpu_s": {total}, "{kind}": {{\n{rows}\n}}}}\n', encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    of_tests, of_files = config.getoption("--cpu-ledger"), config.getoption("--file-ledger")
    if not of_tests and not of_files:
        return
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(_Worker())
    if not is_worker:
        config.pluginmanager.register(_Ledger(of_tests, of_files))
