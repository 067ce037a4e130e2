"""GET_SCHEMA and GET_OR_CREATE_SCHEMA, as a broker without a schema registry answers them.

Messages are bytes here. A schema that a client brings is taken and not kept: its version is empty, no topic has
one to give. Clients then use the schema they have; nothing checks whether two of them fit.
"""

from __future__ import annotations

from typing import Final

from geminga.broker.connection import Connection, Handler
from geminga.wire._generated import pulsar_api_pb2 as pb


def handle_get_schema(connection: Connection, command: pb.BaseCommand) -> None:
    """GET_SCHEMA -> GET_SCHEMA_RESPONSE: there is none (TopicNotFound, as Pulsar says it)."""
    answer = pb.CommandGetSchemaResponse(
        request_id=command.getSchema.request_id,
        error_code=pb.TopicNotFound,
        error_message="Topic not found or no-schema",
    )
    connection.send_command(pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=answer))


def handle_get_or_create_schema(connection: Connection, command: pb.BaseCommand) -> None:
    """GET_OR_CREATE_SCHEMA -> an empty version."""
    answer = pb.CommandGetOrCreateSchemaResponse(request_id=command.getOrCreateSchema.request_id, schema_version=b"")
    connection.send_command(
        pb.BaseCommand(type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=answer)
    )


HANDLERS: Final[dict[int, Handler]] = {
    pb.BaseCommand.GET_SCHEMA: handle_get_schema,
    pb.BaseCommand.GET_OR_CREATE_SCHEMA: handle_get_or_create_schema,
}
