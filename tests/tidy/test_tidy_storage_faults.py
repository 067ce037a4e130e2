"""The table of ``docs/storage-faults.md``: its tests are there and run when it says, its defects are planted.

The product has no switch for any: a defect is a changed line (``tools/mutants``) or what a simulated disk does.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from support.house.doc_tables import is_long
from support.house.source_tree import ROOT, SourceModule, product_modules

PAGE = ROOT / "docs" / "storage-faults.md"
PACKAGES = ROOT / "tools" / "mutants" / "packages"
#: Defects of BookKeeper's, B1 and so on.
DEFECTS = 12


class Row(NamedTuple):
    defect: str
    package: str
    why: str
    file: str
    test: str
    when: str


def rows_of(text: str) -> list[Row]:
    """Rows of the table; one that says "the same" has the defect planted as the row before it."""
    found: list[Row] = []
    for line in text.splitlines():
        if not line.startswith("| ") or line.startswith("| Defect |"):
            continue
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        assert len(cells) == 5, f"not five cells: {line}"
        planted = re.fullmatch(r"`(\w+)`: (.+)", cells[2])
        test = re.fullmatch(r"`([\w/.]+\.py)::(\w+)`", cells[3])
        assert test is not None, f"names no test: {line}"
        if planted is None:
            assert cells[2] == "the same", f"says not how it is planted: {line}"
            package, why = found[-1].package, found[-1].why
        else:
            package, why = planted[1], planted[2]
        found.append(Row(cells[0], package, why, test[1], test[2], cells[4]))
    return found


def test_tests_of_the_table_are_there_and_run_when_it_says() -> None:
    for row in rows_of(PAGE.read_text(encoding="utf-8")):
        path = ROOT / row.file
        long = is_long(path, row.test) if path.exists() else None
        assert long is not None, f"{row.file}::{row.test} is not there"
        assert row.when == ("long" if long else "short"), f"{row.test} runs at another time"


def test_defects_of_the_table_are_planted_and_none_is_left_out() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    for row in rows:
        planted = tomllib.loads((PACKAGES / f"{row.package}.toml").read_text(encoding="utf-8"))["mutant"]
        assert row.why in [mutant["why"] for mutant in planted], f"{row.defect[:20]}: not planted: {row.why}"
    numbers = [found[1] for row in rows if (found := re.match(r"B(\d+)\. ", row.defect))]
    assert numbers == [str(number) for number in range(1, DEFECTS + 1)]


def test_row_that_names_what_is_not_there_is_caught() -> None:
    (row,) = rows_of("| B1. a | b | `bookie`: none | `tests/unit/bookie/test_none.py::test_none` | short |")
    assert (row.package, row.why, row.test) == ("bookie", "none", "test_none")
    assert not (ROOT / row.file).exists()


def switches_in(modules: Iterable[SourceModule]) -> Iterator[str]:
    """Parameters, attributes and classes, outside of the simulator, that say that they make the product wrong."""
    for module in modules:
        if module.name.startswith("geminga.sim"):
            continue
        for node in module.nodes:
            if isinstance(node, ast.arg):
                name = node.arg
            elif isinstance(node, ast.Attribute):
                name = node.attr
            elif isinstance(node, ast.ClassDef):
                name = node.name
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
            else:
                continue
            if re.search("defect|planted|sabotage", name, re.IGNORECASE):
                yield f"{module.name}:{node.lineno} {name}"


def test_product_has_no_switch_that_makes_it_wrong() -> None:
    assert list(switches_in(product_modules())) == []


def test_planted_switch_is_caught_and_the_simulators_are_not() -> None:
    text = "class Defects:\n    planted: bool\ndef open(defects): self._defects = defects\ndef defect(text): ..."
    found = [line.split()[1] for line in switches_in([SourceModule("geminga.bookie.journal", text)])]
    assert sorted(found) == ["Defects", "_defects", "defects", "planted"]
    assert not list(switches_in([SourceModule("geminga.sim.disk", text)]))
