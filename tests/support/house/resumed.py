"""A plugin for runs of hours (``-p support.house.resumed``): one that was cut off is gone on with, not begun anew.

Each test that passed is noted as it ends, under what was tested: the tree of the working copy, changes included. Those
that are noted of the same tree are left out, and it is said how many; the least change of a tracked file begins anew.
Who wants that without a change deletes the file.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from support.house.source_tree import ROOT

#: Left in the working copy; ``KEPT_RESULTS`` names another file.
KEPT: Final = ROOT / "build" / "passed.txt"


def tree_of(root: Path) -> str:
    """Git's name of the content of a working copy, without files that git does not know. Raises CalledProcessError."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    changed = git("stash", "create")
    return git("rev-parse", f"{changed or 'HEAD'}^{{tree}}")


def passed_of(text: str, tree: str) -> frozenset[str]:
    """Ids that are noted under ``tree``; those of another tree are nothing."""
    first, _, rest = text.partition("\n")
    # A line that a kill cut off has no end.
    return frozenset(rest.split("\n")[:-1]) if first == tree else frozenset()


def pytest_configure(config: pytest.Config) -> None:
    """Where tests are chosen, and where they are reported."""
    path = Path(os.environ.get("KEPT_RESULTS") or KEPT)
    config.pluginmanager.register(Resumed(config, path, tree_of(config.rootpath)))


class Resumed:
    """Of one process: that which gives tests out notes, all leave out the same."""

    def __init__(self, config: pytest.Config, path: Path, tree: str) -> None:
        self._config = config
        self._path = path
        self._tree = tree
        given: str | None = getattr(config, "workerinput", {}).get("passed")
        if given is not None:
            self._passed = frozenset(given.splitlines())
            return
        self._passed = passed_of(path.read_text("utf-8") if path.exists() else "", tree)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in (tree, *sorted(self._passed))), "utf-8")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Workers choose by what was known when they began, or they would choose differently."""
        node.workerinput["passed"] = "\n".join(self._passed)  # type: ignore[attr-defined]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what passed."""
        left_out = [item for item in items if item.nodeid in self._passed]
        if left_out:
            self._config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in self._passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note it; what fails when it is torn down is noted no more."""
        if hasattr(self._config, "workerinput"):
            return
        if report.when == "call" and report.passed:
            self._add(report.nodeid)
        elif report.failed:
            self._path.write_text(
                "".join(
                    line
                    for line in self._path.read_text("utf-8").splitlines(keepends=True)
                    if line != f"{report.nodeid}\n"
                ),
                "utf-8",
            )

    def _add(self, nodeid: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{nodeid}\n")

    def pytest_terminal_summary(self, terminalreporter: object) -> None:
        """Say what was not run again."""
        if self._passed:
            text = f"{len(self._passed)} tests of tree {self._tree[:12]} had passed before, and were not run again"
            terminalreporter.write_line(text)  # type: ignore[attr-defined]
