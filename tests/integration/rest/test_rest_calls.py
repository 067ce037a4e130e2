"""The table of REST calls: what Geminga answers, against what Apache Pulsar's broker answered when it was recorded."""

from __future__ import annotations

from functools import cache

import pytest
from starlette.routing import Match, Route
from tools.interop.rest.calls import Call, Story
from tools.interop.rest.comparing import compare
from tools.interop.rest.meant import MEANT
from tools.interop.rest.recording import names_of, recorded
from tools.interop.rest.sending import Answer, send_all
from tools.interop.rest.tables import TABLES, by_settings

from geminga import Standalone
from geminga.broker.rest.calls.routing import SegmentRouter
from geminga.broker.rest.families import all_rows
from support.house.source_tree import ROOT

pytestmark = pytest.mark.integration

#: What a page about differences is called.
COMPATIBILITY = ROOT / "docs" / "compatibility.md"
CALLS_MIN = 600
#: What brokers of Geminga's ask each other; Apache's have nothing of it.
BETWEEN_BROKERS = ("/admin/v3/transactions/bufferSnapshot/", "/admin/v3/transactions/standings/")
#: What Apache's broker of the table does not serve (``tools/interop/apache_broker.py``): the tests of WebSockets ask.
OF_SOCKETS = ("/ws/", "/admin/v2/proxy-stats/")
#: What only Geminga has beside that, where Apache's refuse (405, 404): tests of their own ask for it.
OURS_ALONE = {
    *(("/admin/v2/brokers/backup", "POST"), ("/admin/v2/brokers/backup", "GET"), ("/compaction", "DELETE")),
    *(("/consumers", "POST"), ("/consumers/{consumer}", "DELETE"), ("/receive", "POST")),
    *(("/acknowledge", "POST"), ("/negativeAcknowledge", "POST"), ("/tail", "GET")),
    *(("/leftTopics", "GET"), ("/leftTopics", "DELETE"), ("/shadowState", "GET"), ("/shadowState", "PUT")),
    ("/synchronization", "GET"),
}


@cache
def rows() -> list[Route]:
    """Every route; made when a test asks, as they cost more than their file takes to be read."""
    return list(all_rows())


@cache
def ordered() -> list[Route]:
    """As requests find them: the more particular first."""
    return [route for route in SegmentRouter(rows()).routes if isinstance(route, Route)]


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    found: dict[str, Answer] = {}
    for settings, tables in by_settings():
        with Standalone(config=settings) as broker:
            stories = [story for table in tables for story in TABLES[table]]
            found |= send_all(stories, broker.web_service_url, broker.service_url)
    return found


@pytest.mark.parametrize("table", TABLES)
def test_answers_differ_from_apaches_where_it_is_meant_only(table: str, answers: dict[str, Answer]) -> None:
    names = names_of(TABLES[table])
    apache = recorded(table)
    assert list(apache) == names, "record anew: python -m tools.interop rest --record"
    compared = compare(apache, {name: answers[name] for name in names}, MEANT)
    assert not compared.unexplained, "\n".join(f"{name}\n    {line}" for name, line in compared.unexplained)


def test_every_meant_difference_is_there_and_told_to_users(answers: dict[str, Answer]) -> None:
    apache = {name: answer for table in TABLES for name, answer in recorded(table).items()}
    compared = compare(apache, {name: answers[name] for name in apache}, MEANT)
    assert compared.idle == []
    text = COMPATIBILITY.read_text(encoding="utf-8").partition("## Answers of the admin REST")[2].partition("\n## ")[0]
    rows = {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")}
    assert {row.row for row in MEANT} <= rows


def test_every_route_is_called_and_calls_are_many() -> None:
    calls = [
        (step.method, step.target(story.namespace).partition("?")[0].rstrip("/"))
        for story in _stories()
        for step in story.steps
        if isinstance(step, Call)
    ]
    assert len(calls) >= CALLS_MIN
    taken = [_route_of(method, path) for method, path in calls]
    missing = [
        f"{sorted(route.methods or ())} {route.path}"
        for route in rows()
        if not route.path.startswith((*BETWEEN_BROKERS, *OF_SOCKETS))
        and not any(route.path.endswith(path) and method in (route.methods or ()) for path, method in OURS_ALONE)
        and not any(route is one for one in taken)
    ]
    assert not missing, "no call in the table of tools/interop/rest goes to\n" + "\n".join(missing)


def _stories() -> list[Story]:
    return [story for stories in TABLES.values() for story in stories]


def _route_of(method: str, path: str) -> Route | None:
    scope = {"type": "http", "method": method, "path": path}
    return next((route for route in ordered() if route.matches(scope)[0] is Match.FULL), None)
