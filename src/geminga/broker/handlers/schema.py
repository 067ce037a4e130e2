"""GET_SCHEMA and GET_OR_CREATE_SCHEMA: the schema registry for clients.

GET_SCHEMA needs no topic to be loaded. GET_OR_CREATE_SCHEMA is for producers that change their schema while they
are connected: the topic must exist, and its schema is added as PRODUCER adds one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from geminga.broker.access.core.actions import Resource, TenantAdministration, TopicOperation, of_topic
from geminga.broker.admission.topic_schemas import schema_of
from geminga.broker.connection.connection import Connection
from geminga.broker.core.dedup_source import is_replicator
from geminga.broker.handlers.rows import Asks, CommandRow
from geminga.broker.handlers.services import CommandServices
from geminga.broker.schema.registry import schema_id_of
from geminga.broker.topic.base import Topic
from geminga.model.errors import (
    GemingaError,
    IncompatibleSchemaError,
    TooManyRequestsError,
    TopicNotFoundError,
)
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import error_code
from geminga.wire.pulsar.schema_info import decode_version, encode_version

#: Requests for schemas under way per connection; clients cache what they get.
REQUESTS_MAX: Final = 1000
#: Schemas that are read at a time for one connection, which gets no more than these beyond what it takes.
LANES: Final = 8


def handle_get_schema(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """GET_SCHEMA -> GET_SCHEMA_RESPONSE: the newest schema, or that of a version."""
    request = command.getSchema
    key = (int(pb.BaseCommand.GET_SCHEMA), request.request_id)
    if len(connection.members.requests) >= REQUESTS_MAX:
        error = TooManyRequestsError(f"more than {REQUESTS_MAX} requests under way")
        _send_schema(connection, _schema_error(connection, request.request_id, error))
        return
    connection.members.requests[key] = request.request_id
    # A schema may have a megabyte: each lane gives one answer after the other, as fast as the client takes them.
    lane = connection.members.schema_requests[request.request_id % LANES]
    lane.append(request)
    if len(lane) == 1:
        _get_next(services, connection, lane)


def _get_next(services: CommandServices, connection: Connection, lane: deque[pb.CommandGetSchema]) -> None:
    if not lane or connection.is_closed:
        return
    if connection.output.is_writable:
        connection.run(_get_schema(services, connection, lane), f"schema of {lane[0].topic}")
    else:
        connection.output.on_writable(lambda: _get_next(services, connection, lane))


async def _get_schema(services: CommandServices, connection: Connection, lane: deque[pb.CommandGetSchema]) -> None:
    request = lane[0]
    try:
        answer = await _find_schema(services, request)
    except GemingaError as error:
        answer = _schema_error(connection, request.request_id, error)
    connection.members.requests.pop((int(pb.BaseCommand.GET_SCHEMA), request.request_id), None)
    lane.popleft()
    if not connection.is_closed:
        _send_schema(connection, answer)
        _get_next(services, connection, lane)


async def _find_schema(services: CommandServices, request: pb.CommandGetSchema) -> pb.CommandGetSchemaResponse:
    registry = services.schemas.registry
    name = TopicName.parse(request.topic)
    loaded = services.topics.loaded.get(str(name))
    if loaded is not None and loaded.until_shown is not None:
        await loaded.until_shown()
    schema_id = schema_id_of(name if loaded is None else loaded.schema_topic)
    if request.HasField("schema_version"):
        try:
            version = decode_version(request.schema_version)
        except ValueError as error:
            # As Pulsar says it of an empty one.
            raise IncompatibleSchemaError(f"Empty schema version: {error}") from error
        # As REST: what is from before a deletion is not there any more.
        found = await registry.live_version(schema_id, version)
    else:
        found = await registry.latest(schema_id)
    if found is None:
        raise TopicNotFoundError(f"Topic not found or no-schema {request.topic}")
    return pb.CommandGetSchemaResponse(
        request_id=request.request_id, schema=found.info.to_wire(), schema_version=encode_version(found.version)
    )


def _schema_error(connection: Connection, request_id: int, error: GemingaError) -> pb.CommandGetSchemaResponse:
    return pb.CommandGetSchemaResponse(
        request_id=request_id, error_code=error_code(error.server_error), error_message=connection.told(error)
    )


def _send_schema(connection: Connection, answer: pb.CommandGetSchemaResponse) -> None:
    connection.send_command(pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=answer))


def handle_get_or_create_schema(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """GET_OR_CREATE_SCHEMA -> the schema's version, which is added if it is new and fits."""
    request = command.getOrCreateSchema
    if len(connection.members.requests) >= REQUESTS_MAX:
        error = TooManyRequestsError(f"more than {REQUESTS_MAX} requests under way")
        _send_version(connection, _version_error(connection, request.request_id, error))
        return
    connection.members.requests[(int(pb.BaseCommand.GET_OR_CREATE_SCHEMA), request.request_id)] = request.request_id
    connection.run(_get_or_create_schema(services, connection, request), f"add schema of {request.topic}")


