"""The tables of ``docs/spark-faults.md``: every test that they name is there, and runs when they say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from support.house.doc_tables import is_long
from support.house.source_tree import ROOT

PAGE = ROOT / "docs" / "spark-faults.md"
FOLDER = "tests/integration/spark/"
#: Failures that are tried in ``make test``.
SHORT_ROWS_MIN = 8
#: Defects of other connectors, each with a test of its own.
DEFECTS = 8


@dataclass(frozen=True)
class Row:
    section: str
    cells: tuple[str, ...]
    file: str
    test: str

    @property
    def when(self) -> str:
        return next(cell for cell in self.cells if cell in ("short", "long"))


def rows_of(text: str) -> list[Row]:
    """Every line of a table that names a test; fails for one that names none, or two."""
    found, section = [], ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        if not line.startswith("| ") or line.startswith("| What fails |") or "| Test |" in line:
            continue
        cells = tuple(cell.strip() for cell in line.strip("|").split(" | "))
        cells = tuple(cell.strip("| ") for cell in cells)
        named = [match for cell in cells for match in re.findall(r"^`([\w/.]+\.py)::(\w+)`$", cell)]
        assert len(named) == 1, f"names no test, or several: {line}"
        assert sum(cell in ("short", "long") for cell in cells) == 1, f"does not say when: {line}"
        file, test = named[0]
        found.append(Row(section, cells, file if "/" in file else FOLDER + file, test))
    return found


def test_tests_of_the_tables_are_there_and_run_when_they_say() -> None:
    wrong = []
    for row in rows_of(PAGE.read_text(encoding="utf-8")):
        path = ROOT / row.file
        long = is_long(path, row.test) if path.exists() else None
        if long is None or row.when != ("long" if long else "short"):
            wrong.append(f"{row.file}::{row.test} is {'not there' if long is None else 'long' if long else 'short'}")
    assert not wrong, "docs/spark-faults.md: " + "; ".join(wrong)


def test_enough_failures_are_tried_in_the_short_run_and_every_defect_has_its_row() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    failures = [row for row in rows if row.section.startswith("Failures") and row.when == "short"]
    assert sum("Spark" in row.cells for row in failures) >= SHORT_ROWS_MIN
    defects = [row.cells[0].partition(".")[0] for row in rows if row.section.startswith("Defects")]
    assert defects == [str(number) for number in range(1, DEFECTS + 1)]
    assert len({row.test for row in rows if row.section.startswith("Defects")}) == DEFECTS


def test_page_that_names_what_is_not_there_is_caught() -> None:
    row = rows_of("## X\n| a | b | `test_spark_kills.py::test_nothing` | short |")[0]
    assert is_long(ROOT / row.file, row.test) is None
    assert is_long(Path(__file__), "test_page_that_names_what_is_not_there_is_caught") is False
