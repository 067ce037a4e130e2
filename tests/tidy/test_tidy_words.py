"""A class whose name another module has too is told of in docs/glossary.md, with each of its meanings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from tools.words import defined_words, homonyms, word_of

from support.house.source_tree import ROOT
from support.house.used_names import product_trees

_SECTION = "## Names with two meanings"
_NAME = re.compile(r"`(\w+)`")


def names_told(page: str) -> list[str]:
    """Of the first column of the section's table."""
    section = page.partition(_SECTION)[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in _NAME.findall(row)]


def word_violations(page: str, found: Iterable[str]) -> list[str]:
    """``found``: names that several modules define."""
    told, found = names_told(page), set(found)
    lines = [
        f"{name} names two classes: another word for one, or a row in docs/glossary.md" for name in found - {*told}
    ]
    lines += [
        f"docs/glossary.md tells of {name}, which names one thing or none: the row goes" for name in {*told} - found
    ]
    return sorted(lines + [f"{name} is told of twice" for name in {*told} if told.count(name) > 1])


def test_the_glossary_tells_of_each_name_with_two_meanings() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert not (found := word_violations(page, homonyms(product_trees().items()))), "\n".join(found)


PAGE = f"{_SECTION}\n| Name | Meanings |\n|---|---|\n| `A`, `B` | two `C` |\n## More\n| `D` | |\n"


def test_a_name_too_many_on_either_side_is_caught() -> None:
    assert word_violations(PAGE, ["A", "B"]) == []
    assert "C names two classes" in word_violations(PAGE, ["A", "B", "C"])[0]
    assert "tells of B" in word_violations(PAGE, ["A"])[0]


def test_what_counts_as_a_second_meaning() -> None:
    sources = {
        "wire/a.py": "class A: ...\nclass _P: ...\nclass One: ...",
        "client/b.py": "class A: ...\nclass _P: ...",
        "client/blocking/c.py": "class One: ...",
    }
    trees = [(name, ast.parse(text)) for name, text in sources.items()]
    assert homonyms(trees) == {"A": {"wire/a.py", "client/b.py"}}


def test_a_word_is_defined_by_what_is_called_so() -> None:
    text = "class Told:\n    x: int\n    def _is_told(self, told): self.has_told = told = 1"
    assert defined_words([("a.py", ast.parse(text)), ("b.py", ast.parse("def told(): ..."))]) == {
        "told": {"a.py", "b.py"},
        "x": {"a.py"},
    }
    assert [word_of(name) for name in ("BookiePlace", "_is_told", "was")] == ["bookie_place", "told", "was"]