async def _existing(services: CommandServices, text: str) -> Topic:
    try:
        return await services.topics.get(TopicName.parse(text), create=False)
    except TopicNotFoundError as error:
        raise TopicNotFoundError(f"Topic not found {text}") from error


async def _get_or_create_schema(
    services: CommandServices, connection: Connection, request: pb.CommandGetOrCreateSchema
) -> None:
    try:
        topic = await _existing(services, request.topic)
        version = await services.schemas.add(topic.name, schema_of(request), request.producerName)
        answer = pb.CommandGetOrCreateSchemaResponse(request_id=request.request_id, schema_version=version)
    except GemingaError as error:
        answer = _version_error(connection, request.request_id, error)
    connection.members.requests.pop((int(pb.BaseCommand.GET_OR_CREATE_SCHEMA), request.request_id), None)
    if not connection.is_closed:
        _send_version(connection, answer)


def _version_error(connection: Connection, request_id: int, error: GemingaError) -> pb.CommandGetOrCreateSchemaResponse:
    return pb.CommandGetOrCreateSchemaResponse(
        request_id=request_id, error_code=error_code(error.server_error), error_message=connection.told(error)
    )


def _send_version(connection: Connection, answer: pb.CommandGetOrCreateSchemaResponse) -> None:
    connection.send_command(
        pb.BaseCommand(type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, getOrCreateSchemaResponse=answer)
    )


def _read(connection: Connection, command: pb.BaseCommand) -> Resource:
    return of_topic(TopicName.parse(command.getSchema.topic))


def _refuse_read(connection: Connection, command: pb.BaseCommand, error: GemingaError) -> None:
    _send_schema(connection, _schema_error(connection, command.getSchema.request_id, error))


def _added(connection: Connection, command: pb.BaseCommand) -> Resource:
    return of_topic(TopicName.parse(command.getOrCreateSchema.topic))


def _added_as_replicator(connection: Connection, command: pb.BaseCommand) -> Resource | None:
    """Where replicators may bring schemas and others may not, the name is believed: it is not everybody's to say."""
    return _added(connection, command) if is_replicator(command.getOrCreateSchema.producerName) else None


def _refuse_added(connection: Connection, command: pb.BaseCommand, error: GemingaError) -> None:
    _send_version(connection, _version_error(connection, command.getOrCreateSchema.request_id, error))


ROWS: Final = (
    CommandRow(pb.BaseCommand.GET_SCHEMA, handle_get_schema, Asks(TopicOperation.GET_METADATA, _read, _refuse_read)),
    CommandRow(
        pb.BaseCommand.GET_OR_CREATE_SCHEMA,
        handle_get_or_create_schema,
        Asks(
            TopicOperation.PRODUCE,
            _added,
            _refuse_added,
            also=((TenantAdministration.REPLICATE, _added_as_replicator),),
        ),
    ),
)
