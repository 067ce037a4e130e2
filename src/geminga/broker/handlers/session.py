"""CONNECT, PING, PONG, AUTH_RESPONSE."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, Final

from geminga.broker.access.core.actions import Anyone
from geminga.broker.access.core.handshake import (
    Accept,
    Challenge,
    Credentials,
    Hello,
    Known,
    Refuse,
    Rejected,
    Step,
    Verdict,
    Verify,
)
from geminga.broker.connection.connection import Connection
from geminga.broker.handlers.rows import CommandRow, Handshake
from geminga.broker.handlers.services import CommandServices
from geminga.model.errors import AuthorizationError, GemingaError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands

#: Characters of the client's version that are kept.
CLIENT_VERSION_LENGTH_MAX: Final = 200
#: Answers to CONNECT that are kept as they are written, of a hundred bytes each.
WELCOMES_MAX: Final = 64


def handle_connect(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """CONNECT -> CONNECTED, perhaps after AUTH_CHALLENGEs, or ERROR."""
    request = command.connect
    step = connection.handshake.connect(_hello(request))
    connection.client_version = request.client_version[:CLIENT_VERSION_LENGTH_MAX]
    # A newer client is told our version, an older one its own, so that neither uses what the other lacks.
    connection.protocol_version = min(commands.PROTOCOL_VERSION, request.protocol_version)
    connection.supports_broker_entry_metadata = (
        services.config.expose_entry_metadata and request.feature_flags.supports_broker_entry_metadata
    )
    connection.supports_partial_producer = request.feature_flags.supports_partial_producer
    connection.permits_are_messages = request.feature_flags.geminga_permits_are_messages
    _follow(services, connection, step)


def _hello(request: pb.CommandConnect) -> Hello:
    has_original = request.HasField("original_auth_data")
    return Hello(
        Credentials(request.auth_method_name, request.auth_data),
        request.original_principal,
        Credentials(request.original_auth_method, request.original_auth_data.encode()) if has_original else None,
        request.feature_flags.supports_auth_refresh,
    )


def handle_auth_response(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """AUTH_RESPONSE: what a challenge asked for; one that nobody asked for says nothing."""
    answer = command.authResponse.response
    _follow(services, connection, connection.handshake.answer(Credentials(answer.auth_method_name, answer.auth_data)))


def _follow(services: CommandServices, connection: Connection, step: Step | None) -> None:
    """Do what the handshake says; commands behind wait while somebody is verified."""
    while isinstance(step, Verify):
        exchange = connection.exchanges.get(step.whose)
        if exchange is None:
            exchange = connection.exchanges[step.whose] = services.access.authenticator.begin(
                connection.peer.rpartition(":")[0]
            )
        verdict = exchange.answer(step.credentials)
        if not isinstance(verdict, Known | Challenge | Rejected):
            connection.run_in_turns(_follow_later(services, connection, verdict))
            return
        step = connection.handshake.verdict(verdict, services.clock.monotonic())
    if isinstance(step, Refuse) and step.is_of_roles:
        connection.send_error(commands.UNREQUESTED, AuthorizationError(f"Invalid roles. ({step.reason})"))
        connection.close(step.reason)
        return
    connection.carry_out(step)
    if isinstance(step, Accept):
        _welcome(services, connection)


async def _follow_later(
    services: CommandServices, connection: Connection, answer: Coroutine[Any, Any, Verdict]
) -> None:
    try:
        verdict = await answer
    except GemingaError as error:
        verdict = Rejected(connection.told(error))
    if not connection.is_closed:
        _follow(services, connection, connection.handshake.verdict(verdict, services.clock.monotonic()))


def _welcome(services: CommandServices, connection: Connection) -> None:
    config = services.config
    connection.output.write(
        _connected(
            f"Geminga {services.version}".rstrip(),
            connection.protocol_version,
            config.message_bytes_max,
            has_watchers=config.topic_list_watcher,
            has_transactions=services.transactions is not None,
        )
    )


@lru_cache(maxsize=WELCOMES_MAX)
def _connected(
    server_version: str, protocol_version: int, message_bytes_max: int, *, has_watchers: bool, has_transactions: bool
) -> bytes:
    """CONNECTED; said again and again, and the same to all clients of one version."""
    flags = pb.FeatureFlags(
        supports_topic_watchers=has_watchers,
        supports_get_partitioned_metadata_without_auto_creation=True,
        geminga_entry_heads=True,
        geminga_ledger_lengths=True,
        geminga_registers_ahead=has_transactions,
        geminga_ack_sets_name_all=has_transactions,
    )
    return commands.connected(server_version, protocol_version, message_bytes_max, flags)


def handle_ping(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """PING -> PONG."""
    connection.output.write(commands.PONG_FRAME)


def handle_pong(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """PONG: the connection is alive, which every byte says."""


ROWS: Final = (
    CommandRow(pb.BaseCommand.CONNECT, handle_connect, Handshake()),
    CommandRow(pb.BaseCommand.AUTH_RESPONSE, handle_auth_response, Handshake()),
    CommandRow(pb.BaseCommand.PING, handle_ping, Anyone("it tells that the broker is there")),
    CommandRow(pb.BaseCommand.PONG, handle_pong, Anyone("it answers the broker")),
)
