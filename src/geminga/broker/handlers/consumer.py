"""Rows of the commands of consumers, whose handlers are the subscriptions'."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import Anyone, Resource, TopicOperation, of_topic
from geminga.broker.connection.connection import Connection
from geminga.broker.handlers import subscription as handlers
from geminga.broker.handlers.rows import Asks, CommandRow, SettledBy, without_services
from geminga.broker.handlers.services import CommandServices
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb


def _subscribe(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    handlers.handle_subscribe(services.topics, connection, command)


def _subscribed(connection: Connection, command: pb.BaseCommand) -> Resource:
    request = command.subscribe
    return of_topic(TopicName.parse(request.topic), request.subscription)


def _refuse_subscribe(connection: Connection, command: pb.BaseCommand, error: GemingaError) -> None:
    connection.send_error(command.subscribe.request_id, error)


def _of_consumer(connection: Connection, consumer_id: int) -> Resource | None:
    consumer = connection.members.consumers.get(consumer_id)
    if consumer is None:
        return None
    return of_topic(consumer.subscription.topic.name, consumer.subscription.name)


def _sought(connection: Connection, command: pb.BaseCommand) -> Resource | None:
    return _of_consumer(connection, command.seek.consumer_id)


def _refuse_seek(connection: Connection, command: pb.BaseCommand, error: GemingaError) -> None:
    connection.send_error(command.seek.request_id, error)


def _unsubscribed(connection: Connection, command: pb.BaseCommand) -> Resource | None:
    return _of_consumer(connection, command.unsubscribe.consumer_id)


def _refuse_unsubscribe(connection: Connection, command: pb.BaseCommand, error: GemingaError) -> None:
    connection.send_error(command.unsubscribe.request_id, error)


_BY_SUBSCRIBE: Final = SettledBy(pb.BaseCommand.SUBSCRIBE)

ROWS: Final = (
    CommandRow(
        pb.BaseCommand.SUBSCRIBE,
        _subscribe,
        Asks(TopicOperation.CONSUME, _subscribed, _refuse_subscribe),
    ),
    CommandRow(pb.BaseCommand.FLOW, without_services(handlers.handle_flow_command), _BY_SUBSCRIBE),
    CommandRow(pb.BaseCommand.ACK, without_services(handlers.handle_ack_command), _BY_SUBSCRIBE),
    CommandRow(
        pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, without_services(handlers.handle_redeliver), _BY_SUBSCRIBE
    ),
    CommandRow(
        pb.BaseCommand.SEEK,
        without_services(handlers.handle_seek),
        Asks(TopicOperation.RESET_CURSOR, _sought, _refuse_seek),
    ),
    CommandRow(
        pb.BaseCommand.UNSUBSCRIBE,
        without_services(handlers.handle_unsubscribe),
        Asks(TopicOperation.UNSUBSCRIBE, _unsubscribed, _refuse_unsubscribe),
    ),
    CommandRow(
        pb.BaseCommand.CLOSE_CONSUMER,
        without_services(handlers.handle_close_consumer),
        Anyone("it ends what the connection began"),
    ),
    CommandRow(pb.BaseCommand.CONSUMER_STATS, without_services(handlers.handle_consumer_stats), _BY_SUBSCRIBE),
    CommandRow(
        pb.BaseCommand.GET_LAST_MESSAGE_ID, without_services(handlers.handle_get_last_message_id), _BY_SUBSCRIBE
    ),
)
