"""The pages beside the code: each package has one, and what they and all other pages name is there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import filter as filter_paths

from support.house.source_tree import ROOT, SOURCE, tracked_files

PACKAGE = SOURCE / "geminga"
#: Packages that have their page; a new one joins them.
WITH_A_PAGE = (
    "app",
    "bookie",
    "bookkeeper",
    "client",
    "managed_ledger",
    "metadata",
    "model",
    "replication",
    "runtime",
    "sim",
    "spark",
    "transaction",
    "wire",
)
LINES_MAX = 80


def missing(text: str, files: Iterable[str]) -> list[str]:
    """Files that a page names and that end the path of none of ``files``."""
    names = re.findall(r"`((?:[\w.*{},-]+/)*[\w*{},-]+\.(?:py|md))`", text)
    known = [f"/{file}" for file in files]
    return [name for name in names if any(not filter_paths(known, f"*/{one}") for one in _spelled_out(name))]


def _spelled_out(name: str) -> list[str]:
    braces = re.search(r"\{([^}]*)\}", name)
    if braces is None:
        return [name]
    return [name[: braces.start()] + one + name[braces.end() :] for one in braces.group(1).split(",")]


def test_packages_have_a_page_that_is_one() -> None:
    for name in WITH_A_PAGE:
        page = PACKAGE / name / "DESIGN.md"
        assert page.is_file(), f"{name} has no DESIGN.md"
        assert "romises" in page.read_text(encoding="utf-8"), f"{page} does not say what {name} promises"
    long = [page for page in PACKAGE.rglob("DESIGN.md") if page.read_text(encoding="utf-8").count("\n") > LINES_MAX]
    assert long == []


def test_pages_name_files_that_are_there() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in tracked_files()]
    found = []
    for page in sorted([*PACKAGE.rglob("DESIGN.md"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        names = missing(page.read_text(encoding="utf-8"), files)
        found += [f"{page.relative_to(ROOT)} names {name}" for name in names]
    assert not found, "\n".join(found)


def test_a_file_that_is_not_there_is_caught() -> None:
    files = ["src/geminga/client/_client.py", "src/geminga/client/_transport/pool.py", "docs/spark.md"]
    assert missing("see `_client.py`, `core/`, `docs/s*.md` and `_transport/{pool}.py`", files) == []
    assert missing("see `_no_client.py`", files) == ["_no_client.py"]
    assert missing("see `ent.py` and `_transport/{pool,nothing}.py`", files) == [
        "ent.py",
        "_transport/{pool,nothing}.py",
    ]
