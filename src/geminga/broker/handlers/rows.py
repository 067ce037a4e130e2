"""One row for each command a client may send: who handles it, and what must be allowed before.

A row that asks is asked before its handler runs, so that a refusal has changed nothing. Where the answer takes a
while, the commands behind wait for it: their order is the client's. What SEND, ACK, FLOW and REDELIVER need was
decided when their producer or consumer was made; a connection uses only its own, so that they cost no question.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from geminga.broker.access.core.actions import Action, Anyone, Resource
from geminga.broker.access.ports import Allowed, Decision, Denied
from geminga.broker.access.refusals import refused_command
from geminga.broker.connection.connection import Connection
from geminga.broker.handlers.services import CommandServices
from geminga.broker.topic.producer import Producer
from geminga.broker.topic.publish import PublishBatch
from geminga.model.errors import GemingaError, InvariantError
from geminga.wire._generated import pulsar_api_pb2 as pb

#: Handles one command of one type.
Handler: TypeAlias = Callable[[CommandServices, Connection, pb.BaseCommand], None]
#: Answers a command with an error, in the form that the command has for it.
Refuse: TypeAlias = Callable[[Connection, pb.BaseCommand, GemingaError], None]
#: Finds what a command is about; None: something that the connection has not, as its handler says. Raises GemingaError
#: for a name that can be none.
About: TypeAlias = Callable[[Connection, pb.BaseCommand], Resource | None]


class Asks(NamedTuple):
    """May be done by who is allowed an action."""

    action: Action
    about: About
    refuse: Refuse
    #: Further actions that some commands of the type need.
    also: tuple[tuple[Action, About], ...] = ()


class SettledBy(NamedTuple):
    """Was decided by an earlier command of the connection, without which this one finds nothing."""

    command: int


@dataclass(frozen=True, slots=True)
class Handshake:
    """Says who asks: it comes before any decision."""


Needs: TypeAlias = Asks | SettledBy | Handshake | Anyone


class CommandRow(NamedTuple):
    """A command."""

    #: ``BaseCommand.Type``.
    command: int
    #: None: it comes with a payload, and is taken by :attr:`HotCommands.send`.
    handle: Handler | None
    needs: Needs

    @property
    def name(self) -> str:
        """As the protocol calls it."""
        return command_name(self.command)


class HotCommands(NamedTuple):
    """Entries of the commands that have hand-written codecs; their rows say who settled them."""

    flow: Callable[[Connection, int, int], None]
    ack: Callable[[Connection, bytes], None]
    redeliver: Callable[[Connection, bytes], None]
    send: Callable[[Connection, pb.CommandSend, bytes], None]
    publish_in_transaction: Callable[[Connection, Producer, PublishBatch], None]


class CommandTable:
    """The rows by type, and who decides."""

    __slots__ = (
        "_authorizer",
        "_services",
        "ack",
        "flow",
        "publish_in_transaction",
        "redeliver",
        "rows",
        "send",
    )

    def __init__(self, rows: Iterable[CommandRow], hot: HotCommands, services: CommandServices) -> None:
        """Raises InvariantError for a second row of a command, and for one settled by what asks nothing."""
        self.rows: Final[Mapping[int, CommandRow]] = by_command(rows)
        self._services = services
        self._authorizer = services.access.authorizer
        self.flow = hot.flow
        self.ack = hot.ack
        self.redeliver = hot.redeliver
        self.send = hot.send
        self.publish_in_transaction = hot.publish_in_transaction

    def run(self, connection: Connection, command: pb.BaseCommand) -> bool:
        """Handle a command if that is allowed, else refuse it; False for one that no client sends."""
        row = self.rows.get(command.type)
        if row is None or row.handle is None:
            return False
        if isinstance(row.needs, Asks):
            too_many = connection.too_many_requests
            if too_many is not None:
                row.needs.refuse(connection, command, too_many)
                return True
            self._ask(connection, command, row.handle, row.needs)
        else:
            row.handle(self._services, connection, command)
        return True

    def _ask(self, connection: Connection, command: pb.BaseCommand, handle: Handler, needs: Asks) -> None:
        try:
            questions = [
                (action, resource)
                for action, about in ((needs.action, needs.about), *needs.also)
                if (resource := about(connection, command)) is not None
            ]
        except GemingaError as error:
            needs.refuse(connection, command, error)
            return
        for index, (action, resource) in enumerate(questions):
            decision = self._authorizer.decide(connection.principal, action, resource)
            if isinstance(decision, Denied):
                needs.refuse(connection, command, refused_command(action, decision))
                return
            if not isinstance(decision, Allowed):
                # What was allowed first may be taken away while the others are asked about. The last ones take longest.
                again = questions[::-1] if len(questions) > 1 else []
                later = self._ask_later(connection, command, handle, needs, questions[index:] + again, decision)
                connection.run_in_turns(later)
                return
        handle(self._services, connection, command)

    async def _ask_later(
        self,
        connection: Connection,
        command: pb.BaseCommand,
        handle: Handler,
        needs: Asks,
        questions: Sequence[tuple[Action, Resource]],
        answer: Coroutine[Any, Any, Decision],
    ) -> None:
        """Go on with ``questions``, of which the first is answered by ``answer``."""
        decision: Decision | Coroutine[Any, Any, Decision] = answer
        for index, (action, resource) in enumerate(questions):
            if index:
                decision = self._authorizer.decide(connection.principal, action, resource)
            try:
                decision = decision if isinstance(decision, Allowed | Denied) else await decision
            except GemingaError as error:
                needs.refuse(connection, command, error)
                return
            if isinstance(decision, Denied):
                needs.refuse(connection, command, refused_command(action, decision))
                return
        if not connection.is_closed:
            handle(self._services, connection, command)


def without_services(handle: Callable[[Connection, pb.BaseCommand], None]) -> Handler:
    """A handler that uses nothing but its connection."""

    def call(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
        handle(connection, command)

    return call


def by_command(rows: Iterable[CommandRow]) -> dict[int, CommandRow]:
    """The rows by type; raises InvariantError where they contradict each other."""
    table: dict[int, CommandRow] = {}
    for row in rows:
        if row.command in table:
            raise InvariantError(f"two rows for the command {row.name}")
        table[row.command] = row
    for row in table.values():
        if isinstance(row.needs, SettledBy):
            settling = table.get(row.needs.command)
            if settling is None or not isinstance(settling.needs, Asks):
                raise InvariantError(f"{row.name} is settled by {command_name(row.needs.command)}, which asks nothing")
    return table


def command_name(command: int) -> str:
    """A type as the protocol calls it."""
    return pb.BaseCommand.Type.Name(pb.BaseCommand.Type.ValueType(command))
