"""``docs/security-faults.md`` names tests that are there; each block of ``docs/security.md`` is run, or only shows."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from support.house.doc_tables import is_long
from support.house.page_blocks import RUN, SHOWN, blocks_of, program_of
from support.house.source_tree import ROOT

FAULTS = ROOT / "docs" / "security-faults.md"
PAGE = ROOT / "docs" / "security.md"
#: S1 to S10 of Pulsar's, two of OpenID Connect, one of clients, one of redelivery.
NUMBERS = [*(f"S{number}" for number in range(1, 11)), "O1", "O2", "C1", "R1"]


class Row(NamedTuple):
    fault: str
    file: str
    test: str
    when: str


def rows_of(text: str) -> list[Row]:
    found = []
    for line in text.splitlines():
        if not line.startswith("| ") or line.startswith("| Fault |"):
            continue
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        assert len(cells) == 4, f"not four cells: {line}"
        test = re.fullmatch(r"`([\w/.]+\.py)::(\w+)`", cells[2])
        assert test is not None, f"names no test: {line}"
        found.append(Row(cells[0], test[1], test[2], cells[3]))
    return found


def when_of(row: Row) -> str:
    """``short``, ``long``, or that it is not there."""
    path = ROOT / row.file
    long = is_long(path, row.test) if path.exists() else None
    if long is None:
        return "not there"
    marks = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign)]
    is_whole = any("pytestmark" in ast.unparse(node) and "mark.long" in ast.unparse(node) for node in marks)
    return "long" if long or is_whole else "short"


def test_tests_of_the_table_are_there_and_run_when_it_says() -> None:
    rows = rows_of(FAULTS.read_text(encoding="utf-8"))
    assert [f"{row.test}: {when_of(row)}" for row in rows if when_of(row) != row.when] == []


def test_no_fault_is_left_out() -> None:
    rows = rows_of(FAULTS.read_text(encoding="utf-8"))
    assert [row.fault.partition(".")[0] for row in rows if not row.fault.startswith("...")] == NUMBERS


def test_row_that_names_what_is_not_there_is_caught() -> None:
    rows = rows_of(
        "| S1. a | b | `tests/tidy/test_none.py::test_a` | short |\n| ... | b | `tests/tidy/x.py::y` | long |"
    )
    assert [when_of(row) for row in rows] == ["not there", "not there"]
    own = "tests/tidy/test_tidy_security_faults.py"
    assert when_of(Row("", own, "test_no_fault_is_left_out", "")) == "short"
    assert (
        when_of(Row("", "tests/integration/test_security_page.py", "test_the_page_on_security_runs_as_it_stands", ""))
        == "long"
    )


def test_each_block_of_the_page_on_security_is_run_or_shows_something() -> None:
    blocks = blocks_of(PAGE.read_text(encoding="utf-8"))
    assert {block.kind for block in blocks} <= {*RUN, *SHOWN}
    program = program_of(blocks, {})
    for number, block in enumerate(blocks, 1):
        assert (f"== block {number}'" in program) is (block.kind in RUN)
    # What only shows has nothing that somebody would type, but the commands of Pulsar's own tool.
    shown = [line for block in blocks if block.kind in SHOWN for line in block.text.splitlines()]
    assert [line for line in shown if re.match(r"(\$ |geminga |openssl |curl |kill )", line)] == []


def test_command_that_is_meant_to_fail_is_told_from_one_that_is_not() -> None:
    page = "```sh\na one\nb two  # refused: no way\n```\n```json\n{}\n```\n```\nc\n```\n"
    blocks = blocks_of(page)
    assert [block.kind for block in blocks] == ["sh", "json", ""]
    lines = program_of(blocks, {"one": "1", "two": "2"}).splitlines()
    assert lines[1:3] == ["echo '== block 1'", "a 1"]
    assert lines[3].startswith("if (b 2) > refused 2>&1; then echo 'not refused:'")
    assert lines[4].startswith("grep -qF 'no way' refused")
    assert lines[-1] == "echo '== the end'"
