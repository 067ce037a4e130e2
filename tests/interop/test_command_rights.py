"""Who may ask for what over the binary protocol: the table of rights, sent to Apache's broker with tokens of all roles.

The table is that of ``tests/unit/broker/access/test_decision_table.py``, which Geminga is held to without Java: each
command that asks for a right, by each principal, and who is not let in at all. Each is sent by a connection of its own.
"""

from __future__ import annotations

import pytest

from geminga.broker.access.core.actions import TopicOperation
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.processes.apache_rights import Asked, token
from support.processes.raw_protocol import RawConnection, frame
from unit.broker.access.test_decision_table import PRINCIPALS, Who, is_allowed, is_let_in
from unit.broker.access.test_decision_table import commands as known

pytestmark = pytest.mark.integration

Type = pb.BaseCommand
#: Seconds in which a command that was let in may say nothing: it does something.
SILENCE_S = 2.0
#: ``command`` -> what Apache's broker does otherwise; each is in the row on authorization of docs/compatibility.md.
DIFFERENT = {
    "GET_SCHEMA": "answers everybody who is connected",
    "GET_OR_CREATE_SCHEMA": "answers everybody who is connected",
    "GET_OR_CREATE_SCHEMA as a replicator": "answers everybody who is connected",
    "PRODUCER as a replicator": "takes the name from who may produce",
}
#: What it says, with an error of another kind (TransactionNotFound), to who may not end another's transaction.
NO_SUPER_USER = "is not a super user"


class Sender:
    """What a case of the table sends by."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection

    def send(self, command: pb.BaseCommand) -> None:
        self._connection.send(frame(command))


def connect(port: int, who: Who, text: str | None = None) -> tuple[RawConnection, pb.BaseCommand | None]:
    """A connection that showed its token, and what it was told."""
    connection = RawConnection(port, handshake=False, timeout_s=10.0)
    command = pb.BaseCommand(type=Type.CONNECT)
    command.connect.client_version = "raw"
    command.connect.protocol_version = 20
    if who.role or text:
        command.connect.auth_method_name = "token"
        command.connect.auth_data = (token(who.role) if text is None else text).encode()
    if who.original:
        command.connect.original_principal = who.original
    connection.send(frame(command))
    return connection, connection.receive()


def answered(connection: RawConnection) -> pb.BaseCommand | None:
    """What a command is told; None: nothing, or the end."""
    connection.socket.settimeout(SILENCE_S)
    while True:
        try:
            command = connection.receive()
        except TimeoutError:
            return None
        if command is None or command.type not in (Type.ACTIVE_CONSUMER_CHANGE, Type.MESSAGE):
            return command


def expected_of(name: str, who: Who) -> bool:
    """Whether the table lets that one."""
    asked = known.ASKED[name]
    actions = {asked.action} | ({TopicOperation.PRODUCE} if name.startswith("PRODUCER") else set())
    return all(is_allowed(who, action) for action in actions)


@pytest.mark.timeout(600)
def test_apache_takes_and_refuses_the_same_commands(apache: Asked) -> None:
    cells, known_cells, different = 0, 0, []
    for who in filter(is_let_in, PRINCIPALS):
        for name, asked in known.ASKED.items():
            if asked.action in (TopicOperation.RESET_CURSOR, TopicOperation.UNSUBSCRIBE):
                continue  # they are about a consumer, which most of these may not have
            connection, greeting = connect(apache.broker_port, who)
            with connection:
                assert greeting is not None, who
                assert greeting.type == Type.CONNECTED, (who, greeting)
                asked.send(Sender(connection))
                told = answered(connection)
            refusal = None if told is None else known.refusal_of(told)
            is_refused = refusal is not None and (refusal[0] == pb.AuthorizationError or NO_SUPER_USER in refusal[1])
            cells += 1
            if is_refused != expected_of(name, who):
                continue
            if name in DIFFERENT:
                known_cells += 1
            else:
                different.append(f"{name} {who}: {refusal or told}")
    print(f"{cells} cells, {known_cells} differ as is known, {len(different)} more")
    assert not different, "\n".join(different)


def test_apache_lets_the_same_in(apache: Asked) -> None:
    """Nobody, who speaks for others and is no proxy, a proxy that speaks for nobody or a proxy; worthless tokens."""
    attempts = [(who, None) for who in PRINCIPALS]
    for who in (Who("root"), Who("proxy-root", "root")):
        attempts += [(who, token(who.role, b"x" * 32)), (who, token(who.role, exp=1))]
    different = []
    for who, text in attempts:
        connection, greeting = connect(apache.broker_port, who, text)
        with connection:
            is_in = greeting is not None and greeting.type == Type.CONNECTED
        if is_in != (is_let_in(who) and text is None):
            different.append(f"{who} {text}: {greeting}")
    print(f"{len(attempts)} cells, {len(different)} differences")
    assert not different, "\n".join(different)
