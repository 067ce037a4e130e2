"""How soon something is to be read: first contentful paint of pages of a cluster with many topics, server warm."""

from __future__ import annotations

import asyncio
from statistics import median

from playwright.sync_api import Browser

import geminga.admin
from tools.browser.chrome import Watch, tab

NAMESPACE = "big/many"
#: Pages whose paint is measured.
PATHS = (f"/console/topics?namespace={NAMESPACE}", "/console/")
#: Requests under way at once while topics are made.
_AT_ONCE = 16
_PAINT = """() => new Promise((resolve) => {
  const known = performance.getEntriesByName('first-contentful-paint');
  if (known.length) { resolve(known[0].startTime); return; }
  new PerformanceObserver((list) => {
    for (const entry of list.getEntriesByName('first-contentful-paint')) resolve(entry.startTime);
  }).observe({type: 'paint', buffered: true});
})"""


async def make_topics(web_url: str, count: int) -> None:
    """``count`` topics in :data:`NAMESPACE`."""
    async with geminga.admin.connect(web_url) as admin:
        await admin.tenants.create("big", admin_roles=[], allowed_clusters=await admin.clusters.list())
        await admin.namespaces.create(NAMESPACE)
        numbers = iter(range(count))

        async def make() -> None:
            for number in numbers:
                await admin.topics.create(f"{NAMESPACE}/topic-{number:05d}")

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(make())


def times(browser: Browser, url: str, watch: Watch, rounds: int = 20) -> list[float]:
    """Seconds until the first text is painted, each time for a fresh visitor whose browser keeps nothing."""
    with tab(browser, watch) as page:
        page.goto(url)
    seen = []
    for _ in range(rounds):
        with tab(browser, watch) as page:
            page.goto(url)
            seen.append(float(page.evaluate(_PAINT)) / 1000)
    return seen


def middle(seen: list[float]) -> float:
    """The median, in seconds."""
    return median(seen)
