"""CONNECT, PING, PONG, AUTH_RESPONSE."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import Anyone
from geminga.broker.connection.connection import Connection
from geminga.broker.handlers.rows import CommandRow, Handshake
from geminga.broker.handlers.services import CommandServices
from geminga.model.errors import ProtocolError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands

#: Characters of the client's version that are kept.
CLIENT_VERSION_LENGTH_MAX: Final = 200


def handle_connect(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """CONNECT -> CONNECTED. Authentication is off: every method name is taken, and everybody is anonymous."""
    if connection.is_connected:
        raise ProtocolError("CONNECT on a connection that is connected already")
    request = command.connect
    connection.client_version = request.client_version[:CLIENT_VERSION_LENGTH_MAX]
    # A newer client is told our version, an older one its own, so that neither uses what the other lacks.
    connection.protocol_version = min(commands.PROTOCOL_VERSION, request.protocol_version)
    connection.supports_broker_entry_metadata = (
        services.config.expose_entry_metadata and request.feature_flags.supports_broker_entry_metadata
    )
    connection.supports_partial_producer = request.feature_flags.supports_partial_producer
    connection.handshake_done()
    flags = pb.FeatureFlags(
        supports_topic_watchers=services.config.topic_list_watcher,
        supports_get_partitioned_metadata_without_auto_creation=True,
        geminga_entry_heads=True,
    )
    connection.write(
        commands.connected(
            f"Geminga {services.version}".rstrip(),
            connection.protocol_version,
            services.config.message_bytes_max,
            flags,
        )
    )


def handle_ping(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """PING -> PONG."""
    connection.write(commands.PONG_FRAME)


def handle_pong(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """PONG: the connection is alive, which every byte says."""


def handle_auth_response(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """AUTH_RESPONSE: nobody was challenged, so it says nothing."""


ROWS: Final = (
    CommandRow(pb.BaseCommand.CONNECT, handle_connect, Handshake()),
    CommandRow(pb.BaseCommand.AUTH_RESPONSE, handle_auth_response, Handshake()),
    CommandRow(pb.BaseCommand.PING, handle_ping, Anyone("it tells that the broker is there")),
    CommandRow(pb.BaseCommand.PONG, handle_pong, Anyone("it answers the broker")),
)
