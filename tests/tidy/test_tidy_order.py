"""The promises of ``docs/order.md``: every test that they name is there, and runs when they say."""

from __future__ import annotations

import re

from support.house.doc_tables import is_long
from support.house.source_tree import ROOT

PAGE = ROOT / "docs" / "order.md"
PROMISES_MIN = 25
#: Name and time of a test at the end of a row.
NAMED = re.compile(r"\| `(tests/[\w/]+\.py)::(test_\w+)` \| (short|long) \|$")


def wrong_rows(text: str) -> tuple[list[str], int]:
    """What is wrong, and how many promises there are."""
    wrong, promises = [], 0
    for line in text.splitlines():
        if not line.startswith("| ") or line.startswith("| Promise |"):
            continue
        promises += 1
        named = NAMED.search(line)
        if named is None:
            wrong.append(f"names no test: {line[:80]}")
            continue
        file, test, when = named.groups()
        path = ROOT / file
        long = is_long(path, test) if path.exists() else None
        if long is None or when != ("long" if long else "short"):
            wrong.append(f"{file}::{test} is {'not there' if long is None else 'long' if long else 'short'}")
    return wrong, promises


def test_each_promise_of_order_names_a_test_that_is_there() -> None:
    wrong, promises = wrong_rows(PAGE.read_text(encoding="utf-8"))
    assert not wrong, "docs/order.md: " + "; ".join(wrong)
    assert promises >= PROMISES_MIN


def test_a_promise_without_its_test_is_caught() -> None:
    here = "tests/tidy/test_tidy_order.py::test_a_promise_without_its_test_is_caught"
    assert wrong_rows(f"| a | b | `{here}` | short |") == ([], 1)
    for row in (f"| a | b | `{here}` | long |", f"| a | b | `{here}s` | short |", "| a | b | `x.py` | short |"):
        assert len(wrong_rows(row)[0]) == 1
