"""Tables of ``docs/geo-replication-faults.md`` and of promises in ``docs/geo-replication.md``: each test is there."""

from __future__ import annotations

import re

from support.house.doc_tables import is_long
from support.house.source_tree import ROOT

PAGE = ROOT / "docs" / "geo-replication-faults.md"
PROMISES = ROOT / "docs" / "geo-replication.md"
NAMED = re.compile(r"\| `(tests/[\w/]+\.py)::(test_\w+)` \|$")


def wrong_rows(text: str) -> tuple[list[str], int]:
    """What is wrong, and how many rows name a test."""
    wrong, tested = [], 0
    for line in text.splitlines():
        if not line.startswith("| ") or line.startswith(("| Report |", "| Promise |")):
            continue
        named = NAMED.search(line)
        if named is None:
            if "not there yet" not in line and "not yet:" not in line:
                wrong.append(f"neither a test nor a word on why not: {line[:60]}")
            continue
        tested += 1
        path = ROOT / named.group(1)
        if not path.exists() or is_long(path, named.group(2)) is None:
            wrong.append(f"{named.group(1)}::{named.group(2)} is not there")
    return wrong, tested


def test_each_report_names_a_test_that_is_there() -> None:
    wrong, tested = wrong_rows(PAGE.read_text(encoding="utf-8"))
    assert not wrong, "; ".join(wrong)
    assert tested >= 20


def test_each_promise_names_a_test_that_is_there() -> None:
    table = PROMISES.read_text(encoding="utf-8").partition("\n## What is promised, and by which test\n")[2]
    wrong, tested = wrong_rows(table.partition("\n## ")[0])
    assert not wrong, "; ".join(wrong)
    assert tested >= 12


def test_a_row_without_its_test_is_caught() -> None:
    here = "tests/tidy/test_tidy_geo_faults.py::test_a_row_without_its_test_is_caught"
    assert wrong_rows(f"| a | b | c | `{here}` |") == ([], 1)
    assert len(wrong_rows(f"| a | b | c | `{here}s` |")[0]) == 1
    assert len(wrong_rows("| a | b | c | |")[0]) == 1
    assert wrong_rows("| a | b | not there yet | |") == ([], 0)
