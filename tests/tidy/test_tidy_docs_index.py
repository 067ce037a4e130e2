"""Every page of the documentation is on its index, once under what a reader wants, and no link of the index is dead."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from support.house.source_tree import ROOT, tracked_files

DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
#: A page on the list of the first ones, or named as the place of words, stands under what it is as well, or not.
_GROUPS = re.compile(r"^## ", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def index_violations(text: str, pages: Iterable[str]) -> list[str]:
    """What is wrong with an index of ``pages``, paths below ``docs``."""
    pages = set(pages)
    linked = [link for link in _LINK.findall(text) if not link.startswith(("../", "http:", "https:"))]
    found = [f"{page} is not on the index" for page in sorted(pages - set(linked))]
    found += [f"the index names {page}, which is not there" for page in sorted(set(linked) - pages)]
    _, first, *groups = _GROUPS.split(text)
    for title, links in [(group.partition("\n")[0], _LINK.findall(group)) for group in groups]:
        found += [f"{page} is twice under {title!r}" for page in sorted({one for one in links if links.count(one) > 1})]
    four = re.findall(r"^\d\. \[[^\]]*\]\(([^)]+)\)", first, re.MULTILINE)
    if len(four) != 4:
        found.append(f"{len(four)} pages come first, four should")
    return found


def test_every_page_is_on_the_index() -> None:
    pages = [
        path.relative_to(DOCS).as_posix()
        for path in tracked_files()
        if path.suffix == ".md" and path.is_relative_to(DOCS) and path != INDEX
    ]
    assert len(pages) > 70
    assert not (found := index_violations(INDEX.read_text(encoding="utf-8"), pages)), "\n".join(found)


def test_the_readme_leads_to_the_index_and_to_the_first_pages() -> None:
    linked = set(_LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert {
        f"docs/{page}" for page in ("README.md", "first-steps.md", "client.md", "configuration.md", "compatibility.md")
    } <= linked


def dead_links(page: Path, text: str) -> list[str]:
    """Links of a page to files that are not there."""
    links = {link for link in _LINK.findall(text) if re.fullmatch(r"[\w./-]+", link)}
    return sorted(link for link in links if not (page.parent / link).exists())


def test_no_page_links_to_a_file_that_is_not_there() -> None:
    pages = [path for path in tracked_files() if path.suffix == ".md"]
    dead = {str(path.relative_to(ROOT)): dead_links(path, path.read_text(encoding="utf-8")) for path in pages}
    assert not {page: links for page, links in dead.items() if links}
    text = "[there](cursor.md#a) [elsewhere](https://x.y/none.md) [gone](none.md) [up](../none.md#b)"
    assert dead_links(INDEX, text) == ["../none.md", "none.md"]


SAMPLE = """# Index
## First
1. [a](a.md)
2. [b](b.md)
3. [c](c.md)
4. [d](formats/d.md#part)
## Rest
[e](e.md), [code](../ARCHITECTURE.md)
"""
PAGES = ["a.md", "b.md", "c.md", "formats/d.md", "e.md"]


def test_an_index_that_lacks_a_page_or_names_one_too_many_is_caught() -> None:
    assert index_violations(SAMPLE, PAGES) == []
    assert index_violations(SAMPLE, [*PAGES, "f.md"]) == ["f.md is not on the index"]
    assert index_violations(SAMPLE, PAGES[:-1]) == ["the index names e.md, which is not there"]
    assert index_violations(f"{SAMPLE}\n[e](e.md)", PAGES) == ["e.md is twice under 'Rest'"]
    assert index_violations(SAMPLE.replace("3. [c]", "[c]"), PAGES) == ["3 pages come first, four should"]
