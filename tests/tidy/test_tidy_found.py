"""``tests/found_54574fd4.tsv``: what outsiders found at 54574fd4, and the test that asserts each right answer now.

Columns: the finding; the script that showed it, if one did; the test's file and name; ``short`` or ``long``; what the
test printed at 54574fd4 (``the script``: what that did, where the test asks for what was not there).
"""

from __future__ import annotations

from pathlib import Path

from support.house.doc_tables import is_long
from support.house.source_tree import ROOT

TABLE = ROOT / "tests" / "found_54574fd4.tsv"
COLUMNS = 6
#: Kinds of findings, and how many there were of each.
FINDINGS = {"A": 6, "B": 6, "C": 19, "D": 5, "E": 1}


def wrong_rows(text: str, tests: Path) -> list[str]:
    """What is wrong with the rows, each a sentence."""
    wrong: list[str] = []
    seen: set[str] = set()
    for line in text.splitlines()[1:]:
        cells = line.split("\t")
        if len(cells) != COLUMNS or not cells[0] or not cells[5]:
            wrong.append(f"{COLUMNS} columns, the first and the last of them filled: {line[:80]}")
            continue
        finding, _, file, test, when, _ = cells
        seen.add(finding)
        path = tests / file
        long = is_long(path, test) if path.is_file() else None
        if long is None or when != ("long" if long else "short"):
            wrong.append(f"{finding}: {file}::{test} is {'not there' if long is None else 'long' if long else 'short'}")
    missing = {f"{kind}{number}" for kind, count in FINDINGS.items() for number in range(1, count + 1)} - seen
    return [*wrong, *(f"{finding} has no row" for finding in sorted(missing))]


def test_each_finding_names_a_test_that_is_there() -> None:
    assert not wrong_rows(TABLE.read_text(encoding="utf-8"), ROOT / "tests")


def test_rows_that_name_what_is_not_there_are_caught() -> None:
    good = TABLE.read_text(encoding="utf-8")
    head, first, *others = good.splitlines()
    cells = first.split("\t")
    for number, value, says in (
        (3, "test_that_never_was", "not there"),
        (4, "long" if cells[4] == "short" else "short", f"is {cells[4]}"),
        (5, "", "columns"),
    ):
        changed = "\t".join([*cells[:number], value, *cells[number + 1 :]])
        assert says in "; ".join(wrong_rows("\n".join([head, changed, *others]), ROOT / "tests"))
    without = [line for line in others if not line.startswith("E1\t")]
    assert wrong_rows("\n".join([head, first, *without]), ROOT / "tests") == ["E1 has no row"]
