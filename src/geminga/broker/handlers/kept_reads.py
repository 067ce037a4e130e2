"""Who reads payloads over the binary protocol, in the audit log: commands that say so, and readers where that is asked.

A reader leaves no subscription behind by which it could be known later. What commands of Geminga open says which
command it is, by a property; another client says nothing, and is kept with ``gemingaAuditReaders`` alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from geminga.broker.access.audit import Auditor, Entry
from geminga.broker.connection.connection import Connection
from geminga.broker.handlers.rows import Asks, CommandRow, Handler
from geminga.broker.handlers.services import CommandServices
from geminga.model.errors import GemingaError
from geminga.wire._generated import pulsar_api_pb2 as pb

#: Property of a consumer: the command that opened it, such as ``messages browse``.
COMMAND: Final = "geminga-command"
ACTION: Final = "read messages"
#: Of a command's name; a longer one is not kept: strangers choose it.
NAME_MAX: Final = 80


def noted(rows: Iterable[CommandRow], audit: Auditor, *, all_readers: bool) -> list[CommandRow]:
    """The same; that of SUBSCRIBE notes who was let in, or refused, before it answers.

    ``all_readers``: whoever opens them; else those of commands alone.
    """
    keep = _Kept(audit, all_readers=all_readers)
    return [keep.noting(row) if row.command == pb.BaseCommand.SUBSCRIBE else row for row in rows]


class _Kept:
    """Notes them."""

    def __init__(self, audit: Auditor, *, all_readers: bool) -> None:
        self._audit = audit
        self._all_readers = all_readers

    def noting(self, row: CommandRow) -> CommandRow:
        handle, needs = row.handle, row.needs
        assert handle is not None
        assert isinstance(needs, Asks)
        refuse = needs.refuse

        def let_in(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
            self._note(connection, command.subscribe, 200, "")
            handle(services, connection, command)

        def refused(connection: Connection, command: pb.BaseCommand, error: GemingaError) -> None:
            self._note(connection, command.subscribe, error.http_status, error.told)
            refuse(connection, command, error)

        noting: Handler = let_in
        return row._replace(handle=noting, needs=needs._replace(refuse=refused))

    def _note(self, connection: Connection, request: pb.CommandSubscribe, status: int, reason: str) -> None:
        command = next((pair.value for pair in request.metadata if pair.key == COMMAND), "")
        if not command and (request.durable or not self._all_readers):
            return
        if len(command) > NAME_MAX:
            command = f"({len(command)} characters)"
        principal = connection.principal
        self._audit.note(
            Entry(
                principal.role,
                principal.original,
                connection.peer.removeprefix("/"),
                "SUBSCRIBE",
                f"{request.topic}?command={quote(command, safe='')}" if command else request.topic,
                ACTION,
                status,
                reason,
            )
        )
