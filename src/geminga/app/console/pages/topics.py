"""Topics: the list, each of them, and each of their subscriptions."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from geminga.admin.errors import AdminError, NotAvailableError, UnreachableError
from geminga.app.console.core.history import SPAN_MS
from geminga.app.console.core.plots import line_plot
from geminga.app.console.core.topic_rows import (
    SHOWN_MAX,
    ListedTopic,
    consumer_rows,
    ledger_rows,
    numbers_of,
    producer_rows,
    subscription_row,
    subscription_rows,
    topics_of,
)
from geminga.app.console.reading.topics import PARTITIONS_ASKED_MAX, Looked, look, rows_of
from geminga.app.console.tables import SEARCH_LENGTH_MAX, Page, Rendered, View
from geminga.app.handles.doctor import examine


async def topics(view: View) -> Rendered:
    """Topics of a namespace whose name has ``q``; statistics of the page's alone."""
    namespace = view.given("namespace").strip() or "public/default"
    wanted = view.given("q").strip()[:SEARCH_LENGTH_MAX]
    with_system = view.given("system") == "yes"
    names, partitioned, passing = await asyncio.gather(
        view.admin.topics.list(namespace, with_system=with_system),
        view.admin.topics.list_partitioned(namespace, with_system=with_system),
        _passing(view, namespace, with_system=with_system),
    )
    page = view.page_of(topics_of([*names, *(passing or ())], partitioned, wanted))
    rows = await rows_of(view.admin, page.rows, view.now_ms)
    values = {"namespace": namespace, "q": wanted, "system": "yes" if with_system else "", "page": page, "rows": rows}
    return Rendered("topics.html", {**values, "is_whole": passing is not None})


async def _passing(view: View, namespace: str, *, with_system: bool) -> list[str] | None:
    """Non-persistent topics, which each broker tells of its own; None: one of them does not."""
    try:
        return [*await view.admin.topics.list_non_persistent(namespace, with_system=with_system)]
    except (UnreachableError, NotAvailableError):
        return None


async def topic(view: View) -> Rendered:
    """Everything about one, or about all partitions of one together."""
    found = await look(view.admin, view.wanted("topic"))
    numbers = numbers_of(found.stats, view.now_ms)
    view.seen.add(
        found.name,
        {"in": numbers.rate_in, "out": numbers.rate_out, "backlog": float(numbers.backlog)},
        now_ms=view.now_ms,
    )
    producers = producer_rows(found.stats)
    values: dict[str, Any] = {
        "topic": found.name,
        "partitions": found.partitions,
        "numbers": numbers,
        "subscriptions": subscription_rows(found.stats, view.now_ms),
        "producers": producers[:SHOWN_MAX],
        "owner": found.stats.get("ownerBroker") or "",
        "rates_plot": _rates_plot(view, found.name),
        "backlog_plot": _backlog_plot(view, found.name),
        "page": None,
        "rows": [],
        "ledgers": [],
        "ledger_count": 0,
        "state": "",
        "schema": None,
    }
    if view.part in ("", "partitions") and found.partitions:
        names = [ListedTopic(f"{found.name}-partition-{number}", None) for number in range(found.partitions)]
        page = view.page_of(names)
        values |= {"page": page, "rows": await rows_of(view.admin, page.rows, view.now_ms)}
    if not view.part:
        values["schema"] = await _known(view.admin.schemas.get(found.name))
        if not found.partitions:
            internal = await _known(view.admin.topics.internal_stats(found.name)) or {}
            ledgers = ledger_rows(internal)
            values |= {
                "ledgers": ledgers[:SHOWN_MAX],
                "ledger_count": len(ledgers),
                "state": str(internal.get("state") or ""),
            }
    return Rendered("topic.html", values)


async def subscription(view: View) -> Rendered:
    """Who consumes, what is left to deliver, and why it is not delivered."""
    found = await look(view.admin, view.wanted("topic"))
    name = view.wanted("subscription")
    document = found.subscription(name)
    row = subscription_row(name, document, view.now_ms)
    # No name of a topic: those begin with their domain, and may go on like topic and subscription together.
    key = f"{len(found.name)} {found.name} {name}"
    view.seen.add(key, {"backlog": float(row.backlog), "out": row.rate_out}, now_ms=view.now_ms)
    consumers = consumer_rows(document)
    values = {
        "topic": found.name,
        "partitions": found.partitions,
        "row": row,
        "active": document.get("activeConsumerName") or "",
        "consumers": consumers[:SHOWN_MAX],
        "consumer_count": len(consumers),
        "backlog_plot": _backlog_plot(view, key),
        "findings": [],
        "is_examined": found.partitions <= PARTITIONS_ASKED_MAX,
        "partition_names": [f"{found.name}-partition-{number}" for number in range(found.partitions)][:SHOWN_MAX],
    }
    if view.part in ("", "findings") and values["is_examined"]:
        values["findings"] = await _findings(view, found, name)
    return Rendered("subscription.html", values)


async def _findings(view: View, found: Looked, name: str) -> list[tuple[str, Any]]:
    """Of the doctor, each with the partition that it is about."""
    examined = await examine(view.admin, found.name, name, now_ms=view.now_ms)
    rows = [
        (topic, finding)
        for topic, findings in examined.items()
        for finding in findings
        if finding.subscription in ("", name)
    ]
    return rows[:SHOWN_MAX]


def _rates_plot(view: View, key: str) -> object:
    lines = [view.seen.series(key, "in", "published"), view.seen.series(key, "out", "delivered")]
    return line_plot(lines, title="Rates", unit="messages/s", now_ms=view.now_ms, span_ms=SPAN_MS)


def _backlog_plot(view: View, key: str) -> object:
    lines = [view.seen.series(key, "backlog", "backlog")]
    return line_plot(lines, title="Backlog", unit="messages", now_ms=view.now_ms, span_ms=SPAN_MS)


async def _known(answer: Any) -> Any:  # noqa: ANN401  (documents of REST)
    """None for what is not there, or what the visitor may not see."""
    try:
        return await answer
    except AdminError:
        return None


PAGES: Final = (
    Page("/topics", topics, section="Topics"),
    Page("/topic", topic),
    Page("/subscription", subscription),
)
