"""What is done with each command: one module per family, one table for the connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from geminga.broker.connection.connection import Connection, Handler
from geminga.broker.handlers import lookup, producer, schema, session, transaction
from geminga.broker.subscription import handlers as subscription
from geminga.wire._generated import pulsar_api_pb2 as pb

__all__ = ["Handlers", "all_handlers"]


@dataclass(frozen=True, slots=True)
class Handlers:
    """The table, and the entries of the commands that have hand-written codecs."""

    table: Mapping[int, Handler]
    flow: Callable[[Connection, int, int], None]
    ack: Callable[[Connection, bytes], None]
    redeliver: Callable[[Connection, bytes], None]
    send: Callable[[Connection, pb.CommandSend, bytes], None]


#: Loaded with the first of these commands: most brokers never get one, and each start would pay for it.
TOPIC_LIST_COMMANDS: Final = (
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE,
    pb.BaseCommand.WATCH_TOPIC_LIST,
    pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE,
)


def _handle_topic_list(connection: Connection, command: pb.BaseCommand) -> None:
    from geminga.broker.handlers import topic_list

    topic_list.HANDLERS[command.type](connection, command)


def all_handlers() -> Handlers:
    """The handlers of every family."""
    table: dict[int, Handler] = dict.fromkeys(TOPIC_LIST_COMMANDS, _handle_topic_list)
    for family in (session, lookup, producer, schema, transaction, subscription):
        table.update(family.HANDLERS)
    return Handlers(
        table=table,
        flow=subscription.handle_flow,
        ack=subscription.handle_ack_bytes,
        redeliver=subscription.handle_redeliver_bytes,
        send=producer.handle_send,
    )
