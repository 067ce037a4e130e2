"""Rows of the commands that ask for the topics of a namespace.

Their handlers are loaded with the first of these commands: most brokers never get one, and each start would pay for it.
"""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import Anyone, NamespaceOperation, Resource, of_namespace
from geminga.broker.connection.connection import Connection
from geminga.broker.handlers.rows import Asks, CommandRow
from geminga.broker.handlers.services import CommandServices
from geminga.model.errors import GemingaError
from geminga.wire._generated import pulsar_api_pb2 as pb


def _handle_get_topics(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    from geminga.broker.handlers import topic_list

    topic_list.handle_get_topics(services, connection, command)


def _handle_watch(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    from geminga.broker.handlers import topic_list

    topic_list.handle_watch(services, connection, command)


def _handle_watch_close(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    from geminga.broker.handlers import topic_list

    topic_list.handle_watch_close(services, connection, command)


def _listed(connection: Connection, command: pb.BaseCommand) -> Resource:
    return of_namespace(command.getTopicsOfNamespace.namespace)


def _refuse_list(connection: Connection, command: pb.BaseCommand, error: GemingaError) -> None:
    connection.send_error(command.getTopicsOfNamespace.request_id, error)


def _watched(connection: Connection, command: pb.BaseCommand) -> Resource:
    return of_namespace(command.watchTopicList.namespace)


def _refuse_watch(connection: Connection, command: pb.BaseCommand, error: GemingaError) -> None:
    connection.send_error(command.watchTopicList.request_id, error)


ROWS: Final = (
    CommandRow(
        pb.BaseCommand.GET_TOPICS_OF_NAMESPACE,
        _handle_get_topics,
        Asks(NamespaceOperation.GET_TOPICS, _listed, _refuse_list),
    ),
    CommandRow(
        pb.BaseCommand.WATCH_TOPIC_LIST,
        _handle_watch,
        Asks(NamespaceOperation.GET_TOPICS, _watched, _refuse_watch),
    ),
    CommandRow(pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE, _handle_watch_close, Anyone("it ends what the connection began")),
)
