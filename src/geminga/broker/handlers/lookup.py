"""LOOKUP and PARTITIONED_METADATA."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import Resource, TopicOperation, of_topic
from geminga.broker.connection.connection import Connection
from geminga.broker.handlers.rows import Asks, CommandRow
from geminga.broker.handlers.services import CommandServices
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.model.errors import GemingaError, NotInThisClusterError, TopicNotFoundError
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_partitions


def handle_lookup(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """LOOKUP -> LOOKUP_RESPONSE: connect to the owner, or ask the broker that is to become it.

    URLs are those of the listener that the client asks for, or came through.
    """
    connection.run(_lookup(services, connection, command.lookupTopic), f"look up {command.lookupTopic.topic}")


async def _lookup(services: CommandServices, connection: Connection, request: pb.CommandLookupTopic) -> None:
    try:
        listener = request.advertised_listener_name or connection.listener
        name = TopicName.parse(request.topic)
        place = await services.lookup.find(name, listener, is_authoritative=request.authoritative)
        wait = await services.lookup.wait_for(place)
        if wait is not None:
            # Thousands of a connection may wait; it is read on meanwhile.
            connection.load.rests()
            try:
                await wait
            finally:
                connection.load.goes_on()
            place = await services.lookup.find(name, listener, is_authoritative=request.authoritative)
    except GemingaError as error:
        connection.output.write(commands.lookup_failed(request.request_id, error.server_error, connection.told(error)))
        return
    urls = place.endpoint.broker_url, place.endpoint.broker_url_tls
    connection.output.write(
        commands.lookup_redirect(request.request_id, *urls, is_authoritative=place.is_authoritative)
        if place.is_to_ask
        else commands.lookup_connect(
            request.request_id,
            *urls,
            is_authoritative=place.is_authoritative,
            is_through_service_url=place.endpoint.is_through_service_url,
        )
    )


def handle_partitioned_metadata(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """PARTITIONED_METADATA -> its response; creates the topic by policy unless the client forbids it."""
    request = command.partitionMetadata
    connection.run(_partitioned_metadata(services, connection, request), f"partitions of {request.topic}")


async def _partitioned_metadata(
    services: CommandServices, connection: Connection, request: pb.CommandPartitionedTopicMetadata
) -> None:
    try:
        name = TopicName.parse(request.topic)
        if services.transactions is None and name == COORDINATORS_TOPIC:
            # Whatever was made while there were transactions: Java's client says that there are none when it is told
            # 0, and waits for ever when 16 coordinators refuse it.
            connection.output.write(encode_partitions(request.request_id, 0))
            return
        count = await _count(services, name, may_create=request.metadata_auto_creation_enabled)
        if not count and not request.metadata_auto_creation_enabled and not await services.topics.exists(name):
            raise TopicNotFoundError(f"Topic {name} not found")
    except GemingaError as error:
        connection.output.write(
            commands.partitions_failed(request.request_id, error.server_error, connection.told(error))
        )
        return
    connection.output.write(encode_partitions(request.request_id, count))


async def _count(services: CommandServices, name: TopicName, *, may_create: bool) -> int:
    """Partitions; what lives in a peer cluster is not made here, and looked up over there."""
    try:
        return await services.topics.partitioned_count(name, create=may_create)
    except NotInThisClusterError:
        count = await services.lookup.partitions_at_peer(name)
        if count is None:
            raise
        return count


def _looked_up(connection: Connection, command: pb.BaseCommand) -> Resource:
    return of_topic(TopicName.parse(command.lookupTopic.topic))


def _refuse_lookup(connection: Connection, command: pb.BaseCommand, error: GemingaError) -> None:
    request_id = command.lookupTopic.request_id
    connection.output.write(commands.lookup_failed(request_id, error.server_error, connection.told(error)))


def _partitioned(connection: Connection, command: pb.BaseCommand) -> Resource:
    return of_topic(TopicName.parse(command.partitionMetadata.topic))


def _refuse_partitions(connection: Connection, command: pb.BaseCommand, error: GemingaError) -> None:
    request_id = command.partitionMetadata.request_id
    connection.output.write(commands.partitions_failed(request_id, error.server_error, connection.told(error)))


ROWS: Final = (
    CommandRow(pb.BaseCommand.LOOKUP, handle_lookup, Asks(TopicOperation.LOOKUP, _looked_up, _refuse_lookup)),
    CommandRow(
        pb.BaseCommand.PARTITIONED_METADATA,
        handle_partitioned_metadata,
        Asks(TopicOperation.LOOKUP, _partitioned, _refuse_partitions),
    ),
)
