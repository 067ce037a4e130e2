"""No door without a decision: each command of clients and each route has one row that says what it needs."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from geminga.broker.access.core.actions import Action, Anyone
from geminga.broker.handlers import ROWS
from geminga.broker.handlers.rows import Asks, CommandRow, Handshake, SettledBy, by_command
from geminga.broker.rest.calls.routing import InBody, Route, unbuilt_routes
from geminga.broker.rest.families import all_rows
from geminga.wire._generated import pulsar_api_pb2 as pb

#: Ends of the names of what brokers send, and what they send under other names.
ANSWERS = ("_RESPONSE", "_SUCCESS", "_RECEIPT", "_ERROR")
OF_BROKERS = frozenset(
    [
        *("ACTIVE_CONSUMER_CHANGE", "AUTH_CHALLENGE", "CONNECTED", "ERROR", "MESSAGE", "REACHED_END_OF_TOPIC"),
        *("SUCCESS", "TOPIC_MIGRATED", "WATCH_TOPIC_UPDATE"),
    ]
)


def undecided(rows: Iterable[CommandRow]) -> list[str]:
    """Rows that say nothing, or not why."""
    return [row.name for row in rows if not is_decided(row.needs, (Asks, SettledBy, Handshake))]


def undecided_routes(routes: Iterable[object]) -> list[str]:
    """Routes that say nothing, or not why."""
    found = []
    for route in routes:
        needs = getattr(route, "needs", None)
        if not is_decided(needs, (*get_args(Action), InBody)):
            found.append(f"{getattr(route, 'path', route)}")
    return found


def is_decided(needs: object, kinds: tuple[type, ...]) -> bool:
    """Whether it is one of these, or says in some words why anyone may."""
    if isinstance(needs, Anyone):
        return len(needs.why.split()) >= 3
    return isinstance(needs, kinds)


def test_every_command_of_clients_has_a_row_with_a_decision() -> None:
    expected = {
        name
        for name in pb.BaseCommand.Type.keys()  # noqa: SIM118 (no mapping)
        if name == "AUTH_RESPONSE" or not (name.endswith(ANSWERS) or name in OF_BROKERS)
    }
    assert {row.name for row in by_command(ROWS).values()} == expected
    assert undecided(ROWS) == []


def test_every_route_has_a_decision() -> None:
    assert undecided_routes([*all_rows(), *unbuilt_routes()]) == []


def test_planted_routes_without_a_decision_are_caught() -> None:
    async def answer(request: Request) -> Response:
        return Response()

    silent = StarletteRoute("/silent", answer)
    curt = Route("GET", "/curt", answer, Anyone("so"))
    assert undecided_routes([silent, curt]) == ["/silent", "/curt"]


def test_planted_rows_without_a_decision_are_caught() -> None:
    silent = SimpleNamespace(name="SILENT", needs=None)
    assert undecided([silent, CommandRow(pb.BaseCommand.PING, None, Anyone("so"))]) == ["SILENT", "PING"]
