"""What ``make test`` may cost: the sum of ``tests/cpu_ledger.json``, which ``make test-ledger`` measures.

A budget that is met can be lowered; one that is not is kept by making something cheaper, or by the weekly sample
(``tests/support/house/weekly_sample.py``), not by raising it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from support.house.source_tree import ROOT
from support.house.tidy_rules import MODULE_LINES_MAX
from support.house.worker_groups import ledger

TESTS = ROOT / "tests"
#: Of the whole suite, on the machine of the ledger; before there was one, it took 1,340.
SUITE_CPU_S_MAX = 800
#: Of one file: more is a file that every change pays for.
FILE_CPU_S_MAX = 40
#: Of one worker's time: the suite is not over before its longest file is.
FILE_WALL_S_MAX = 140


def test_all_tests_together_cost_no_more_than_their_budget() -> None:
    costs = ledger()
    assert sum(cpu_s for cpu_s, _ in costs.values()) <= SUITE_CPU_S_MAX
    dear = {name: cost for name, cost in costs.items() if cost[0] > FILE_CPU_S_MAX or cost[1] > FILE_WALL_S_MAX}
    assert not dear


def test_every_file_is_in_the_ledger_and_the_ledger_names_no_other() -> None:
    """``make test-ledger FILES="tests/..."`` adds those that are new."""
    files = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("test_*.py")}
    assert set(ledger()) <= set(files)
    missing = [name for name in sorted(set(files) - set(ledger())) if "mark.long" not in files[name].read_text("utf-8")]
    assert not missing


def long_files(texts: Mapping[str, str]) -> list[str]:
    """A test file is about one subject, which a few hundred lines are enough for."""
    lengths = {name: text.count("\n") for name, text in texts.items()}
    return [
        f"{name} has {lines} lines: cut it by subject" for name, lines in lengths.items() if lines > MODULE_LINES_MAX
    ]


def test_no_file_of_tests_is_longer_than_a_module_may_be() -> None:
    texts = {path.relative_to(TESTS).as_posix(): path.read_text("utf-8") for path in TESTS.rglob("*.py")}
    assert not (found := long_files(texts)), "\n".join(found)


def test_a_long_file_is_caught() -> None:
    assert long_files({"short": "a = 1\n" * MODULE_LINES_MAX}) == []
    assert len(long_files({"long": "a = 1\n" * (MODULE_LINES_MAX + 1)})) == 1


def test_what_make_test_long_runs_alone_is_there_and_has_long_tests() -> None:
    """A name that leads nowhere would be told after an hour, and its file would run among the others."""
    found = re.search(
        r"^LONG_ALONE := \$\(addprefix (\S+),(.*)\)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    assert found
    files = [ROOT / f"{found[1]}{name}" for name in found[2].split()]
    assert len(files) > 5
    assert [path.name for path in files if not path.is_file() or "mark.long" not in path.read_text("utf-8")] == []
