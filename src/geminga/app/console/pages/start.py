"""The first page: what this cluster is, how it fares, and what needs attention."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from geminga.admin.errors import AdminError
from geminga.app.console.core.history import SPAN_MS
from geminga.app.console.core.plots import line_plot
from geminga.app.console.core.topic_rows import TopicRow, most_behind, topics_of
from geminga.app.console.reading.topics import rows_of
from geminga.app.console.tables import Page, Rendered, View

#: Topics that are asked for their backlogs, the first of each namespace in turn, and those that are shown.
TOPICS_LISTED_MAX: Final = 60
SHOWN_MAX: Final = 10
#: Tenants, and namespaces of all of them, whose topics are among those.
TENANTS_LISTED_MAX: Final = 20
NAMESPACES_LISTED_MAX: Final = 20
#: Topics of a broker whose rates are added up here: the broker looks at each for that, and
#: for the report of its load, which is not asked again and again either then.
RATED_TOPICS_MAX: Final = 1_000
#: Of the history: the broker that is asked.
_HERE: Final = "broker"


async def start(view: View) -> Rendered:
    """``part`` "now" asks for no topic, "attention" for topics alone."""
    values: dict[str, Any] = {"brokers": None, "health": "", "load": None, "plot": None, "behind": [], "asked": 0}
    values |= {"counts_rates": True, "whole": True}
    if view.part != "attention":
        values |= await _now(view)
    if view.part != "now":
        rows, values["whole"] = await _attention(view)
        values |= {"behind": most_behind(rows, SHOWN_MAX), "asked": len(rows)}
    return Rendered("start.html", values)


async def _now(view: View) -> dict[str, Any]:
    # A message goes through for each question about health: not again every few seconds.
    health = "" if view.part == "now" else await _health(view)
    brokers, load = await asyncio.gather(_told(view.admin.brokers.list), _told(view.admin.brokers.load_report))
    values: dict[str, Any] = {"brokers": brokers, "health": health, "load": load, "plot": None, "counts_rates": True}
    if load is not None and int(load.get("numTopics") or 0) > RATED_TOPICS_MAX:
        return {**values, "counts_rates": False}
    metrics = await _told(view.admin.brokers.metrics)
    if metrics is not None:
        rates = {"in": 0.0, "out": 0.0}
        for each in metrics:
            found = each.get("metrics", {})
            rates["in"] += float(found.get("brk_in_rate", 0))
            rates["out"] += float(found.get("brk_out_rate", 0))
        view.seen.add(_HERE, rates, now_ms=view.now_ms)
        lines = [view.seen.series(_HERE, "in", "published"), view.seen.series(_HERE, "out", "delivered")]
        title = "Through this broker"
        values |= {
            "rates": rates,
            "plot": line_plot(lines, title=title, unit="messages/s", now_ms=view.now_ms, span_ms=SPAN_MS),
        }
    return values


async def _attention(view: View) -> tuple[list[TopicRow], bool]:
    """Topics with their numbers, and whether these are all that there are."""
    tenants = await _told(view.admin.tenants.list) or ["public"]
    named = await asyncio.gather(*(_told(view.admin.namespaces.list, name) for name in tenants[:TENANTS_LISTED_MAX]))
    namespaces = [name for each in named if each is not None for name in each]
    shown = namespaces[:NAMESPACES_LISTED_MAX]
    listed = await asyncio.gather(
        *(_told(view.admin.topics.list, name) for name in shown),
        *(_told(view.admin.topics.list_partitioned, name) for name in shown),
    )
    whole = [topics_of(listed[at] or (), listed[at + len(shown)] or (), "") for at in range(len(shown))]
    # The first of each in turn: a namespace of many topics does not hide the others.
    turns = sorted((number, topic) for topics in whole for number, topic in enumerate(topics[:TOPICS_LISTED_MAX]))
    topics = [topic for _, topic in turns[:TOPICS_LISTED_MAX]]
    is_whole = (
        len(tenants) <= TENANTS_LISTED_MAX and len(namespaces) == len(shown) and len(topics) == sum(map(len, whole))
    )
    return await rows_of(view.admin, topics, view.now_ms), is_whole


async def _health(view: View) -> str:
    """``ok``, or why not."""
    try:
        await view.admin.brokers.health()
    except AdminError as error:
        return error.reason
    return "ok"


async def _told(ask: Callable[..., Awaitable[Any]], *names: str) -> Any:  # noqa: ANN401  (documents of REST)
    """None where the visitor may not see it, or nobody tells."""
    try:
        return await ask(*names)
    except AdminError:
        return None


PAGES: Final = (Page("/", start, section="Start"),)
