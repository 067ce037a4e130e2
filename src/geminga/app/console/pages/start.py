"""The first page: what this cluster is and how it fares."""

from __future__ import annotations

import asyncio

from geminga.admin import AdminError
from geminga.app.console.tables import Page, Rendered, View


async def start(view: View) -> Rendered:
    """Brokers, and whether the one that is asked is healthy."""
    brokers, health = await asyncio.gather(view.admin.brokers.list(), _health(view))
    return Rendered("start.html", {"brokers": brokers, "health": health})


async def _health(view: View) -> str:
    """``ok``, or why not."""
    try:
        await view.admin.brokers.health()
    except AdminError as error:
        return error.reason
    return "ok"


PAGES = (Page("/", start, section="Start"),)
