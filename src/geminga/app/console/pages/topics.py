"""Topics: the list, and each of them."""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.admin import AdminError
from geminga.app.console.tables import SEARCH_LENGTH_MAX, Page, Rendered, View

#: Namespaces whose topics one list shows.
NAMESPACES_MAX: Final = 200


async def topics(view: View) -> Rendered:
    """Topics of a namespace, those whose name has what is searched for; statistics of the page's alone."""
    namespace = view.given("namespace") or "public/default"
    wanted = view.given("q")[:SEARCH_LENGTH_MAX]
    names = await view.admin.topics.list(namespace)
    page = view.page_of(sorted(str(name) for name in names if wanted.lower() in str(name).lower()))
    stats = await asyncio.gather(*(_stats(view, name) for name in page.rows))
    rows = list(zip(page.rows, stats, strict=True))
    return Rendered("topics.html", {"namespace": namespace, "q": wanted, "page": page, "rows": rows})


async def _stats(view: View, topic: str) -> dict[str, object] | None:
    try:
        return dict(await view.admin.topics.stats(topic, without_publishers=True, without_consumers=True))
    except AdminError:
        return None


PAGES = (Page("/topics", topics, section="Topics"),)
