"""Every page that links lead to, in both schemes and widths: axe's rules, one heading, no overflow."""

from __future__ import annotations

from collections import deque
from urllib.parse import urljoin, urlsplit

from playwright.sync_api import Browser

from tools.browser.addresses import act_paths, page_of
from tools.browser.chrome import SCHEMES, SIZES, Watch, axe, overflow, tab
from tools.browser.world import LETTERS, ORDERS, PAYMENTS

#: Pages that are looked at, at most, and of one kind.
PAGES_MAX, KIND_MAX = 120, 1
#: Where pages begin that take a name, which the navigation's links do not give.
FIRST = (
    page_of("/topics", namespace="shop/orders"),
    page_of("/messages", topic=ORDERS),
    page_of("/messages", topic=PAYMENTS),
    page_of("/message", topic=ORDERS, id="1:300"),
    page_of("/dead-letters", namespace="shop/orders"),
    page_of("/dead-letters/topic", topic=LETTERS),
    page_of("/schemas", topic=ORDERS, version="1", before="0"),
    page_of("/permissions", namespace="shop/orders"),
    page_of("/permissions", topic=ORDERS),
    page_of("/replication", topic=ORDERS),
    page_of("/compaction", topic=ORDERS),
    "/console/login",
    "/console/nothing",
    page_of("/topics", namespace="no-namespace"),
    page_of("/message", topic=ORDERS, id="99:99"),
    *act_paths(),
)
_STRUCTURE = """() => ({
  headings: document.querySelectorAll('h1').length,
  mains: document.querySelectorAll('main').length,
  title: document.title,
  inline: document.querySelectorAll('[style], style, script:not([src])').length,
  unlabelled: [...document.querySelectorAll('button')].filter(b => !b.textContent.trim() && !b.ariaLabel).length,
})"""


def kind_of(url: str) -> str:
    """What pages are alike: the path, and which parameters are given."""
    parts = urlsplit(url)
    given = sorted({pair.partition("=")[0] for pair in parts.query.split("&") if pair})
    return f"{parts.path}?{','.join(given)}"


def crawl(browser: Browser, base_url: str, watch: Watch) -> list[str]:
    """One page of each kind that links and forms which ask (GET) lead to."""
    waiting = deque(urljoin(base_url, path) for path in ("/console/", *FIRST))
    seen: dict[str, int] = {}
    pages: list[str] = []
    with tab(browser, watch, script=False) as page:
        while waiting and len(pages) < PAGES_MAX:
            url = waiting.popleft().partition("#")[0]
            kind = kind_of(url)
            path = urlsplit(url).path
            if seen.get(kind, 0) >= KIND_MAX or not path.startswith("/console") or "/static/" in path:
                continue
            if "logout" in path or "download" in path:
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
