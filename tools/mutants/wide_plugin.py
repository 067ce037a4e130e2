"""A pytest plugin for ``wide.py``: which changed functions a test enters, or a run of some tests until one fails.

Loads nothing of the tools besides: workers import it before anything else.
"""

from __future__ import annotations

import builtins
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


class _Noting:
    """Writes ``[test, seconds, indexes of changes]``, a line each, for those that pass."""

    def __init__(self, notes: Path, told: Path) -> None:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "gw")
        self._notes = notes / worker
        self._told = told / f"{worker}.jsonl"
        self._failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._failed = False
        # What is noted once in a while is noted anew in this process; in others within that while.
        builtins._change_is_reached.forget()  # type: ignore[attr-defined]
        for note in self._found():
            (self._notes / note).unlink(missing_ok=True)
        started = time.monotonic()
        result = yield
        found = sorted(int(note) for note in self._found())
        if found and not self._failed:
            with self._told.open("a") as told:
                told.write(json.dumps([item.nodeid, round(time.monotonic() - started, 3), found]) + "\n")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def _found(self) -> list[str]:
        try:
            return os.listdir(self._notes)
        except FileNotFoundError:
            return []


class _Asked:
    """Runs the tests that were asked for, in that order, and tells of the first that fails."""

    def __init__(self, asked: list[str], failed: Path) -> None:
        self._order = {test: number for number, test in enumerate(asked)}
        self._failed = failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left = [item for item in items if item.nodeid not in self._order]
        config.hook.pytest_deselected(items=left)
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._failed.exists():
            lines = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
            self._failed.write_text(json.dumps(f"{report.nodeid}: {' '.join(lines)[:300]}"))


def pytest_configure(config: pytest.Config) -> None:
    """In each process that runs tests."""
    if "WIDE_ASKED" in os.environ:
        asked = json.loads(Path(os.environ["WIDE_ASKED"]).read_text())
        config.pluginmanager.register(_Asked(asked, Path(os.environ["WIDE_FAILED"])))
    elif "WIDE_NOTES" in os.environ:
        config.pluginmanager.register(_Noting(Path(os.environ["WIDE_NOTES"]), Path(os.environ["WIDE_TOLD"])))
