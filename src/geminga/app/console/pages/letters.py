"""Dead letters: topics that hold some, and the letters of one with where they came from and go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from geminga.admin.errors import AdminError
from geminga.app.console.core.addresses import address
from geminga.app.console.core.letters import is_dead_letters, letters_topics, origin_of
from geminga.app.console.reading.browsing import SHOWN, SHOWN_MAX, Browsing, browse
from geminga.app.console.reading.choosing import chosen_topic
from geminga.app.console.reading.dead_letters import letters_waiting
from geminga.app.console.tables import Page, Rendered, View

if TYPE_CHECKING:
    from geminga.admin import AdminClient

#: Topics of letters on one page: each is asked for its statistics.
TOPICS_PER_PAGE: Final = 20
#: Topics that are asked at the same time.
TOGETHER: Final = 4
NAMESPACE: Final = "public/default"


async def dead_letters(view: View) -> Rendered:
    """``namespace``: its topics of letters, those with letters told; ``search``: a part of their names."""
    namespace = view.query.get("namespace", "").strip() or NAMESPACE
    search = view.query.get("search", "").strip()
    names = letters_topics(await view.admin.topics.list(namespace))
    paged = view.page_of([name for name in names if search in name], per_page=TOPICS_PER_PAGE)
    turns = asyncio.Semaphore(TOGETHER)

    async def row(name: str) -> dict[str, Any]:
        async with turns:
            return await _row(view.admin, name)

    rows = await asyncio.gather(*(row(name) for name in paged.rows))
    return Rendered("dead_letters.html", {"namespace": namespace, "search": search, "paged": paged, "rows": rows})


async def _row(admin: AdminClient, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": name, "is_dead": is_dead_letters(name), "waiting": None, "problem": ""}
    try:
        row["waiting"] = await letters_waiting(admin, name)
    except AdminError as error:
        row["problem"] = error.reason
    return row


async def letters(view: View) -> Rendered:
    """``topic``: its letters, oldest first, page by page."""
    chosen = await chosen_topic(view.admin, view.wanted("topic"))
    request = Browsing(
        chosen.shown,
        view.query.get("start", ""),
        newest_first=False,
        shown=view.number("shown", SHOWN, least=1, most=SHOWN_MAX),
    )
    page = await browse(view.admin, request)
    rows = [(each, origin_of(chosen.shown, each.message.properties)) for each in page.messages]
    return Rendered(
        "letters.html",
        {
            "topic": chosen.shown,
            "whole": chosen.whole,
            "chosen": chosen,
            "is_dead": is_dead_letters(chosen.whole),
            "waiting": await letters_waiting(view.admin, chosen.whole),
            "rows": rows,
            "page": page,
            "refused": f"{chosen.whole}-refused",
            "further": address("/dead-letters/topic", topic=chosen.shown, start=page.further) if page.further else "",
        },
    )


PAGES: Final = (
    Page("/dead-letters", dead_letters, section="Dead letters"),
    Page("/dead-letters/topic", letters),
)
