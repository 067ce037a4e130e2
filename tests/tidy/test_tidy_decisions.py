"""No door without a decision: every command that a client may send has one row that says what it needs."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

from geminga.broker.access.core.actions import Anyone
from geminga.broker.handlers import ROWS
from geminga.broker.handlers.rows import Asks, CommandRow, Handshake, SettledBy, by_command
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
    return [
        row.name
        for row in rows
        if not isinstance(row.needs, Asks | SettledBy | Handshake | Anyone)
        or (isinstance(row.needs, Anyone) and len(row.needs.why.split()) < 3)
    ]


def test_every_command_of_clients_has_a_row_with_a_decision() -> None:
    expected = {
        name
        for name in pb.BaseCommand.Type.keys()  # noqa: SIM118 (no mapping)
        if name == "AUTH_RESPONSE" or not (name.endswith(ANSWERS) or name in OF_BROKERS)
    }
    assert {row.name for row in by_command(ROWS).values()} == expected
    assert undecided(ROWS) == []


def test_planted_rows_without_a_decision_are_caught() -> None:
    silent = SimpleNamespace(name="SILENT", needs=None)
    assert undecided([silent, CommandRow(pb.BaseCommand.PING, None, Anyone("so"))]) == ["SILENT", "PING"]
