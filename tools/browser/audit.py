"""Every page that links lead to, in both schemes and widths: axe's rules, one heading, no overflow."""

from __future__ import annotations

import re
from collections import deque
from urllib.parse import urljoin, urlsplit

from playwright.sync_api import Browser

from tools.browser.chrome import SCHEMES, SIZES, Watch, axe, overflow, tab

#: Pages that are looked at, at most, and of one kind.
PAGES_MAX, KIND_MAX = 80, 1
_STRUCTURE = """() => ({
  headings: document.querySelectorAll('h1').length,
  mains: document.querySelectorAll('main').length,
  title: document.title,
  inline: document.querySelectorAll('[style], style, script:not([src])').length,
  unlabelled: [...document.querySelectorAll('button')].filter(b => !b.textContent.trim() && !b.ariaLabel).length,
})"""


def kind_of(url: str, names: tuple[str, ...]) -> str:
    """What pages are alike: the path with names of things taken out, and which parameters are given."""
    parts = urlsplit(url)
    words = [word if word not in names and not re.search(r"\d", word) else "*" for word in parts.path.split("/")]
    given = sorted({pair.partition("=")[0] for pair in parts.query.split("&") if pair})
    return "/".join(words) + "?" + ",".join(given)


def crawl(browser: Browser, base_url: str, watch: Watch, names: tuple[str, ...], first: tuple[str, ...]) -> list[str]:
    """One page of each kind that links and forms which ask (GET) lead to."""
    waiting = deque(urljoin(base_url, path) for path in ("/console/", *first))
    seen: dict[str, int] = {}
    pages: list[str] = []
    with tab(browser, watch, script=False) as page:
        while waiting and len(pages) < PAGES_MAX:
            url = waiting.popleft().partition("#")[0]
            kind = kind_of(url, names)
            path = urlsplit(url).path
            if seen.get(kind, 0) >= KIND_MAX or not path.startswith("/console") or "/static/" in path:
                continue
            if "logout" in path or "download" in url or "raw" in path:
                continue
            seen[kind] = seen.get(kind, 0) + 1
            page.goto(url)
            pages.append(url)
            waiting.extend(page.locator("a[href]").evaluate_all("links => links.map(link => link.href)"))
    return pages


def look(browser: Browser, pages: list[str], watch: Watch) -> list[str]:
    """What is wrong with them, a line each."""
    found: list[str] = []
    for size in SIZES:
        for scheme in SCHEMES:
            with tab(browser, watch, size, scheme) as page:
                for url in pages:
                    place = f"{urlsplit(url).path}?{urlsplit(url).query} at {size[0]} {scheme}"
                    page.goto(url)
                    found += [f"{place}: {line}" for line in axe(page)]
                    if overflow(page) > 0:
                        found.append(f"{place}: {overflow(page)} pixels wider than the window")
                    shape = page.evaluate(_STRUCTURE)
                    if shape["headings"] != 1 or shape["mains"] != 1 or not shape["title"]:
                        found.append(f"{place}: {shape}")
                    if shape["inline"] or shape["unlabelled"]:
                        found.append(f"{place}: {shape}")
    return found
