"""A plugin for runs of hours (``-p support.house.tell_at_once``): a failure is told when it comes, not at the end."""

from __future__ import annotations

from typing import Final

import pytest

#: Of what a test printed.
OUTPUT_CHARS: Final = 4000


def pytest_configure(config: pytest.Config) -> None:
    """Where tests are reported."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))


class Failures:
    """Hears of each report."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell what failed, and the end of what was printed."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line("")
            terminal.write_line(f"---- {report.nodeid} ({report.when}, after {report.duration:.0f} s)")
            terminal.write_line(report.longreprtext)
            for name, text in report.sections:
                terminal.write_line(f"---- {name}\n{text[-OUTPUT_CHARS:]}")
